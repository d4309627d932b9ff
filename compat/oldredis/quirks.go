package oldredis

import (
	"slices"
	"sync"
	"time"
)

// A quirk is a behaviour that some versions have: those from one position in versions up to another. commandTable
// says which commands a version has, and with how many arguments.
type quirk struct{ from, to int }

func between(from, to string) quirk {
	return quirk{slices.Index(versions, from), slices.Index(versions, to)}
}
func before(version string) quirk { return between(versions[0], version) }
func since(version string) quirk  { return quirk{slices.Index(versions, version), len(versions)} }

// The quirks. The tests check them against recordings of the releases in quirksOf.
var (
	// wholeSeconds: deadlines are whole seconds, and a key lives until the second after its
	// deadline begins: EXPIRE k 1 lives 1.0 to 2.0 s.
	wholeSeconds = before("2.6")

	// writeDeletesVolatile: any write to a key that has a TTL first deletes the key. SETNX
	// therefore takes a held lock, and RENAMENX answers "no such key" if its source has a TTL.
	writeDeletesVolatile = before("2.2.5")

	// expireOnce: a second EXPIRE answers 0 and changes nothing.
	expireOnce = before("2.2.5")

	// expireZeroLives: EXPIRE k 0 does not delete at once: the key lives until the second ends.
	expireZeroLives = before("2.0")

	// looseIndex: SELECT of something that is not a number is SELECT 0.
	looseIndex = before("2.4")

	// missingRangeNil: a range of a missing list or sorted set is nil, not empty.
	missingRangeNil = before("2.0")

	// incrReplaces: INCR of a list or a set makes it the number 1.
	incrReplaces = before("2.0")

	// substrNil: an empty SUBSTR is nil.
	substrNil = before("2.2.5")

	// emptyStays: a list or sorted set that lost its last element still exists.
	emptyStays = before("2.0")

	// sortStoresEmpty: SORT stores an empty list too, in place of the old value; the key keeps its
	// TTL.
	sortStoresEmpty = before("2.4")

	// sortStoreKeeps: SORT with nothing to store leaves the old value.
	sortStoreKeeps = between("2.4", "2.6")

	// sortMissingStoresNothing: SORT of a missing key answers an empty array and stores nothing.
	sortMissingStoresNothing = before("2.4")

	// sortStoresSorted: SORT BY nosort still sorts what it stores.
	sortStoresSorted = between("2.6", "2.8")

	// sortNosortIgnoresDesc: SORT BY nosort DESC is not reversed.
	sortNosortIgnoresDesc = before("5.0")

	// sortLoose: SORT reads the leading digits of an element that is not a number.
	sortLoose = before("2.6")

	// sortShortNames: SORT does not find keys longer than 1024 bytes, field included.
	sortShortNames = before("2.4")

	// sortNoHash: SORT does not read fields of hashes.
	sortNoHash = before("2.0")

	// multiNests: MULTI inside MULTI is queued like any command.
	multiNests = before("2.2.5")

	// quitSilently: QUIT closes without an OK.
	quitSilently = before("2.2.5")

	// setnxSeesUnreaped: SETNX is refused by a key that has expired but is still in memory, until a
	// read reaps it (2.2.0 to 2.2.9).
	setnxSeesUnreaped = between("2.2.5", "2.2")

	// renameSeesUnreaped: RENAMENX is refused by an unreaped destination. RENAME leaves the
	// destination's old deadline in place.
	renameSeesUnreaped = between("2.2.5", "2.4")

	// renameDropsTTL: RENAME and RENAMENX do not carry the source's TTL.
	renameDropsTTL = between("2.2.5", "2.4")

	// expireSeesUnreaped: EXPIRE brings an unreaped key back to life.
	expireSeesUnreaped = before("2.6.12")

	// persistSeesUnreaped: PERSIST brings an unreaped key back to life.
	persistSeesUnreaped = between("2.2.5", "5.0")

	// delSeesUnreaped: DEL counts an unreaped key.
	delSeesUnreaped = before("2.8")

	// persistSilently: PERSIST does not make a WATCH fail.
	persistSilently = between("2.2.5", "7.0")

	// ttlBlind: TTL and PTTL answer -1 for a missing key, and do not reap.
	ttlBlind = before("2.8")

	// discardKeepsDirty: a WATCH that was touched before a DISCARD still aborts the next EXEC.
	discardKeepsDirty = between("2.2.5", "2.4")

	// execRunsRest: a command that was refused while it was queued does not
	// abort EXEC (before 2.6.5).
	execRunsRest = before("2.6")

	// expiryUnseen: the expiry of a watched key does not abort EXEC (before 6.0.9).
	expiryUnseen = before("7.0")

	// execNeedsMemory: EXEC itself is refused when memory is full, and the
	// connection stays in MULTI.
	execNeedsMemory = between("2.0", "2.6")

	// oldMemoryRules: some reads (SDIFF, SINTER, SUNION, ZSCORE) are refused when memory is full.
	oldMemoryRules = before("2.6")

	// queueNeedsMemory: MULTI queues nothing when memory is full.
	queueNeedsMemory = since("5.0")

	// discardNeedsMemory: DISCARD too is refused when memory is full.
	discardNeedsMemory = between("5.0", "7.0")

	// execChecksMemory: when memory is full, EXEC of a queue with a growing write is refused and
	// drops the transaction.
	execChecksMemory = since("7.0")

	// moveDropsTTL: MOVE does not carry the TTL.
	moveDropsTTL = before("2.8")

	// scriptErrorWrapped: an error of redis.call is reported as an error of the script.
	scriptErrorWrapped = between("2.6", "7.0")

	// evictsVolatile: a full server evicts keys that have a TTL by default.
	evictsVolatile = before("3.0")

	// infoFlat: INFO has no sections.
	infoFlat = before("2.6")

	// infoBrief: INFO does not report maxmemory and its policy.
	infoBrief = before("5.0")

	// sameKeyRefused: RENAME of a key to itself is an error.
	sameKeyRefused = before("5.0")

	// bothExpiries: SET accepts EX together with PX (the last one counts), and NX together with XX.
	bothExpiries = before("5.0")

	// plainSet: SET knows EX, PX, NX and XX only, and EXPIRE no options.
	plainSet = before("7.0")
)

