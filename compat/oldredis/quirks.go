package oldredis

import (
	"sync"
	"time"
)

// quirks says how one version of Redis differs from the newest one. The zero value is the newest
// version, so each entry lists only differences. commandTable says which commands a version has,
// and with how many arguments.
type quirks struct {
	// redis is the release whose behaviour was recorded; INFO reports it.
	redis string

	// cron is the time between two runs of active expiry.
	cron time.Duration

	// wholeSeconds: deadlines are whole seconds, and a key lives until the second after its
	// deadline begins: EXPIRE k 1 lives 1.0 to 2.0 s.
	wholeSeconds bool

	// writeDeletesVolatile: any write to a key that has a TTL first deletes the key. SETNX
	// therefore takes a held lock, and RENAMENX answers "no such key" if its source has a TTL.
	writeDeletesVolatile bool

	// expireOnce: a second EXPIRE answers 0 and changes nothing.
	expireOnce bool

	// expireZeroLives: EXPIRE k 0 does not delete at once: the key lives until the second ends.
	expireZeroLives bool

	// numbers is how arguments and values are read as integers.
	numbers numberStyle

	// looseIndex: SELECT of something that is not a number is SELECT 0.
	looseIndex bool

	// missingRangeNil: a range of a missing list or sorted set is nil, not empty.
	missingRangeNil bool

	// incrReplaces: INCR of a list or a set makes it the number 1.
	incrReplaces bool

	// substrNil: an empty SUBSTR is nil.
	substrNil bool

	// emptyStays: a list or sorted set that lost its last element still exists.
	emptyStays bool

	// sortStoresEmpty: SORT stores an empty list too, in place of the old value; the key keeps its
	// TTL.
	sortStoresEmpty bool

	// sortStoreKeeps: SORT with nothing to store leaves the old value.
	sortStoreKeeps bool

	// sortMissingStoresNothing: SORT of a missing key answers an empty array and stores nothing.
	sortMissingStoresNothing bool

	// sortStoresSorted: SORT BY nosort still sorts what it stores.
	sortStoresSorted bool

	// sortNosortIgnoresDesc: SORT BY nosort DESC is not reversed.
	sortNosortIgnoresDesc bool

	// sortLoose: SORT reads the leading digits of an element that is not a number.
	sortLoose bool

	// sortShortNames: SORT does not find keys longer than 1024 bytes, field included.
	sortShortNames bool

	// sortNoHash: SORT does not read fields of hashes.
	sortNoHash bool

	// multiNests: MULTI inside MULTI is queued like any command.
	multiNests bool

	// quitSilently: QUIT closes without an OK.
	quitSilently bool

	// setnxSeesUnreaped: SETNX is refused by a key that has expired but is still in memory, until a
	// read reaps it (2.2.0 to 2.2.9).
	setnxSeesUnreaped bool

	// renameSeesUnreaped: RENAMENX is refused by an unreaped destination. RENAME leaves the
	// destination's old deadline in place.
	renameSeesUnreaped bool

	// renameDropsTTL: RENAME and RENAMENX do not carry the source's TTL.
	renameDropsTTL bool

	// expireSeesUnreaped: EXPIRE brings an unreaped key back to life.
	expireSeesUnreaped bool

	// persistSeesUnreaped: PERSIST brings an unreaped key back to life.
	persistSeesUnreaped bool

	// delSeesUnreaped: DEL counts an unreaped key.
	delSeesUnreaped bool

	// persistSilently: PERSIST does not make a WATCH fail.
	persistSilently bool

	// ttlBlind: TTL and PTTL answer -1 for a missing key, and do not reap.
	ttlBlind bool

	// discardKeepsDirty: a WATCH that was touched before a DISCARD still aborts the next EXEC.
	discardKeepsDirty bool

	// execRunsRest: a command that was refused while it was queued does not
	// abort EXEC (before 2.6.5).
	execRunsRest bool

	// expiryUnseen: the expiry of a watched key does not abort EXEC (before 6.0.9).
	expiryUnseen bool

	// execNeedsMemory: EXEC itself is refused when memory is full, and the
	// connection stays in MULTI.
	execNeedsMemory bool

	// oldMemoryRules: some reads (SDIFF, SINTER, SUNION, ZSCORE) are refused when memory is full.
	oldMemoryRules bool

	// queueNeedsMemory: MULTI queues nothing when memory is full.
	queueNeedsMemory bool

	// discardNeedsMemory: DISCARD too is refused when memory is full.
	discardNeedsMemory bool

	// execChecksMemory: when memory is full, EXEC of a queue with a growing write is refused and
	// drops the transaction.
	execChecksMemory bool

	// moveDropsTTL: MOVE does not carry the TTL.
	moveDropsTTL bool

	// scriptErrorWrapped: an error of redis.call is reported as an error of the script.
	scriptErrorWrapped bool

	// evictsVolatile: a full server evicts keys that have a TTL by default.
	evictsVolatile bool

	// infoFlat: INFO has no sections.
	infoFlat bool

	// infoBrief: INFO does not report maxmemory and its policy.
	infoBrief bool

	// sameKeyRefused: RENAME of a key to itself is an error.
	sameKeyRefused bool

	// bothExpiries: SET accepts EX together with PX (the last one counts), and NX together with XX.
	bothExpiries bool

	// plainSet: SET knows EX, PX, NX and XX only, and EXPIRE no options.
	plainSet bool

	texts errorTexts
}

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

