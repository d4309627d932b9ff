package main

import (
	"maps"
	"sync"
	"time"
)

// reminded is the time before an unchanged fact is said again: cron sends a mail for each.
const reminded = 24 * time.Hour

// A reminder knows the facts said, and when. It stands in the cache's file; without a file, all is said each
// time.
type reminder struct {
	mu    sync.Mutex
	said  map[string]time.Time
	fresh bool // there is something that is not in the file
}

// knows reports whether a text was said, or the like, not long ago.
func (r *reminder) knows(text string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.said[text]
	return ok && !at.After(now) && now.Sub(at) < reminded
}

// due reports whether to print a text now, and remembers it as printed.
func (r *reminder) due(text string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.said, func(_ string, at time.Time) bool { return at.After(now) || now.Sub(at) >= reminded })
	if _, ok := r.said[text]; ok {
		return false
	}
	if r.said == nil {
		r.said = map[string]time.Time{}
	}
	r.said[text], r.fresh = now, true
	return true
}

// remind prints a fact about a server, which doctor shows too: once a day, or with -v.
func (a *app) remind(n node, text string) {
	if a.quiet {
		return
	}
	if due := a.remembered().due(n.name+": "+text, time.Now()); due || a.verbose {
		a.say("%s", text)
		a.keep()
	}
}
