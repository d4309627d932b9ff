package queue

import "time"

// turns share a key between processes by two rules:
//
// A process passes a lock on until all have had the lock who waited when the first holder was done, and for the shortest pause
// at least. The release at the end of that turn wakes the client elsewhere that has waited longest, and the process waits
// behind that client.
//
// Some clients can't be woken. For them a process leaves the key free for a moment: after each turn as long as somebody
// uses the moment, and else more and more seldom.
type turns struct {
	began   time.Time     // its turn; zero: it has none
	crowd   int           // who waited then
	served  int           // how many have had the lock since
	usually time.Duration // how long one takes
	had     time.Duration
	unused  int // moments in a row of which nobody made use
}

// Between two moments that nobody uses lie at most so many shortest pauses of holding the key: seldom where no client can be
// woken, rarely where clients can.
const seldom, rarely = 20, 200

// missed moments in a row prove nothing: a client that looks may just miss each of them.
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

// leaves reports whether the key is to be free for a moment now, and counts the moment. The clock's last digits add chance:
// processes that began to take turns together would else leave their moments together.
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

// looks pace a process that can't be woken. However many such processes look at a key, a release is to be noticed after the
// shortest pause, on average. So each process aims at as many looks in a wait as shortest pauses fit into one turn of a
// holder. A wait with more looks lengthens the pauses by a factor, a wait with fewer adds a constant to their rate: so the
// pauses of all processes become alike (Chiu and Jain, 1989). With factors both ways they would stay different.
type looks struct {
	usual   time.Duration // the pause between two
	learned bool          // from a wait before
	n       int           // in this wait
	stands  time.Duration // how long a holder has the key, on average; 0: not known
	changed time.Time     // when the key last changed hands; zero: not seen yet
	at      int           // the look that saw it
}

// change notes that the key has changed hands.
func (l *looks) change(now time.Time, least time.Duration) {
	if l.changed.IsZero() {
		if l.n = 0; !l.learned {
			l.usual = 0
		}
	} else {
		stood := now.Sub(l.changed)
		if l.n-l.at == 1 { // each look sees another holder: turns are shorter than pauses, nobody knows by how much
			stood = least
		}
		if l.stands == 0 {
			l.stands = stood
		}
		l.stands += (stood - l.stands) / 4
	}
	l.changed, l.at = now, l.n
}

// due is how many looks a wait is to take. turn is how long this process's own turns take, which is exact where the turns of
// others are only seen by looks; 0: there was none.
func (l *looks) due(turn, least time.Duration) int {
	if turn == 0 {
		turn = l.stands
	}
	return max(int(turn/least), 1)
}

// next is the pause before the next look. While the key does not change hands, the pauses double. Where holders take turns,
// a process that has waited for longer than usual looks more often, or chance would pass over one process for long. A wait
// that stays without success tells of more processes than before: then the pauses grow, too, and soon in a first wait.
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

// anew begins the pauses for another waiter: a long pause might outlast the time that this one has.
func (l *looks) anew() {
	if l.changed.IsZero() {
		l.n = 0
	}
}

// over notes that the wait is over: the key was had.
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