// quirksOf lists the quirks of each version. The tests check it against recordings of the releases
// named here.
var quirksOf = sync.OnceValue(func() map[string]*quirks {
	return map[string]*quirks{
		"1.2": {
			redis: "1.2.6", texts: texts2_0, cron: time.Second,

			wholeSeconds: true, expireOnce: true, expireZeroLives: true, writeDeletesVolatile: true,
			expireSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true, moveDropsTTL: true,
			multiNests: true, execRunsRest: true, expiryUnseen: true,
			numbers: numbersLoose, looseIndex: true, incrReplaces: true, emptyStays: true,
			missingRangeNil: true, substrNil: true, sameKeyRefused: true,
			plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
			quitSilently: true, infoFlat: true, infoBrief: true,
			sortStoresEmpty: true, sortMissingStoresNothing: true, sortShortNames: true, sortLoose: true, sortNosortIgnoresDesc: true, sortNoHash: true,
		},
		"2.0": {
			redis: "2.0.5", texts: texts2_0, cron: tick,

			wholeSeconds: true, expireOnce: true, writeDeletesVolatile: true,
			expireSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true, moveDropsTTL: true,
			multiNests: true, execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
			numbers: numbersSpaced, looseIndex: true, substrNil: true, sameKeyRefused: true,
			plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
			quitSilently: true, infoFlat: true, infoBrief: true,
			sortStoresEmpty: true, sortMissingStoresNothing: true, sortShortNames: true, sortLoose: true, sortNosortIgnoresDesc: true,
		},
		"2.2.5": {
			redis: "2.2.5", texts: texts2_2, cron: tick,

			wholeSeconds: true, setnxSeesUnreaped: true, renameSeesUnreaped: true, renameDropsTTL: true,
			expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
			moveDropsTTL: true, persistSilently: true, discardKeepsDirty: true,
			execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
			numbers: numbersSpaced, looseIndex: true, sameKeyRefused: true,
			plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
			infoFlat: true, infoBrief: true,
			sortStoresEmpty: true, sortMissingStoresNothing: true, sortShortNames: true, sortLoose: true, sortNosortIgnoresDesc: true,
		},
		"2.2": {
			redis: "2.2.15", texts: texts2_2, cron: tick,

			wholeSeconds: true, renameSeesUnreaped: true, renameDropsTTL: true,
			expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
			moveDropsTTL: true, persistSilently: true, discardKeepsDirty: true,
			execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
			numbers: numbersSpaced, looseIndex: true, sameKeyRefused: true,
			plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
			infoFlat: true, infoBrief: true,
			sortStoresEmpty: true, sortMissingStoresNothing: true, sortShortNames: true, sortLoose: true, sortNosortIgnoresDesc: true,
		},
		"2.4": {
			redis: "2.4.18", texts: texts2_2, cron: tick,

			wholeSeconds:       true,
			expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
			moveDropsTTL: true, persistSilently: true,
			execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
			numbers: numbersSpaced, sameKeyRefused: true,
			plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
			infoFlat: true, infoBrief: true,
			sortStoreKeeps: true, sortLoose: true, sortNosortIgnoresDesc: true,
		},
		"2.6": {
			redis: "2.6.11", texts: texts2_6, cron: tick,

			expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
			moveDropsTTL: true, persistSilently: true, expiryUnseen: true,
			numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
			plainSet: true, bothExpiries: true, evictsVolatile: true, infoBrief: true,
			sortStoresSorted: true, sortNosortIgnoresDesc: true,
		},
		"2.6.12": {
			redis: "2.6.12", texts: texts2_6, cron: tick,

			persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
			moveDropsTTL: true, persistSilently: true, expiryUnseen: true,
			numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
			plainSet: true, bothExpiries: true, evictsVolatile: true, infoBrief: true,
			sortStoresSorted: true, sortNosortIgnoresDesc: true,
		},
		"2.8": {
			redis: "2.8.24", texts: texts2_8, cron: tick,

			persistSeesUnreaped: true, persistSilently: true, expiryUnseen: true,
			numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
			plainSet: true, bothExpiries: true, evictsVolatile: true, infoBrief: true,
			sortNosortIgnoresDesc: true,
		},
		"3.0": {
			redis: "3.0.7", texts: texts2_8, cron: tick,

			persistSeesUnreaped: true, persistSilently: true, expiryUnseen: true,
			numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
			plainSet: true, bothExpiries: true, infoBrief: true,
			sortNosortIgnoresDesc: true,
		},
		"5.0": {
			redis: "5.0.14", texts: texts5_0, cron: tick,

			persistSilently: true, expiryUnseen: true, scriptErrorWrapped: true, plainSet: true,
			queueNeedsMemory: true, discardNeedsMemory: true,
		},
		"7.0": {
			redis: "7.0.15", texts: texts7_0, cron: tick,

			queueNeedsMemory: true, execChecksMemory: true,
		},
	}
})

// versions are the names that New accepts, oldest first.
var versions = []string{"1.2", "2.0", "2.2.5", "2.2", "2.4", "2.6", "2.6.12", "2.8", "3.0", "5.0", "7.0"}

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
