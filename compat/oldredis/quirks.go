package oldredis

import (
	"slices"
	"sync"
	"time"
)

// A quirk is a behaviour that some servers have: those from one position in all up to another. commandTable
// says which commands a version has, and with how many arguments.
type quirk struct{ from, to int }

func between(from, to string) quirk {
	return quirk{slices.Index(all, from), slices.Index(all, to)}
}
func before(version string) quirk { return between(versions[0], version) }
func since(version string) quirk  { return quirk{slices.Index(all, version), len(all)} }

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
	queueNeedsMemory = between("5.0", "8.2")

	// discardNeedsMemory: DISCARD too is refused when memory is full.
	discardNeedsMemory = between("5.0", "7.0")

	// execChecksMemory: when memory is full, EXEC of a queue with a growing write is refused and
	// drops the transaction.
	execChecksMemory = since("7.0")

	// execRejected: an EXEC that may not run, or has arguments, drops the transaction.
	execRejected = since("7.0")

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

	// setCompares: SET takes IFEQ, and sets the key only if it holds that value.
	setCompares = since("8.6")

	// setComparesMore: SET takes IFNE too, and NX or XX behind either.
	setComparesMore = between("8.6", "valkey-8.1")

	// cronReapsEarly: active expiry reaps a key at its deadline, when commands still find it alive.
	cronReapsEarly = between("8.2", "valkey-8.1")

	// multiRefuses: MULTI and WATCH inside MULTI abort its EXEC, like a command that can't be queued.
	multiRefuses = since("valkey-8.1")

	// plainSet: SET knows EX, PX, NX and XX only, and EXPIRE no options.
	plainSet = before("7.0")
)

// quirks is how one version of Redis differs from the others.
type quirks struct {
	redis   string        // the release whose behaviour was recorded; INFO reports it
	valkey  string        // Valkey's own release, which then was recorded; INFO reports it too
	cron    time.Duration // between two runs of active expiry
	numbers numberStyle   // how arguments and values are read as integers
	texts   errorTexts

	at int // in all
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
	// nested answers MULTI inside MULTI, and WATCH there; %s is the command.
	nested string
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
	texts2_0 = errorTexts{unknownName, wrongTypeERR, notIntFirst, "ERR invalid expire time in SETEX", fullERR, "ERR invalid DB index", ""}
	texts2_2 = errorTexts{unknownName, wrongTypeERR, notIntNow, "ERR invalid expire time in SETEX", fullERR, "ERR invalid DB index", ""}
	texts2_6 = errorTexts{unknownName, wrongTypeERR, notIntNow, "ERR invalid expire time in SETEX", fullOOM, "ERR invalid DB index", ""}
	texts2_8 = errorTexts{unknownName, wrongTypeNow, notIntNow, "ERR invalid expire time in %s", fullOOM, "ERR invalid DB index", ""}
	texts5_0 = errorTexts{unknownBackquoted, wrongTypeNow, notIntNow, "ERR invalid expire time in %s", fullOOM, "ERR DB index is out of range", ""}
	texts7_0 = errorTexts{unknownQuoted, wrongTypeNow, notIntNow, "ERR invalid expire time in '%s' command", fullOOM, "ERR DB index is out of range", ""}

	textsRedis8 = errorTexts{unknownAlone, wrongTypeNow, notIntNow, "ERR invalid expire time in '%s' command", fullOOM, "ERR DB index is out of range", ""}
	textsValkey = errorTexts{unknownQuoted, wrongTypeNow, notIntNow, "ERR invalid expire time in '%s' command", fullOOM, "ERR DB index is out of range",
		"ERR Command '%s' not allowed inside a transaction"}
)

const tick = 100 * time.Millisecond

// versions are the names that New accepts, oldest first.
var versions = []string{"1.2", "2.0", "2.2.5", "2.2", "2.4", "2.6", "2.6.12", "2.8", "3.0", "5.0", "7.0"}

// all are versions, and the servers of today.
var all = slices.Concat(versions, today)

// quirksOf returns what is peculiar to each version.
var quirksOf = sync.OnceValue(func() map[string]*quirks {
	known := map[string]*quirks{
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

		"8.2":        {redis: "8.2.3", cron: tick, numbers: numbersStrict, texts: texts7_0},
		"8.6":        {redis: "8.6.2", cron: tick, numbers: numbersStrict, texts: textsRedis8},
		"valkey-8.1": {redis: "7.2.4", valkey: "8.1.8", cron: tick, numbers: numbersStrict, texts: textsValkey},
		"valkey-9.1": {redis: "7.2.4", valkey: "9.1.2", cron: tick, numbers: numbersStrict, texts: textsValkey},
	}
	for i, v := range all {
		known[v].at = i
	}
	return known
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

// unknownAlone names no arguments where there are none.
func unknownAlone(name string, args []string) string {
	if len(args) == 0 {
		return unknownName(cut(name, 128), nil)
	}
	return unknownQuoted(name, args)
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
