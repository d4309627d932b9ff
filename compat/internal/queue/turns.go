package queue

import "time"

// turns share a key between processes by two rules:
//
// A turn lasts until all waiters have had the lock that waited when its first holder was done, and at least for
// the shortest pause. The release at the end of the turn wakes the client elsewhere that has waited longest,
// and the process waits behind that client.
//
// Some clients can't be woken. For them a process leaves the key free for a moment: after each turn as long as
// a client uses the moments, and otherwise more and more seldom.
type turns struct {
	began    time.Time     // when the turn began; zero: this process has no turn
	expected int           // the waiters when the first holder was done; -1: not counted yet
	served   int           // the holders since then
	usually  time.Duration // the usual length of a turn
	had      time.Duration // how long this process has had the key since the last moment
	unused   int           // moments in a row that no client has used
}

// seldom and rarely limit the time between two unused moments, in shortest pauses of holding the key: seldom
// where no client can be woken, rarely where clients can.
const seldom, rarely = 20, 200

// missed unused moments in a row prove nothing: a client that looks may just miss each of them.
const missed = 8

// begin begins a turn, unless a turn is under way.
func (t *turns) begin(at time.Time) {
	if t.began.IsZero() {
		t.began, t.expected, t.served = at, -1, 0
	}
}

// spent reports whether the turn is over when a holder is done at now, with so many waiters. A turn never takes
// more than half a lease.
func (t *turns) spent(waiting int, least, ttl time.Duration, now time.Time) bool {
	if t.expected < 0 {
		t.expected = waiting
	}
	took := now.Sub(t.began)
	return t.began.IsZero() || took >= ttl/2 || t.served >= t.expected && took >= least
}

// end ends the turn.
func (t *turns) end(now time.Time) {
	if !t.began.IsZero() {
		took := now.Sub(t.began)
		t.had += took
		t.usually += (took - t.usually) / 4
	}
	t.began = time.Time{}
}

// leaves reports whether the process must leave the key free for a moment now, and counts the moment. The
// clock's last digits add chance: without them, processes that began their turns together would leave the key
// free together.
func (t *turns) leaves(moment time.Duration, most int, now time.Time) bool {
	if chance := float64(now.Nanosecond()/1000%1000) / 1000; float64(t.had) < (0.5+chance)*float64(min(2*moment<<min(max(t.unused-missed, 0), 8), time.Duration(most)*moment)) {
		return false
	}
	t.had = 0
	t.unused++
	return true
}

// used notes that a client took the key without a wake-up.
func (t *turns) used() { t.unused /= 2 }

// looks set the pace of a process that can't be woken. However many such processes look at a key, they should
// notice a release after the shortest pause, on average. So each process aims at one look in a wait for each
// shortest pause in a holder's turn. A wait with more looks lengthens the pauses by a factor; a wait with fewer
// looks adds a constant to their rate. So the pauses of all processes become alike (Chiu and Jain, 1989). With
// factors both ways they would stay different.
type looks struct {
	usual   time.Duration // the usual pause between two looks
	learned bool          // usual comes from an earlier wait
	n       int           // the number of looks in this wait
	stands  time.Duration // how long a holder has the key, on average; 0: not known
	changed time.Time     // when the key last changed hands; zero: not seen yet
	at      int           // the number of the look that saw the change
}

// change notes that the key has changed hands.
func (l *looks) change(now time.Time, least time.Duration) {
	if l.changed.IsZero() {
		if l.n = 0; !l.learned {
			l.usual = 0
		}
	} else {
		stood := now.Sub(l.changed)
		if l.n-l.at == 1 { // each look sees another holder: turns are shorter than pauses, by an unknown factor
			stood = least
		}
		if l.stands == 0 {
			l.stands = stood
		}
		l.stands += (stood - l.stands) / 4
	}
	l.changed, l.at = now, l.n
}

// due returns the number of looks that a wait should take. turn is the length of this process's own turns, or 0
// if there was none. It is exact; the turns of other processes are only seen by looks.
func (l *looks) due(turn, least time.Duration) int {
	if turn == 0 {
		turn = l.stands
	}
	return max(int(turn/least), 1)
}

// next returns the pause before the next look. While the key does not change hands, the pauses double. Where
// holders take turns, a process that has waited longer than usual looks more often: otherwise chance could pass
// over one process for long. A long wait without success is a sign of more processes than before: then the
// pauses grow, too. In a first wait they grow soon.
func (l *looks) next(now func() time.Time, turn, least, most time.Duration) time.Duration {
	l.n++
	l.usual = max(l.usual, least)
	if l.changed.IsZero() {
		return min(l.usual<<min(l.n-1, 10), most)
	}
	due := l.due(turn, least)
	if l.n > 32*due || !l.learned && l.n > 2*due {
		l.usual = min(l.usual*5/4, most)
	}
	d := min(max(l.usual*time.Duration(2*due)/time.Duration(l.n), l.usual/8, least), 2*l.usual)
	return min(max(d, now().Sub(l.changed)/8), most)
}

// anew begins the pauses again for another waiter: a long pause might outlast the waiter's context.
func (l *looks) anew() {
	if l.changed.IsZero() {
		l.n = 0
	}
}

// over ends the wait after the process has had the key, and adapts the usual pause.
func (l *looks) over(turn, least, most time.Duration) {
	if due := l.due(turn, least); l.n > 0 && l.stands > 0 {
		if l.n > due {
			l.usual += l.usual / 8 * time.Duration(min(l.n-due, due)) / time.Duration(due)
		} else {
			more := float64(due-l.n+1) / float64(due) / float64(3*most)
			l.usual = time.Duration(1 / (1/float64(l.usual) + more))
		}
		l.usual, l.learned = min(max(l.usual, least), most), true
	}
	l.n, l.changed = 0, time.Time{}
}
