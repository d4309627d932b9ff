package oldredis

import "time"

// manners is how one version of Redis differs from the newest one. The zero
// value is the newest, so that each version's entry lists what is old about it.
// Which commands a version has, and with how many arguments, is commandTable's.
type manners struct {
	// redis is the release whose behaviour was recorded; INFO reports it.
	redis string

	// cron is the time between two runs of active expiry.
	cron time.Duration

	// wholeSeconds: deadlines are whole seconds, and a key lives until the
	// second after its deadline has begun: EXPIRE k 1 lives 1.0 to 2.0 s.
	wholeSeconds bool

	// writeDeletesVolatile: any write looks its key up after deleting it if it
	// has a TTL. SETNX takes a held lock, and a volatile source of RENAMENX is
	// "no such key".
	writeDeletesVolatile bool

	// expireOnce: a second EXPIRE answers 0 and changes nothing.
	expireOnce bool

	// expireZeroLives: EXPIRE k 0 does not delete, it lets the second end.
	expireZeroLives bool

	// numbers is how arguments and values are read as integers.
	numbers numberStyle

	// looseIndex: SELECT of what is no number is SELECT 0.
	looseIndex bool

	// missingRangeNil: a range of a missing list or sorted set is nil and not
	// empty.
	missingRangeNil bool

	// incrReplaces: INCR of a list or a set makes it the number 1.
	incrReplaces bool

	// substrNil: an empty SUBSTR is nil.
	substrNil bool

	// emptyStays: a list or sorted set that lost its last element exists.
	emptyStays bool

	// sortStoresEmpty: SORT stores an empty list too, in place of what was there:
	// a TTL stays on the name.
	sortStoresEmpty bool

	// sortStoreKeeps: SORT with nothing to store leaves what was there.
	sortStoreKeeps bool

	// sortMissingStoresNot: SORT of a missing key answers an empty array, and
	// stores nothing.
	sortMissingStoresNot bool

	// sortStoresSorted: what SORT BY nosort stores is sorted nonetheless.
	sortStoresSorted bool

	// nosortIgnoresDesc: SORT BY nosort DESC is not reversed.
	nosortIgnoresDesc bool

	// sortLoose: SORT takes what is no number for the digits it begins with.
	sortLoose bool

	// sortShortNames: SORT sees no key of more than 1024 bytes, field included.
	sortShortNames bool

	// sortNoHash: SORT sees no fields of hashes.
	sortNoHash bool

	// multiNests: MULTI inside MULTI is queued like any command.
	multiNests bool

	// quitSilently: QUIT closes without an OK.
	quitSilently bool

	// setnxSeesUnreaped: SETNX finds a key that has expired but is not reaped
	// and is refused by it, until a read reaps the key (2.2.0 to 2.2.9).
	setnxSeesUnreaped bool

	// renameSeesUnreaped: so does RENAMENX by its destination. RENAME leaves
	// an old deadline of the destination in place.
	renameSeesUnreaped bool

	// renameDropsTTL: RENAME and RENAMENX do not carry the source's TTL.
	renameDropsTTL bool

	// expireSeesUnreaped: EXPIRE brings a key back to life that has expired
	// and is not reaped.
	expireSeesUnreaped bool

	// persistSeesUnreaped: so does PERSIST.
	persistSeesUnreaped bool

	// delSeesUnreaped: DEL counts such a key.
	delSeesUnreaped bool

	// persistSilently: PERSIST does not touch a WATCH.
	persistSilently bool

	// ttlBlind: TTL and PTTL answer -1 for a missing key, and neither reap.
	ttlBlind bool

	// discardKeepsDirty: after DISCARD a WATCH that was touched before it
	// still aborts the next EXEC.
	discardKeepsDirty bool

	// execRunsRest: a command that was refused while it was queued does not
	// abort EXEC (before 2.6.5).
	execRunsRest bool

	// expiryUnseen: that a watched key expired does not abort EXEC (before
	// 6.0.9).
	expiryUnseen bool

	// execNeedsMemory: EXEC itself is refused when memory is full, and the
	// connection stays in MULTI.
	execNeedsMemory bool

	// oldMemoryRules: sets may not be intersected when memory is full.
	oldMemoryRules bool

	// queueNeedsMemory: in MULTI nothing at all is queued when memory is full.
	queueNeedsMemory bool

	// discardNeedsMemory: DISCARD too is refused when memory is full.
	discardNeedsMemory bool

	// execChecksMemory: EXEC of a queue with a growing write is refused and
	// the transaction dropped when memory is full.
	execChecksMemory bool

	// moveDropsTTL: MOVE does not carry the TTL.
	moveDropsTTL bool

	// scriptErrorWrapped: the error of a redis.call comes as one of the script.
	scriptErrorWrapped bool

	// evictsVolatile: a full server evicts keys that have a TTL by default.
	evictsVolatile bool

	// infoFlat: INFO has no sections.
	infoFlat bool

	// infoBrief: INFO does not tell maxmemory and its policy.
	infoBrief bool

	// sameKeyRefused: RENAME of a key to itself is an error.
	sameKeyRefused bool

	// bothExpiries: SET takes EX and PX at once, the last one counts, and
	// NX together with XX.
	bothExpiries bool

	// plainSet: SET knows EX, PX, NX and XX only, and EXPIRE no options.
	plainSet bool

	words words
}

