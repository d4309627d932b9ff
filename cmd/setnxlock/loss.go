package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
)

// outages report each failing time of renewals: its beginning, with the end of the lease, and its end.
type outages struct {
	say func(format string, args ...any)

	mu    sync.Mutex
	since map[string]time.Time // by key
}

func (o *outages) observe(e compat.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since, out := o.since[e.Key]
	switch {
	case e.Kind == compat.EventFailed && !out:
		if o.since == nil {
			o.since = map[string]time.Time{}
		}
		o.since[e.Key] = time.Now()
		o.say("can't renew %s since %s (%s); lost at %s unless it can",
			named(e.Key), clockOf(time.Now()), seenOf(e.Err), clockOf(e.Lease.Until))
	case e.Kind == compat.EventExtended && out:
		delete(o.since, e.Key)
		o.say("%s is renewed again, after %s", named(e.Key), tenths(time.Since(since)))
	}
}

// named quotes a key for people: of several that are locked as one, each.
func named(key string) string { return listed(split(key), strconv.Quote) }

// listed joins words, each as a function has it.
func listed(words []string, as func(string) string) string {
	words = slices.Clone(words)
	for i, w := range words {
		words[i] = as(w)
	}
	return strings.Join(words, ", ")
}

// whyLost explains the loss of a lock on the servers of that name.
func whyLost(host string, err error) string {
	var lost *compat.LostError
	switch {
	case !errors.As(err, &lost):
		return "its time has run out"
	case lost.Value != "":
		return "now held by " + holderOf(verdict.FromState(compat.State{Value: lost.Value}))
	case lost.Gone:
		return "deleted"
	case lost.Err == compat.ErrLost:
		return "it does not hold our value any more"
	case lost.Confirmed.IsZero(), lost.Err == nil && !lost.Renewed:
		return "its time has run out"
	}
	since := tenths(time.Since(lost.Confirmed))
	var refused redis.Error
	if errors.As(lost.Err, &refused) {
		return host + " has refused to renew it for " + since + " (" + seenOf(refused) + ")"
	}
	if lost.Err == nil { // the renewal is still under way
		return "no answer from " + host + " for " + since
	}
	return "no answer from " + host + " for " + since + inBrackets(seenOf(lost.Err))
}

// inBrackets adds in brackets more than "no answer" of a server.
func inBrackets(seen string) string {
	if seen == "" || strings.HasPrefix(seen, "no answer") {
		return ""
	}
	return " (" + seen + ")"
}

// seenOf describes a broken connection or a refusal, without the words of the libraries around it.
func seenOf(err error) string {
	var refused redis.Error
	c := causeOf(err)
	switch {
	case errors.As(err, &refused):
		return string(refused)
	case c != nil && c.hint != "":
		return c.words
	case errors.Is(err, compat.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	}
	return sentence(err)
}

func tenths(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
