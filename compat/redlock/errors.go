package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// An Error is what the servers said when too few of them agreed. errors.Is and errors.As see the
// overall result (ErrHeld, ErrLost, ErrUnsafeServer, …) and the connections' errors. What single
// servers said of the lock is only in Servers, because a key that is held on one of five servers is
// not held.
type Error struct {
	Step    string // "acquire", "extend", "release", "inspect", "find" or "repair"
	Key     string
	Got     int           // servers that did it
	Need    int           // servers that it takes
	Of      int           // servers there are
	Servers []ServerError // those that did not, by position

	kind error // nil: too few servers answered
}

// A ServerError is what one server said.
type ServerError struct {
	Server int    // its position in New's list
	Name   string // as in Options.Names
	Err    error
}

func (e ServerError) Error() string {
	return "setnxlock: " + e.Name + ": " + strings.TrimPrefix(e.Err.Error(), "setnxlock: ")
}

func (e ServerError) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	var b strings.Builder
	if e.kind != nil {
		fmt.Fprintf(&b, "%v: ", e.kind)
	} else {
		b.WriteString("setnxlock: ")
	}
	fmt.Fprintf(&b, "%s %q: %d of %d servers, %d are needed", e.Step, e.Key, e.Got, e.Of, e.Need)
	for i, s := range e.Servers {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + strings.TrimPrefix(s.Error(), "setnxlock: "))
	}
	return b.String()
}

// Unwrap returns the overall result, and every error of a server that is not about the lock.
func (e *Error) Unwrap() []error {
	var all []error
	if e.kind != nil {
		all = append(all, e.kind)
	}
	for _, s := range e.Servers {
		switch {
		case !ofLock(s.Err):
			all = append(all, s.Err)
		default: // beside an unknown outcome, whose patience it was that ended
			for _, end := range []error{compat.ErrTimeout, context.DeadlineExceeded, context.Canceled} {
				if errors.Is(s.Err, end) {
					all = append(all, end)
				}
			}
		}
	}
	return all
}

// ofLock reports whether err is one of compat's own errors.
func ofLock(err error) bool {
	return slices.ContainsFunc([]error{
		compat.ErrHeld, compat.ErrLost, compat.ErrForeign, compat.ErrUnsafeServer, compat.ErrUnknown, compat.ErrAborted, compat.ErrInvalid,
	}, func(kind error) bool { return errors.Is(err, kind) })
}

// failed returns the error of a step on q with kind as its overall result.
func failed[T any](q *Quorum, step, key string, answers []answer[T], kind error) *Error {
	e := &Error{Step: step, Key: key, Need: q.need, Of: len(q.servers), kind: kind}
	for i, a := range answers {
		switch {
		case a.err != nil:
			e.Servers = append(e.Servers, ServerError{i, q.servers[i].name, unmarked(a.err)})
		case a.asked:
			e.Got++
		}
	}
	return e
}

// unmarked removes the mark "nothing was sent" from err: one server's mark must not be taken for that of all.
func unmarked(err error) error {
	for protocol.OutcomeOf(err) == protocol.NotSent {
		inner := errors.Unwrap(err)
		if inner == nil {
			return errors.New(err.Error())
		}
		err = inner
	}
	return err
}

// A count is what votes say.
type count struct {
	granted, refused, foreign, notString, spared int

	ends   []time.Time // of what refused
	values []part
	unfit  error // of a server where the lock is not safe, or else where the ttl can't be kept
}

func (q *Quorum) count(votes []answer[compat.Grant]) (n count) {
	var invalid error
	n.values = make([]part, len(votes))
	for i, v := range votes {
		var h *compat.HeldError
		why := unmarked(v.err)
		if unfit := q.servers[i].unfit.Load(); unfit != nil && v.asked && !v.came {
			why = *unfit // until it answers otherwise
		}
		switch {
		case v.err == nil:
			n.granted++
		case errors.Is(why, compat.ErrUnsafeServer):
			n.unfit = ServerError{i, q.servers[i].name, why}
		case errors.Is(why, compat.ErrInvalid):
			invalid = ServerError{i, q.servers[i].name, why}
		case errors.As(why, &h):
			n.refused++
			n.ends = append(n.ends, h.Until)
			if h.Foreign {
				n.foreign++
			}
			if h.Value != "" {
				n.values[i].values = []string{h.Value}
			}
		case errors.Is(why, compat.ErrHeld), errors.Is(why, compat.ErrLost):
			n.refused++
			n.ends = append(n.ends, time.Time{})
		case errors.Is(why, compat.ErrForeign):
			n.refused, n.notString = n.refused+1, n.notString+1
		case errors.Is(why, errNotAsked):
			n.spared++
		}
	}
	n.unfit = cmp.Or(n.unfit, invalid)
	return n
}