// A numberStyle is how a version reads an integer.
type numberStyle int

const (
	// numbersStrict takes the decimal form that Redis writes, only.
	numbersStrict numberStyle = iota
	// numbersC is C's strtoll: a plus sign counts, so does nothing at all as 0,
	// and the number ends at a zero byte.
	numbersC
	// numbersSpaced allows white space before it.
	numbersSpaced
	// numbersLoose takes the digits at the beginning and ignores the rest.
	numbersLoose
)

// words are the error texts of a version.
type words struct {
	unknown   func(name string, args []string) string
	wrongType string
	// notInt is of an argument or a value that is no integer.
	notInt string
	// badTTL is of SETEX with a TTL that is not positive; %s is the command.
	badTTL string
	// full is of a command refused because memory is full.
	full string
	// noDB is of SELECT.
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
	words2_0 = words{unknownName, wrongTypeERR, notIntFirst, "ERR invalid expire time in SETEX", fullERR, "ERR invalid DB index"}
	words2_2 = words{unknownName, wrongTypeERR, notIntNow, "ERR invalid expire time in SETEX", fullERR, "ERR invalid DB index"}
	words2_6 = words{unknownName, wrongTypeERR, notIntNow, "ERR invalid expire time in SETEX", fullOOM, "ERR invalid DB index"}
	words2_8 = words{unknownName, wrongTypeNow, notIntNow, "ERR invalid expire time in %s", fullOOM, "ERR invalid DB index"}
	words5_0 = words{unknownBackquoted, wrongTypeNow, notIntNow, "ERR invalid expire time in %s", fullOOM, "ERR DB index is out of range"}
	words7_0 = words{unknownQuoted, wrongTypeNow, notIntNow, "ERR invalid expire time in '%s' command", fullOOM, "ERR DB index is out of range"}
)

const tick = 100 * time.Millisecond