// quirks is how one version of Redis differs from the others.
type quirks struct {
	redis   string        // the release whose behaviour was recorded; INFO reports it
	cron    time.Duration // between two runs of active expiry
	numbers numberStyle   // how arguments and values are read as integers
	texts   errorTexts

	at int // in versions
}

// has reports whether the version has a quirk.
func (m *quirks) has(q quirk) bool { return q.from <= m.at && m.at < q.to }

// A numberStyle is how a version reads an integer.
type numberStyle int

const (
	// numbersStrict takes the decimal form that Redis writes, only.
	numbersStrict numberStyle = iota
	// numbersC is C's strtoll: a plus sign is allowed, the empty string is 0, and the number ends
	// at a zero byte.
	numbersC
	// numbersSpaced allows white space before it.
	numbersSpaced
	// numbersLoose takes the digits at the beginning and ignores the rest.
	numbersLoose
)

// errorTexts are the error texts of a version.
type errorTexts struct {
	unknown   func(name string, args []string) string
	wrongType string
	// notInt answers an argument or a value that is not an integer.
	notInt string
	// badTTL answers SETEX with a TTL that is not positive; %s is the command.
	badTTL string
	// full answers a command that is refused because memory is full.
	full string
	// noDB answers a SELECT of a database that does not exist.
	noDB string
}