// elected returns nil for a majority, and otherwise the overall refusal.
func (q *Quorum) elected(key string, votes []answer[compat.Grant]) error {
	n := q.count(votes)
	spare := len(votes) - q.need // servers that can be done without
	switch {
	case n.unfit != nil:
		return failed(q, "acquire", key, votes, n.unfit)
	case n.granted >= q.need:
		return nil
	case n.notString > spare:
		return failed(q, "acquire", key, votes, compat.ErrForeign)
	case n.granted+n.refused >= q.need, n.refused > 0 && n.granted+n.refused+n.spared >= q.need:
		// Those that were not asked any more are not out of reach: with one server gone
		// and one held the lock is worth waiting for.
		held := &compat.HeldError{Key: key, Until: freeAt(q.need-n.granted, n.ends), Foreign: n.foreign+n.notString > spare}
		if value := format(n.values); strings.Trim(value, ",") != "" {
			held.Value = value
		}
		return failed(q, "acquire", key, votes, held)
	}
	return protocol.NotSent.Mark(failed(q, "acquire", key, votes, nil))
}

// freeAt returns the time at which n of the servers held until ends will be free by themselves; zero if it is not
// known.
func freeAt(n int, ends []time.Time) time.Time {
	known := slices.DeleteFunc(slices.Clone(ends), time.Time.IsZero)
	if n < 1 || n > len(known) {
		return time.Time{}
	}
	slices.SortFunc(known, time.Time.Compare)
	return known[n-1]
}

// hopeless reports whether no majority is left.
func (q *Quorum) hopeless(votes []answer[compat.Grant]) bool {
	missed := 0
	for _, v := range votes {
		if v.came && v.err != nil {
			missed++
		}
	}
	return missed > len(votes)-q.need
}

// voted reports whether votes decide: a majority has granted, or none can any more and the reason is certain.
func (q *Quorum) voted(votes []answer[compat.Grant]) bool {
	granted, refused, broken := 0, 0, 0
	for _, v := range votes {
		switch {
		case !v.came:
		case v.err == nil:
			granted++
		case errors.Is(v.err, compat.ErrHeld), errors.Is(v.err, compat.ErrLost), errors.Is(v.err, compat.ErrForeign):
			refused++
		default:
			broken++
		}
	}
	spare := len(votes) - q.need
	return granted >= q.need || refused+broken > spare && (granted+refused >= q.need || broken > spare)
}

// An identity tells one server from another.
type identity struct {
	id    string       // of its process; "": it does not tell
	state compat.State // of the key, where it was read
	read  bool
}

// sameServers looks for two servers of the list that are one, by another name or another database. It has one vote: a
// list of two would never have a majority, and one of five tolerate less than it seems to. A pair is looked at until it
// is known to be two: by the ids that INFO tells; or where one tells none, because both granted what one server grants
// once, or because what one has granted is not to be seen on the other. (With a token that is used twice it may be what
// an earlier attempt left behind.) A pair that was found to be one is that until it is known to be two.
func (q *Quorum) sameServers(ctx context.Context, now func() time.Time, key string, votes []answer[compat.Grant]) error {
	if q.o.Sequential || q.allDistinct.Load() {
		return nil
	}
	took := func(i int) bool { return votes[i].err == nil }
	held := func(i int) bool { return errors.Is(votes[i].err, compat.ErrHeld) }
	seen := ask(ctx, q, round[identity]{
		limit: q.limit(0),
		only: func(i int) bool {
			for j := range votes {
				if j != i && !q.distinct(i, j) && (took(i) && (took(j) || held(j)) || held(i) && took(j)) {
					return true
				}
			}
			return false
		},
		step: func(ctx context.Context, s *server, i int) (w identity, err error) {
			if w.id = s.Abilities().RunID(ctx, key); w.id == "" && (!took(i) || q.abilities.Shared) {
				w.state, err = s.Inspect(ctx, now, key)
				w.read = err == nil
			}
			return w, err
		},
	})
	for i, a := range seen {
		for j, b := range seen {
			switch grants := took(j) && !votes[j].value.Ambiguous; {
			case i == j || !a.asked:
			case a.value.id != "" && b.value.id != "":
				q.setDistinct(i, j, a.value.id != b.value.id)
			case grants && took(i) && !votes[i].value.Ambiguous && !q.abilities.Shared:
				q.setDistinct(i, j, true)
			case grants && a.value.read:
				q.setDistinct(i, j, !a.value.state.Holds(votes[j].value.Value))
			}
		}
	}
	return q.knownSame()
}

// knownSame returns ErrInvalid if two servers are known to be one. It does so at each attempt, also if this one has
// found the key held by another client.
func (q *Quorum) knownSame() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for j := range q.servers {
		for i := range j {
			if two, known := q.pairs[[2]int{i, j}]; known && !two {
				return fmt.Errorf("%w: %s and %s are one server", compat.ErrInvalid, q.servers[i].name, q.servers[j].name)
			}
		}
	}
	return nil
}

// distinct reports whether the i-th and the j-th server are known to be two.
func (q *Quorum) distinct(i, j int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pairs[[2]int{min(i, j), max(i, j)}]
}

func (q *Quorum) setDistinct(i, j int, two bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pairs[[2]int{min(i, j), max(i, j)}] = two
	all := len(q.pairs) == len(q.servers)*(len(q.servers)-1)/2
	for _, two := range q.pairs {
		all = all && two
	}
	q.allDistinct.Store(all)
}
