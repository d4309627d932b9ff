package queue

import "time"

// turns are how this process and others share a key, by two rules:
//
// A lock goes on within a process until all who waited there when its first holder was done have had it, and for the shortest
// pause at least; then its release wakes the client elsewhere that has waited longest, which goes first, and this process waits
// behind it. Where nobody was woken, there may be some who can't be: then it leaves the key free for a moment, after each
// turn as long as one of them makes use of that, and else more and more seldom.
type turns struct {
	began   time.Time     // its turn; zero: it has none
	crowd   int           // who waited then
	served  int           // how many have had the lock since
	usually time.Duration // how long one takes
	had     time.Duration
	unused  int // moments in a row of which nobody made use
}

// seldom is how many times the length of a moment lie between two, at most, if nobody makes use of them and no client can
// be woken; rarely, if some can: hardly anyone need be there who can't.
const seldom, rarely = 20, 200

// missed is how many moments in a row nobody need make use of though somebody waits: those that look may just miss them.
const missed = 8

// begin begins a turn, unless one is under way.
func (t *turns) begin(at time.Time) {
	if t.began.IsZero() {
		t.began, t.crowd, t.served = at, -1, 0
	}
}

// spent reports whether the turn is over, now that a holder is done while so many wait. It never takes more than half a
// lease.
func (t *turns) spent(waiting int, least, ttl time.Duration, now time.Time) bool {
	if t.crowd < 0 {
		t.crowd = waiting
	}
	took := now.Sub(t.began)
	return t.began.IsZero() || took >= ttl/2 || t.served >= t.crowd && took >= least
}

// end ends it.
func (t *turns) end(now time.Time) {
	if !t.began.IsZero() {
		took := now.Sub(t.began)
		t.had += took
		t.usually += (took - t.usually) / 4
	}
	t.began = time.Time{}
}

// leaves reports whether the key is to be free for a moment now, and notes that it is: by the chance of a clock's last digits,
// or all that have taken turns for so long would leave theirs one after the other.
func (t *turns) leaves(moment time.Duration, most int, now time.Time) bool {
	if chance := float64(now.Nanosecond()/1000%1000) / 1000; float64(t.had) < (0.5+chance)*float64(min(2*moment<<min(max(t.unused-missed, 0), 8), time.Duration(most)*moment)) {
		return false
	}
	t.had = 0
	t.unused++
	return true
}

// used notes that somebody took the key whom nobody had woken.
func (t *turns) used() { t.unused /= 2 }

// looks are how often a process looks at a key that others have, of whose end nobody will tell it. However many such
// processes there are, a release is to be noticed after the shortest pause, on average: each of them takes so many looks
// until it has the key as there are such pauses in one turn of a holder. One that takes more looks less often in its next
// wait, and one that takes less looks more often.
type looks struct {
	usual   time.Duration // the pause between two
	learned bool          // from a wait before
	n       int           // in this wait
	stands  time.Duration // how long a holder has the key, on average; 0: not known
	changed time.Time     // when the key last changed hands; zero: not seen yet
}

// change notes that the key has changed hands.
func (l *looks) change(now time.Time) {
	if l.changed.IsZero() {
		if l.n = 0; !l.learned {
			l.usual = 0
		}
	} else {
		stood := now.Sub(l.changed)
		if l.stands == 0 {
			l.stands = stood
		}
		l.stands += (stood - l.stands) / 4
	}
	l.changed = now
}

// due is how many looks a wait is to take. turn is how long those of this process take, which tells more than what it has
// seen of others'; 0: it has had none.
func (l *looks) due(turn, least time.Duration) int {
	if turn == 0 {
		turn = l.stands
	}
	return max(int(turn/least), 1)
}

// next is the pause before the next look. While the key does not change hands it grows. A process that has waited for longer
// than usual looks more often: by chance alone one of them would be passed over for long. If that is of no use, there are
// more of them than it knew of. turn is how long those of this process take.
func (l *looks) next(now func() time.Time, turn, least, most time.Duration) time.Duration {
	l.n++
	l.usual = max(l.usual, least)
	if l.changed.IsZero() {
		return min(l.usual<<min(l.n-1, 10), most)
	}
	due := l.due(turn, least)
	if l.n > 32*due {
		l.usual = min(l.usual*5/4, most)
	}
	d := min(max(l.usual*time.Duration(2*due)/time.Duration(l.n), l.usual/8, least), 2*l.usual)
	return min(max(d, now().Sub(l.changed)/8), most)
}

// anew notes that another waits now: one who has little time must not inherit a pause that is longer.
func (l *looks) anew() {
	if l.changed.IsZero() {
		l.n = 0
	}
}

// over notes that the wait is over: the key was had.
func (l *looks) over(turn, least, most time.Duration) {
	if due := l.due(turn, least); l.n > 0 && l.stands > 0 {
		if l.n > due {
			l.usual += l.usual / 8 * time.Duration(min(l.n-due, 8*due)) / time.Duration(due)
		} else {
			l.usual -= l.usual / 8 * time.Duration(due-l.n+1) / time.Duration(due)
		}
		l.usual, l.learned = min(max(l.usual, least), most), true
	}
	l.n, l.changed = 0, time.Time{}
}
