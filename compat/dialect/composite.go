package dialect

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The clients whose locks are no strings, which [RecogniseHash] and [RecogniseSet] find. They are no
// Formats: see Lookup.
const (
	Redisson      = "Redisson"
	SidekiqUnique = "sidekiq-unique-jobs-7"
	RubySemaphore = "redis-semaphore-0.3"
	Symfony       = "symfony-lock-5.2"
	NodeSemaphore = "npm-redis-semaphore-5"
	BookSemaphore = "redis-in-action-6.3"
)

// RecogniseHash does as [Recognise] for a hash. It knows a lock of Redisson's, which has a field UUID:THREAD for each
// holder with a count, of sidekiq-unique-jobs since 7 (a job and the time at which it took the lock, on DIGEST:LOCKED),
// or of the gem redis-semaphore (a token and that time, on SEMAPHORE:NAME:GRABBED). Other hashes are not locks.
func RecogniseHash(key string, fields map[string]string, ttl time.Duration, now time.Time) []Finding {
	of := Finding{Kind: Hash, Clock: "server", Status: Alive}
	var fits func(field, value string) (holder, ok bool)
	switch {
	case strings.HasSuffix(key, ":LOCKED"):
		of.What, fits = "a hash of jobs and times", jobAndTime
		of.Candidates = []Candidate{{SidekiqUnique, Likely, []string{"it has a field for each job on DIGEST:LOCKED"}}}
	case strings.HasSuffix(key, ":GRABBED"):
		of.What, fits = "a hash of tokens and times", tokenAndTime
		of.Candidates = []Candidate{{RubySemaphore, Likely, []string{"it has a field for each token that is taken on SEMAPHORE:NAME:GRABBED"}}}
	default:
		of.What, fits = "a hash of UUID:thread and a count", threadAndCount
		of.Candidates = []Candidate{{Redisson, Likely, []string{"its locks are hashes with a field UUID:THREAD for each holder"}}}
	}
	var owners []string
	for field, value := range fields {
		holder, ok := fits(field, value)
		if !ok {
			return nil
		}
		if holder {
			owners = append(owners, field)
		}
	}
	if owners == nil {
		return nil
	}
	slices.Sort(owners)
	of.Owner = strings.Join(owners, " ")
	if ttl < 0 && fits != nil && of.Candidates[0].Format != Redisson { // theirs have none by default
		of.Status = Persistent
		return []Finding{of}
	}
	return []Finding{of.ends(ttl, now)}
}

func threadAndCount(field, value string) (holder, ok bool) {
	if field == "mode" && (value == "read" || value == "write") { // its RReadWriteLock
		return false, true
	}
	id, thread, _ := strings.Cut(strings.TrimSuffix(field, ":write"), ":")
	n, err := strconv.Atoi(value)
	ok = isUUID(id) && digits(thread) && err == nil && n > 0
	return ok, ok
}

// jobAndTime reads the number of a job, and when it took the lock: seconds, or since version 9 an object.
func jobAndTime(field, value string) (holder, ok bool) {
	ok = len(field) == 24 && hexadecimal(field) && (isTime(value) || json.Valid([]byte(value)) && strings.HasPrefix(value, "{"))
	return ok, ok
}

func tokenAndTime(field, value string) (holder, ok bool) {
	n, err := strconv.ParseFloat(field, 64)
	ok = err == nil && n >= 0 && isTime(value)
	return ok, ok
}

// isTime reports whether value is a time in seconds of this century.
func isTime(value string) bool {
	at, err := strconv.ParseFloat(value, 64)
	return err == nil && at > 9e8 && at < beyond
}

// RecogniseSet does as [Recognise] for a sorted set. It knows a lock of Symfony's since 5.2, which has a member for
// each holder, with the end of its lease in milliseconds, and one called __write__ if it is the writer's; or a
// semaphore of redis-semaphore for Node, which has a UUID for each holder, with the time at which it came; or one of
// Redis in Action, which has the same in seconds, and no TTL.
func RecogniseSet(key string, members map[string]float64, ttl time.Duration, now time.Time) []Finding {
	var owners []string
	latest, unit, book := 0.0, 1000.0, strings.HasPrefix(key, semaphores) && ttl < 0
	if book {
		unit = 1
	}
	for member, ms := range members {
		if !SetMember(key, member) || ms < 9e8*unit || ms > beyond*unit {
			return nil
		}
		latest = max(latest, ms)
		if member != writer {
			owners = append(owners, member)
		}
	}
	if owners == nil {
		return nil
	}
	slices.Sort(owners)
	of := Finding{Kind: SortedSet, Owner: strings.Join(owners, " "), Clock: "server", Status: Alive}
	switch {
	case book:
		of.What, of.Clock = "a sorted set of tokens and times in seconds", "clients"
		of.Candidates = []Candidate{{BookSemaphore, Likely, []string{"its semaphores are sorted sets of UUIDs without a TTL, called semaphore:NAME"}}}
		return []Finding{of}
	case strings.HasPrefix(key, semaphores):
		of.What = "a sorted set of tokens and times"
		of.Candidates = []Candidate{{NodeSemaphore, Likely, []string{"its semaphores are sorted sets of UUIDs, called semaphore:NAME"}}}
		return []Finding{of.ends(ttl, now)}
	}
	of.What, of.Until = "a sorted set of tokens and their ends", time.UnixMilli(int64(latest))
	of.Candidates = []Candidate{{Symfony, Likely, []string{"its locks are sorted sets of 44 characters of base64 and the end of the lease"}}}
	if ttl < 0 {
		of.wrong("a lock of Symfony's without a TTL: another client has removed it")
	}
	return []Finding{of}
}

const (
	writer     = "__write__"  // the member that says that a holder of Symfony's is alone
	semaphores = "semaphore:" // begins the keys of redis-semaphore for Node, and of the book
)

// SetMember reports whether the clients of RecogniseSet write such a member into a sorted set on this key.
func SetMember(key, member string) bool {
	if strings.HasPrefix(key, semaphores) {
		id, n, several := strings.Cut(member, "_")
		return isUUID(id) && (!several || digits(n))
	}
	b, err := base64.StdEncoding.Strict().DecodeString(member)
	return member == writer || err == nil && len(b) == 32
}

// A part of a lock that another key stands for says nothing by itself: the tokens that are free, the
// version, what is known of a job.
var parts = []struct{ begins, ends string }{
	{"SEMAPHORE:", ":EXISTS"}, {"SEMAPHORE:", ":VERSION"}, {"SEMAPHORE:", ":AVAILABLE"},
	{semaphores, ":owner"}, {semaphores, ":counter"},
	{"uniquejobs:", ":QUEUED"}, {"uniquejobs:", ":PRIMED"}, {"uniquejobs:", ":INFO"},
}

// IsPart reports whether a key is only a part of a lock of the gems sidekiq-unique-jobs and
// redis-semaphore, or of a fair semaphore of Redis in Action, by its name.
func IsPart(key string) bool {
	return slices.ContainsFunc(parts, func(p struct{ begins, ends string }) bool {
		return strings.HasPrefix(key, p.begins) && strings.HasSuffix(key, p.ends)
	})
}