// mannersOf is the table behind facts/servers.md, checked against recordings
// of the releases named.
var mannersOf = map[string]*manners{
	"1.2": {
		redis: "1.2.6", words: words2_0, cron: time.Second,

		wholeSeconds: true, expireOnce: true, expireZeroLives: true, writeDeletesVolatile: true,
		expireSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true, moveDropsTTL: true,
		multiNests: true, execRunsRest: true, expiryUnseen: true,
		numbers: numbersLoose, looseIndex: true, incrReplaces: true, emptyStays: true,
		missingRangeNil: true, substrNil: true, sameKeyRefused: true,
		plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
		quitSilently: true, infoFlat: true, infoBrief: true,
		sortStoresEmpty: true, sortMissingStoresNot: true, sortShortNames: true, sortLoose: true, nosortIgnoresDesc: true, sortNoHash: true,
	},
	"2.0": {
		redis: "2.0.5", words: words2_0, cron: tick,

		wholeSeconds: true, expireOnce: true, writeDeletesVolatile: true,
		expireSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true, moveDropsTTL: true,
		multiNests: true, execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
		numbers: numbersSpaced, looseIndex: true, substrNil: true, sameKeyRefused: true,
		plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
		quitSilently: true, infoFlat: true, infoBrief: true,
		sortStoresEmpty: true, sortMissingStoresNot: true, sortShortNames: true, sortLoose: true, nosortIgnoresDesc: true,
	},
	"2.2.5": {
		redis: "2.2.5", words: words2_2, cron: tick,

		wholeSeconds: true, setnxSeesUnreaped: true, renameSeesUnreaped: true, renameDropsTTL: true,
		expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
		moveDropsTTL: true, persistSilently: true, discardKeepsDirty: true,
		execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
		numbers: numbersSpaced, looseIndex: true, sameKeyRefused: true,
		plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
		infoFlat: true, infoBrief: true,
		sortStoresEmpty: true, sortMissingStoresNot: true, sortShortNames: true, sortLoose: true, nosortIgnoresDesc: true,
	},
	"2.2": {
		redis: "2.2.15", words: words2_2, cron: tick,

		wholeSeconds: true, renameSeesUnreaped: true, renameDropsTTL: true,
		expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
		moveDropsTTL: true, persistSilently: true, discardKeepsDirty: true,
		execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
		numbers: numbersSpaced, looseIndex: true, sameKeyRefused: true,
		plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
		infoFlat: true, infoBrief: true,
		sortStoresEmpty: true, sortMissingStoresNot: true, sortShortNames: true, sortLoose: true, nosortIgnoresDesc: true,
	},
	"2.4": {
		redis: "2.4.18", words: words2_2, cron: tick,

		wholeSeconds:       true,
		expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
		moveDropsTTL: true, persistSilently: true,
		execRunsRest: true, execNeedsMemory: true, expiryUnseen: true,
		numbers: numbersSpaced, sameKeyRefused: true,
		plainSet: true, bothExpiries: true, oldMemoryRules: true, evictsVolatile: true,
		infoFlat: true, infoBrief: true,
		sortStoreKeeps: true, sortLoose: true, nosortIgnoresDesc: true,
	},
	"2.6": {
		redis: "2.6.11", words: words2_6, cron: tick,

		expireSeesUnreaped: true, persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
		moveDropsTTL: true, persistSilently: true, expiryUnseen: true,
		numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
		plainSet: true, bothExpiries: true, evictsVolatile: true, infoBrief: true,
		sortStoresSorted: true, nosortIgnoresDesc: true,
	},
	"2.6.12": {
		redis: "2.6.12", words: words2_6, cron: tick,

		persistSeesUnreaped: true, delSeesUnreaped: true, ttlBlind: true,
		moveDropsTTL: true, persistSilently: true, expiryUnseen: true,
		numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
		plainSet: true, bothExpiries: true, evictsVolatile: true, infoBrief: true,
		sortStoresSorted: true, nosortIgnoresDesc: true,
	},
	"2.8": {
		redis: "2.8.24", words: words2_8, cron: tick,

		persistSeesUnreaped: true, persistSilently: true, expiryUnseen: true,
		numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
		plainSet: true, bothExpiries: true, evictsVolatile: true, infoBrief: true,
		nosortIgnoresDesc: true,
	},
	"3.0": {
		redis: "3.0.7", words: words2_8, cron: tick,

		persistSeesUnreaped: true, persistSilently: true, expiryUnseen: true,
		numbers: numbersC, sameKeyRefused: true, scriptErrorWrapped: true,
		plainSet: true, bothExpiries: true, infoBrief: true,
		nosortIgnoresDesc: true,
	},
	"5.0": {
		redis: "5.0.14", words: words5_0, cron: tick,

		persistSilently: true, expiryUnseen: true, scriptErrorWrapped: true, plainSet: true,
		queueNeedsMemory: true, discardNeedsMemory: true,
	},
	"7.0": {
		redis: "7.0.15", words: words7_0, cron: tick,

		queueNeedsMemory: true, execChecksMemory: true,
	},
}

// versions are the names that New takes, oldest first.
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

// unknownWithArgs names what followed the command, up to 128 bytes of it. The
// real texts end in a space too.
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
