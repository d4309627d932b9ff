package queue

import "time"

// A share is how this process and others take turns with a key: how long it goes on, when it pauses for
// those that can't say that they wait, and how often it looks while others have the key.
type share struct {
	turns int       // how often in a row the key stayed in this process
	more  int       // … beyond what it may otherwise, because nobody waits elsewhere
	began time.Time // the first of them

	took   time.Duration // the last turns
	had    time.Duration // how long this process has had the key, in turns, since the last pause
	unused int           // pauses in a row in which nobody else took the key

	elsewhere bool    // others have had the key since this process had it …
	passed    int     // … and were seen to take it so often …
	usual     float64 // … which is so often, on average, when its turn comes
	silent    int     // how often in a row others were seen to have taken the key without a wake-up here
}

// fairly is how many turns in a row a process takes that must not hand locks off.
const fairly = 32

// alone is how many times as many turns it takes while nobody is seen to wait elsewhere: not for ever,
// there may be clients that can't say that they wait.
const alone = 4

// Where a client can't say that it waits, a queue that has had its turns pauses, but not before it has
// had the key for so many of the shortest pauses: who waits elsewhere seldom looks more often than that.
// After some pauses that nobody has used, for a look may just miss one, it pauses half as often each
// time, up to so many times.
//
// Where clients do say that they wait, there may be others beside them that don't: foreign ones, or those
// without Options.Signal. So a process pauses there too, but more rarely: half as often up to that many
// times, until it sees that others take the key without having been woken.
const (
	worth    = 4
	missed   = 4
	halvings = 4
	rarely   = 5
)

// A pause between two looks may be so many times as long as it would be if all looked equally often.
const shortest, longest = 0.5, 4

// sure is how often in a row others must have been seen to take the key, without a wake-up here, for them
// to be clients that don't signal.
const sure = 4

// Look is the part of the time for which a key has stood unchanged after which one who waits looks
// again, and for which a process pauses after turns that took so long: most pauses are seen then.
const Look = 8

// newShare is one of a key for which nobody has waited yet. signals: this process wakes others, and is
// woken.
func newShare(signals bool) share {
	s := share{unused: missed}
	if signals {
		s.unused += 2 // nobody need be there who can't be woken
	}
	return s
}

// ours notes that this process has had the key since then, woken or not.
func (s *share) ours(since time.Time, woken bool) {
	if s.elsewhere {
		s.usual += (float64(s.passed) - s.usual) / 8
		s.elsewhere, s.passed = false, 0
	}
	if s.turns == 0 {
		s.began = since
	}
	if woken {
		s.silent = 0
	}
}

// others notes that others have the key. changed: they took it since the last look. woken: though this
// process was woken for it. pace is by how much longer the next pause between two looks may be: a process
// that has been passed over more often than usual looks more often than the others, and one that has just
// had its turns looks less. If all looked equally often, chance alone would say who comes next, and pass
// over one of them for long.
func (s *share) others(changed, woken, signals bool) (pace float64) {
	s.rest()
	s.elsewhere = true
	if changed {
		s.passed++
		s.silent++
	}
	if woken {
		s.silent = max(s.silent, sure) // one that was not woken came first
	}
	if !signals || s.silent >= sure {
		s.unused, s.had = 0, 0
	}
	pace = (s.usual/2 + 1) / float64(max(s.passed, 1))
	return min(max(pace*pace, shortest), longest)
}

// spent reports whether the process has had its turns: most of them in a row, or as many as half of ttl
// had room for.
func (s *share) spent(most int, ttl time.Duration, now time.Time) bool {
	return s.turns >= most+s.more || s.turns > 0 && now.Sub(s.began) >= ttl/2
}

// over ends its turns, the last of which was over now.
func (s *share) over(now time.Time) {
	s.rest()
	s.took = now.Sub(s.began)
	s.had += s.took
}

// rest has it begin anew.
func (s *share) rest() { s.turns, s.more = 0, 0 }

// pauses reports whether a pause is due, and notes it. least is how long the process is to have had the
// key since the last one.
func (s *share) pauses(least time.Duration, signals bool) bool {
	most := halvings
	if signals {
		most = rarely
	}
	gap := max(s.took, least)
	if s.had < gap<<min(max(s.unused-missed, 0), most) {
		return false
	}
	s.had = 0
	s.unused++
	return true
}

// pause is for how long others are to have a chance: least, or longer after long turns.
func (s *share) pause(least time.Duration) time.Duration { return max(least, s.took/Look) }