const (
	wrongTypeERR = "ERR Operation against a key holding the wrong kind of value"
	wrongTypeNow = "WRONGTYPE Operation against a key holding the wrong kind of value"
	notIntFirst  = "ERR value is not an integer"
	notIntNow    = "ERR value is not an integer or out of range"
	fullERR      = "ERR command not allowed when used memory > 'maxmemory'"
	fullOOM      = "OOM command not allowed when used memory > 'maxmemory'."
)

var (
	texts2_0 = errorTexts{unknownName, wrongTypeERR, notIntFirst, "ERR invalid expire time in SETEX", fullERR, "ERR invalid DB index"}
	texts2_2 = errorTexts{unknownName, wrongTypeERR, notIntNow, "ERR invalid expire time in SETEX", fullERR, "ERR invalid DB index"}
	texts2_6 = errorTexts{unknownName, wrongTypeERR, notIntNow, "ERR invalid expire time in SETEX", fullOOM, "ERR invalid DB index"}
	texts2_8 = errorTexts{unknownName, wrongTypeNow, notIntNow, "ERR invalid expire time in %s", fullOOM, "ERR invalid DB index"}
	texts5_0 = errorTexts{unknownBackquoted, wrongTypeNow, notIntNow, "ERR invalid expire time in %s", fullOOM, "ERR DB index is out of range"}
	texts7_0 = errorTexts{unknownQuoted, wrongTypeNow, notIntNow, "ERR invalid expire time in '%s' command", fullOOM, "ERR DB index is out of range"}
)

const tick = 100 * time.Millisecond

// versions are the names that New accepts, oldest first.
var versions = []string{"1.2", "2.0", "2.2.5", "2.2", "2.4", "2.6", "2.6.12", "2.8", "3.0", "5.0", "7.0"}

// quirksOf returns what is peculiar to each version.
var quirksOf = sync.OnceValue(func() map[string]*quirks {
	all := map[string]*quirks{
		"1.2":    {redis: "1.2.6", cron: time.Second, numbers: numbersLoose, texts: texts2_0},
		"2.0":    {redis: "2.0.5", cron: tick, numbers: numbersSpaced, texts: texts2_0},
		"2.2.5":  {redis: "2.2.5", cron: tick, numbers: numbersSpaced, texts: texts2_2},
		"2.2":    {redis: "2.2.15", cron: tick, numbers: numbersSpaced, texts: texts2_2},
		"2.4":    {redis: "2.4.18", cron: tick, numbers: numbersSpaced, texts: texts2_2},
		"2.6":    {redis: "2.6.11", cron: tick, numbers: numbersC, texts: texts2_6},
		"2.6.12": {redis: "2.6.12", cron: tick, numbers: numbersC, texts: texts2_6},
		"2.8":    {redis: "2.8.24", cron: tick, numbers: numbersC, texts: texts2_8},
		"3.0":    {redis: "3.0.7", cron: tick, numbers: numbersC, texts: texts2_8},
		"5.0":    {redis: "5.0.14", cron: tick, numbers: numbersStrict, texts: texts5_0},
		"7.0":    {redis: "7.0.15", cron: tick, numbers: numbersStrict, texts: texts7_0},
	}
	for i, v := range versions {
		all[v].at = i
	}
	return all
})

func unknownName(name string, _ []string) string {
	return "ERR unknown command '" + name + "'"
}

func unknownBackquoted(name string, args []string) string {
	return unknownWithArgs("`", "`, ", name, args)
}

func unknownQuoted(name string, args []string) string {
	return unknownWithArgs("'", "' ", name, args)
}

// unknownWithArgs also quotes the arguments, up to 128 bytes of them. The real texts end in a space
// too.
func unknownWithArgs(open, end, name string, args []string) string {
	const room = 128
	text := "ERR unknown command " + open + cut(name, room) + open + ", with args beginning with: "
	shown := 0
	for _, a := range args {
		if shown >= room {
			break
		}
		a = open + cut(a, room-shown) + end
		shown += len(a)
		text += a
	}
	return text
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
