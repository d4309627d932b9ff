package dialect_test

import (
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
)

// The hashes of the gems sidekiq-unique-jobs, as its scripts of 7 to 9 write them, and redis-semaphore 0.3.1.
func TestRecogniseHash(t *testing.T) {
	const job, digest = "94213c24e0f911f0a9d30242", "uniquejobs:9e9b5ce5d423d3ea470977004b50ff84"
	for _, c := range []struct {
		key    string
		fields map[string]string
		ttl    time.Duration
		client string // "" if it is no lock
		status dialect.Status
	}{
		{digest + ":LOCKED", map[string]string{job: "1795238718.9412"}, -1, dialect.SidekiqUnique, dialect.Persistent},
		{digest + ":LOCKED", map[string]string{job: `{"worker":"Mail","timestamp":1795238718.94}`}, time.Minute, dialect.SidekiqUnique, dialect.Alive},
		{"SEMAPHORE:disk:GRABBED", map[string]string{"0": "1795238718.94", "0.735": "1795238700.1"}, -1, dialect.RubySemaphore, dialect.Persistent},
		{digest, map[string]string{job: "1795238718.9412"}, -1, "", ""},
		{digest + ":LOCKED", map[string]string{"name": "1795238718.9412"}, -1, "", ""},
		{digest + ":LOCKED", map[string]string{job: "Ada"}, -1, "", ""},
		{digest + ":LOCKED", nil, -1, "", ""},
		{"SEMAPHORE:ex:GRABBED", map[string]string{"0": "1795821001.3906"}, -1, dialect.RubySemaphore, dialect.Persistent}, // of Redis-Semaphore 0.2.2 for Python
		{"SEMAPHORE:disk:GRABBED", map[string]string{"0": "yes"}, -1, "", ""},
		{"room:GRABBED", map[string]string{"Ada": "1795238718.94"}, -1, "", ""},
	} {
		found := dialect.RecogniseHash(c.key, c.fields, c.ttl, moment)
		switch {
		case c.client == "" && found == nil:
		case len(found) != 1 || found[0].Formats()[0] != c.client || found[0].Status != c.status || found[0].Owner == "":
			t.Errorf("%s %v: %+v, want %s, %s", c.key, c.fields, found, c.client, c.status)
		}
	}
}

// The semaphores of redis-semaphore 5.6.2 for Node: one token a holder, and several.
func TestRecogniseSemaphore(t *testing.T) {
	const one, two = "11f0f76f-037c-4b50-939e-ecc80a7de5a6", "e2f39a24-a4e8-4905-b187-565a71cb7de1"
	for _, c := range []struct {
		key     string
		members map[string]float64
		owner   string
	}{
		{"semaphore:disk", map[string]float64{one: 1795820994984, two: 1795820994886}, one + " " + two},
		{"semaphore:cpu", map[string]float64{one + "_0": 1795820994996, one + "_1": 1795820994996}, one + "_0 " + one + "_1"},
		{"disk", map[string]float64{one: 1795820994984}, ""},
		{"semaphore:disk", map[string]float64{"ada": 1795820994984}, ""},
		{"semaphore:disk", map[string]float64{one: 7}, ""},
	} {
		found := dialect.RecogniseSet(c.key, c.members, time.Minute, moment)
		switch {
		case c.owner == "" && found == nil:
		case len(found) != 1 || found[0].Owner != c.owner || found[0].Formats()[0] != dialect.NodeSemaphore || !found[0].Until.Equal(moment.Add(time.Minute)):
			t.Errorf("%s %v: %+v, want %q", c.key, c.members, found, c.owner)
		}
	}
}

// The semaphores of Redis in Action: in seconds, and without a TTL.
func TestRecogniseBookSemaphore(t *testing.T) {
	const one, two = "11f0f76f-037c-4b50-939e-ecc80a7de5a6", "e2f39a24-a4e8-4905-b187-565a71cb7de1"
	for _, c := range []struct {
		members map[string]float64
		ttl     time.Duration
		owner   string
	}{
		{map[string]float64{one: 1795820994.984, two: 1795820994.886}, -1, one + " " + two},
		{map[string]float64{one: 1795820994.984}, time.Minute, ""},
		{map[string]float64{one: 1795820994984}, -1, ""},
		{map[string]float64{one: 1795820994.984, "ada": 1795820994.984}, -1, ""},
	} {
		found := dialect.RecogniseSet("semaphore:remote", c.members, c.ttl, moment)
		switch {
		case c.owner == "" && found == nil:
		case len(found) != 1 || found[0].Owner != c.owner || found[0].Formats()[0] != dialect.BookSemaphore || found[0].Clock != "clients":
			t.Errorf("%v: %+v, want %q", c.members, found, c.owner)
		}
	}
	if !dialect.IsPart("semaphore:remote:owner") || !dialect.IsPart("semaphore:remote:counter") || dialect.IsPart("semaphore:remote") {
		t.Error("the fair one's owners and counter are parts of it, and it is none")
	}
}

// The sorted sets of Symfony 5.4: a writer's, two readers', and what is none.
func TestRecogniseSet(t *testing.T) {
	end := float64(moment.Add(time.Minute).UnixMilli())
	const one, two = "a5W9QdeNA/31fGchbBwrforqpjXDD4GrCKVH1/5FiRA=", "a22kh4WI6Ds/+X830jj2jgKtkbP2z8PRHXybsu6rSJ0="
	for _, c := range []struct {
		members map[string]float64
		owner   string
	}{
		{map[string]float64{"__write__": end, one: end}, one},
		{map[string]float64{one: end, two: end - 3000}, two + " " + one},
		{map[string]float64{"__write__": end}, ""},
		{map[string]float64{one: 3}, ""},
		{map[string]float64{one: end, "ada": end}, ""},
		{map[string]float64{"ada": end}, ""},
		{nil, ""},
	} {
		found := dialect.RecogniseSet("report", c.members, time.Minute, moment)
		switch {
		case c.owner == "" && found == nil:
		case len(found) != 1 || found[0].Owner != c.owner || found[0].Formats()[0] != dialect.Symfony || !found[0].Until.Equal(moment.Add(time.Minute).Truncate(time.Millisecond)):
			t.Errorf("%v: %+v, want %q", c.members, found, c.owner)
		}
	}
	for _, name := range []string{dialect.Symfony, dialect.SidekiqUnique, dialect.RubySemaphore, dialect.NodeSemaphore, dialect.BookSemaphore} {
		if _, err := dialect.Lookup(name); !errors.Is(err, dialect.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
