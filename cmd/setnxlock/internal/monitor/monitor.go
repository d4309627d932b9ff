// Package monitor makes a trace of what Redis's MONITOR prints: who asked for a lock when, what was on the key,
// and where two clients held it at once.
//
//	log, err := monitor.Read(text, monitor.Options{})
//	view.Timeline(log.Trace, view.TimelineOptions{})
//
// # What it rests on
//
// MONITOR prints commands and no replies. The commands run again, at their times, on an embedded
// Redis, on a key that is free at first: its answers stand for the replies. For a script, its
// commands run, which MONITOR prints; for a transaction, the commands that EXEC ran: none, if its
// WATCH failed. What a client believes is not in the log either. It counts as a holder from the
// command that took the lock until it removes the lock or its lease ends by the server's clock; a
// lease ends with the TTL that the client has set or the time that it has written. In a hash
// (Redisson's locks) the field is the holder's name, whichever connection it writes it over.
package monitor

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// Options choose the key and the server for Read. Their zero values are defaults.
type Options struct {
	Key    string // default: the one that is asked for most often as a lock is
	Server string // a version of oldredis, 2.6 or later: those before name no clients; default "8.6"
}

// A Log holds the results.
type Log struct {
	Trace   race.Trace `json:"trace"` // without a schedule: it was not found by the explorer
	Keys    []string   `json:"keys"`  // all that are asked for as locks are, the most often asked for first
	Follows []Follows  `json:"follows"`

	Skipped  Skipped   `json:"skipped"`
	Held     []Held    `json:"held"`     // who held the lock when, by the beginning
	Both     []Both    `json:"both"`     // where two held it
	Removed  []Removed `json:"removed"`  // who removed whose
	Unjudged string    `json:"unjudged"` // from where on nothing is judged, and why; "": all of it is
	Says     []string  `json:"says"`     // all of this in sentences
	Way      *Way      `json:"way"`      // into the explorer; null: no lock is known that does the same
}

// Follows names the locks that a client may follow, judged by its commands.
type Follows struct {
	Client  string   `json:"client"`  // its name in the trace
	Address string   `json:"address"` // its name in the log, or several
	Does    []string `json:"does"`    // "takes it with SETNX", …
	Like    []string `json:"like"`    // the locks that do all of it; none known: empty
}

// Sample is a log to begin with: a late DEL removes another's lock, and a third client takes it too.
//
//go:embed sample.log
var Sample string

// most is how many steps are shown: more are no picture.
const most = 300

// Read reads a log.
func Read(text string, o Options) (Log, error) {
	lines, skipped, err := parse(strings.TrimPrefix(text, "\ufeff")) // as an editor saves it
	if err != nil {
		return Log{}, err
	}
	keys := lockKeys(lines)
	key := cmp.Or(o.Key, append(keys, "")[0])
	if key == "" {
		return Log{}, errors.New("the log has no key that is taken as a lock is, by SETNX, SET NX, GETSET, RENAMENX or a script")
	}
	r, err := newRun(key, cmp.Or(o.Server, "8.6"), lines[0].at)
	if err != nil {
		return Log{}, err
	}
	defer r.server.Close()
	if err := r.runAll(lines); err != nil {
		return Log{}, err
	}
	if len(r.trace.Events) == 0 {
		return Log{}, fmt.Errorf("nothing in the log concerns the key %q", key)
	}
	log := Log{Trace: r.finish(), Keys: keys, Follows: r.follows(), Skipped: skipped, Unjudged: r.unjudged}
	log.Way = r.way(log.Trace, log.Follows)
	log.tell()
	return log, nil
}

// lockKeys returns the keys asked for as locks are, the most often asked for first.
func lockKeys(lines []line) []string {
	times := map[string]int{}
	for _, l := range lines {
		if key, ok := asks(l.args); ok {
			times[key]++
		}
	}
	return slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b)) })
}

// asks returns the key that a command takes if it is free.
func asks(args []string) (key string, ok bool) {
	switch name := strings.ToUpper(args[0]); {
	case len(args) == 3 && (name == "SETNX" || name == "GETSET"):
		return args[1], true
	case len(args) == 3 && name == "RENAMENX":
		return args[2], true
	case len(args) > 3 && name == "SET" && slices.ContainsFunc(args[3:], func(a string) bool { return strings.EqualFold(a, "NX") }):
		return args[1], true
	case len(args) > 3 && (name == "HSETNX" || name == "HINCRBY"):
		return args[1], true
	case len(args) > 3 && scripted(name) && args[2] != "0":
		return args[3], true
	}
	return "", false
}

// scripted reports a command for a script, whose own commands MONITOR prints behind it.
func scripted(name string) bool {
	return slices.Contains([]string{"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"}, name)
}

// since converts a time to milliseconds of the trace.
func (r *run) since(t time.Time) int64 { return t.Sub(r.began).Milliseconds() }
