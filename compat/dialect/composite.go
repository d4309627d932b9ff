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
)

// RecogniseHash is [Recognise] for a key that holds a hash: a lock of Redisson's, which has a field
// UUID:THREAD for each holder with a count, of sidekiq-unique-jobs since 7 (a job and the time at which it took the lock,
// on DIGEST:LOCKED), or of the gem redis-semaphore (a token and that time, on SEMAPHORE:NAME:GRABBED). Other hashes are not
// locks.
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

// RecogniseSet is [Recognise] for a key that holds a sorted set: a lock of Symfony's since 5.2, which has a member for
// each holder, with the end of its lease in milliseconds, and one called __write__ if it is the writer's.
func RecogniseSet(_ string, members map[string]float64, ttl time.Duration, now time.Time) []Finding {
	var owners []string
	latest := 0.0
	for member, end := range members {
		if end < 9e11 || end > beyond*1000 {
			return nil
		}
		latest = max(latest, end)
		if member == writer {
			continue
		}
		if !SymfonyMember(member) {
			return nil
		}
		owners = append(owners, member)
	}
	if owners == nil {
		return nil
	}
	slices.Sort(owners)
	of := Finding{
		Kind: SortedSet, What: "a sorted set of tokens and their ends", Owner: strings.Join(owners, " "), Clock: "server",
		Status: Alive, Until: time.UnixMilli(int64(latest)),
		Candidates: []Candidate{{Symfony, Likely, []string{"its locks are sorted sets of 44 characters of base64 and the end of the lease"}}},
	}
	if ttl < 0 {
		of.wrong("a lock of Symfony's without a TTL: another client has removed it")
	}
	return []Finding{of}
}

// writer is the member of a sorted set of Symfony's that says that its holder is alone.
const writer = "__write__"

// SymfonyMember reports whether a member of a sorted set is as Symfony writes them.
func SymfonyMember(member string) bool {
	if member == writer {
		return true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(member)
	return err == nil && len(b) == 32
}

// A part of a lock that another key stands for says nothing by itself: the tokens that are free, the
// version, what is known of a job.
var parts = []struct{ begins, ends string }{
	{"SEMAPHORE:", ":EXISTS"}, {"SEMAPHORE:", ":VERSION"}, {"SEMAPHORE:", ":AVAILABLE"},
	{"uniquejobs:", ":QUEUED"}, {"uniquejobs:", ":PRIMED"}, {"uniquejobs:", ":INFO"},
}

// IsPart reports whether a key is only a part of a lock of the gems sidekiq-unique-jobs and
// redis-semaphore, by its name.
func IsPart(key string) bool {
	return slices.ContainsFunc(parts, func(p struct{ begins, ends string }) bool {
		return strings.HasPrefix(key, p.begins) && strings.HasSuffix(key, p.ends)
	})
}
