package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A settler carries one step of a Backend to an outcome: what a lost reply left open is
// learned by reading the key. The Locker's locks go through it, and so do the single locks
// that a lock over several servers or keys is made of (Settled).
type settler struct {
	backend Backend
	now     func() time.Time
	step    func(ctx context.Context, ttl time.Duration) (context.Context, func())
	cleanup func(ctx context.Context) (context.Context, func())
	limit   time.Duration // of a step that is for no ttl
	wakes   bool          // its releases wake a client that waits elsewhere
}

// A holder is what a step changes: a lock, or a lease that is none yet. on tells its state
// machine what happened; l is the lease that the event is about.
type holder interface {
	current() Grant
	value(i int) (value string, ok bool) // the i-th that the key may hold as ours
	on(e lease.Event, l Grant) lease.Verdict
	over() error          // why it has ended
	lost(err error) error // err, and that it was lost if it was
	saw(err error)        // what the last step ended with, which tells why it is lost, if it is
}

// settle learns by reading the key, on another connection, whether an attempt whose reply was
// lost has succeeded (any/lost-reply). If the key holds our value, extending it proves the
// lease ours, gives it its TTL if the connection broke before that was sent, and draws the
// fence whose number was lost.
func (s *settler) settle(ctx context.Context, h *loose, ttl time.Duration, why error) error {
	l := h.current()
	if l.Ambiguous || errors.Is(why, ErrUnknown) {
		return &UnknownError{Lease: l.Lease, Err: why}
	}
	if ctx.Err() != nil {
		return s.undo(ctx, h, limit.Cause(ctx))
	}
	var st State
	var err error
	onPanic(func() { st, err = s.inspect(ctx, l.Key, ttl) }, func() { s.undo(ctx, h, nil) }) //nolint:errcheck // a panic is on its way
	switch {
	case err != nil:
		return s.undo(ctx, h, why)
	case !st.Holds(l.Value) && st.Status != StatusFree && st.Status != StatusDead:
		return &HeldError{Key: l.Key, Value: st.Value, Until: st.Until, Foreign: st.Status == StatusForeign, Persistent: st.Status == StatusPersistent}
	case !st.Holds(l.Value):
		return fmt.Errorf("setnxlock: not obtained, %q is free: %w", l.Key, why)
	}
	if _, err := s.extend(ctx, h, ttl, false, true, lease.Done); err != nil {
		return s.undo(ctx, h, oneline.Join(why, err))
	}
	h.lease.How = protocol.Resolved
	return nil
}

// undo releases what may have been taken, in a context that outlives ctx, and returns why; or,
// if that is not known to have worked, ErrUnknown too. The release compares: undoing what was
// never done must not remove another client's lock (any/release-of-unknown).
func (s *settler) undo(ctx context.Context, h *loose, why error) error {
	step, done := s.cleanup(ctx)
	defer done()
	l := h.current()
	_, err := s.release(step, h, true)
	if err == nil || protocol.OutcomeOf(err) == protocol.Refused && errors.Is(err, ErrLost) {
		return why
	}
	return &UnknownError{Lease: l.Lease, Err: oneline.Join(cause(why), cause(err))}
}

// extend extends h to ttl. With rotate its value is to be a new one, with redraw its fence.
// then is the event for the holder's machine when it was done.
func (s *settler) extend(ctx context.Context, h holder, ttl time.Duration, rotate, redraw bool, then lease.Kind) (Grant, error) {
	for try := 1; ; try++ {
		l, v := s.ask(h, ttl, rotate, redraw)
		if v == lease.Read || v == lease.Doubt {
			if _, err := s.read(ctx, h); err != nil {
				h.on(lease.Event{Kind: lease.Postpone, At: s.now()}, l)
				return l, err
			}
			l, v = s.send(h, ttl, rotate, redraw)
		}
		switch v {
		case lease.Over:
			return l, h.over()
		case lease.Doubt:
			h.on(lease.Event{Kind: lease.Postpone, At: s.now()}, l)
			return l, &UnknownError{Lease: l.Lease, Err: errDoubts}
		}
		step, done := s.step(ctx, ttl)
		next, err := s.backend.Extend(step, s.now, l, ttl)
		done()
		again, err := s.answer(h, l, next, err, ttl, then)
		if p := (*limit.Panicked)(nil); errors.As(err, &p) {
			panic(p.Value)
		}
		if !again || try == 3 {
			return next, err
		}
		if protocol.OutcomeOf(err) != protocol.Unknown { // the key may hold what an earlier extension asked for
			continue
		}
		if ctx.Err() != nil || errors.Is(err, ErrUnknown) || l.Ambiguous {
			return next, err
		}
		found, readErr := s.read(ctx, h)
		switch {
		case errors.Is(readErr, ErrLost):
			return next, readErr
		case readErr != nil:
			return next, err
		case found == next.Value && found != l.Value && !next.drew && then == lease.Done:
			return h.current(), nil
		case try == 2:
			return next, err // the lease is what it was, or what was asked for: the lesser is believed
		}
	}
}

// ask asks h's machine for an extension to ttl. OK: the lease may be sent.
func (s *settler) ask(h holder, ttl time.Duration, rotate, redraw bool) (Grant, lease.Verdict) {
	if v := h.on(lease.Event{Kind: lease.Ask, At: s.now()}, Grant{}); v != lease.OK {
		return h.current(), v
	}
	return s.send(h, ttl, rotate, redraw)
}

// send is the lease that is about to be sent.
func (s *settler) send(h holder, ttl time.Duration, rotate, redraw bool) (Grant, lease.Verdict) {
	l := h.current()
	l.Rotate = l.Rotate || rotate
	if redraw {
		l.Fence = 0
	}
	return l, h.on(lease.Event{Kind: lease.Send, At: s.now(), Claim: lease.Claim{TTL: ttl}}, l)
}

// answer tells h's machine what became of an extension of l, and returns the caller's error.
// again: it is open, or the key is to be read and it is to be asked once more.
func (s *settler) answer(h holder, l, next Grant, err error, ttl time.Duration, then lease.Kind) (again bool, _ error) {
	h.saw(err)
	e := lease.Event{At: s.now(), Claim: lease.Claim{Value: next.Value, Until: next.Until, TTL: ttl, Fence: next.Fence}, Final: next.Final || l.Rotate && !next.Rotate && next.Value != l.Value}
	e.Kept = next.Rotate || !l.Rotate && s.backend.Abilities().server == nil
	switch protocol.OutcomeOf(err) {
	case protocol.Done:
		if next.Rotate { // what was sent before may still find the value that it was sent with
			e.Kind = lease.Unknown
			h.on(e, next)
		}
		e.Kind = then
		switch h.on(e, next) {
		case lease.Read:
			e.Kind, e.Claim.Value = lease.Done, next.Value // it was extended all the same
			h.on(e, next)
			return false, fmt.Errorf("setnxlock: %q can't be handed off with this value and fence: %w", l.Key, errors.ErrUnsupported)
		case lease.Over: // the answer came after its time had run out
			return false, h.over()
		}
		return false, nil
	case protocol.NotSent:
		e.Kind = lease.NotSent
		h.on(e, next)
		return false, err
	case protocol.Refused:
		if !notOurs(err) {
			e.Kind = lease.Refused
			h.on(e, next)
			return false, err
		}
		e.Kind = lease.NotOurs
		if h.on(e, next) == lease.Over {
			return false, h.over()
		}
		return true, errTouched
	}
	e.Kind = lease.Unknown
	if next.drew && next.Until.After(l.Until) { // finding the value will not prove all of it
		e.Claim.Until = l.Until
	}
	if h.on(e, next) == lease.Over {
		return false, h.over()
	}
	return true, err
}

// notOurs reports that a server answered that the key does not hold what it was asked about.
func notOurs(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrForeign) }

var errTouched = fmt.Errorf("%w: the key holds what an earlier extension asked for", ErrAborted)

var errDoubts = errors.New("setnxlock: too many extensions whose outcome is unknown")

// read reads the key and tells h what it holds.
func (s *settler) read(ctx context.Context, h holder) (value string, err error) {
	l := h.current()
	st, err := s.inspect(ctx, l.Key, s.limit)
	if err != nil {
		return "", err
	}
	ours, err := ownValue(h, func(v string) (bool, error) { return st.Holds(v), nil })
	if ours == "" && s.backend.Abilities().server == nil { // of several servers or keys not all need show it
		ours, err = ownValue(h, func(v string) (bool, error) {
			step, done := s.step(ctx, s.limit)
			defer done()
			_, err := s.backend.Find(step, s.now, l.Key, v)
			if errors.Is(err, ErrLost) {
				return false, nil
			}
			return err == nil, err
		})
	}
	if err != nil {
		return "", err
	}
	value = cmp.Or(ours, st.Value)
	if st.Status == StatusFree {
		value = ""
	}
	h.saw(&LostError{Key: l.Key, Value: value, Gone: st.Status == StatusFree})
	if h.on(lease.Event{Kind: lease.Found, At: s.now(), Claim: lease.Claim{Value: value}}, l) == lease.Over {
		return value, h.over()
	}
	return value, nil
}

// ownValue is the first of h's values that is held; "": none is.
func ownValue(h holder, held func(v string) (bool, error)) (string, error) {
	for i := 0; ; i++ {
		v, ok := h.value(i)
		if !ok {
			return "", nil
		}
		if yes, err := held(v); yes || err != nil {
			return v, err
		}
	}
}

func (s *settler) inspect(ctx context.Context, key string, ttl time.Duration) (State, error) {
	step, done := s.step(ctx, ttl)
	defer done()
	return s.backend.Inspect(step, s.now, key)
}

// release releases what h may hold. With signal it wakes a client that waits elsewhere, if
// there is one: woken.
func (s *settler) release(ctx context.Context, h holder, signal bool) (woken bool, err error) {
	if h.on(lease.Event{Kind: lease.Release}, Grant{}) == lease.Over {
		return false, h.over()
	}
	if _, several := h.value(1); several && ctx.Err() == nil { // which of them it holds is worth a look
		if _, err := s.read(ctx, h); errors.Is(err, ErrLost) {
			return false, s.settled(h, err)
		}
	}
	l := h.current()
	sent := false
	var unknown error
	for i := 0; ; i++ {
		v, ok := h.value(i)
		if !ok {
			break
		}
		one := l
		one.Value = v
		if v != l.Value {
			one.pin = 0
		}
		var tried bool
		woken, tried, err = s.releaseOne(ctx, one, signal)
		sent = sent || tried && protocol.OutcomeOf(err) == protocol.Unknown
		if err == nil {
			h.on(lease.Event{Kind: lease.ReleaseDone}, l)
			return woken, h.lost(nil)
		}
		if !notOurs(err) {
			unknown = err
		}
	}
	switch {
	case unknown == nil:
		h.on(lease.Event{Kind: lease.ReleaseNotOurs}, l)
		return woken, s.settled(h, err)
	case sent:
		h.on(lease.Event{Kind: lease.ReleaseUnknown}, l)
	default:
		h.on(lease.Event{Kind: lease.ReleaseNotSent}, l)
	}
	return woken, h.lost(unknown)
}

// settled is the error of a release that found nothing of ours: none, if an earlier one of
// ours had got through.
func (s *settler) settled(h holder, err error) error {
	if errors.Is(h.over(), ErrReleased) {
		return nil
	}
	return h.lost(err)
}

// releaseOne releases l. If the outcome is unknown it looks, and releases once more if the key
// still holds l's value: it compares, so a second one never removes another client's lock
// (any/lost-reply-to-release).
func (s *settler) releaseOne(ctx context.Context, l Grant, signal bool) (woken, sent bool, err error) {
	inTime := !lease.Past(s.now(), l.Until)
	for try := 1; ; try++ {
		cleaning, open := limit.Ended(ctx), sent
		step, done := s.orCleanup(ctx)
		woken, err = s.removing(step, l, signal && try == 1)
		o := protocol.OutcomeOf(err)
		sent = sent || o != protocol.NotSent
		switch {
		case o == protocol.Refused && open && notOurs(err): // the first arrived after we had looked (any/late-request)
			done()
			return woken, sent, s.gone(l, sent, inTime, err)
		case o == protocol.Done || o == protocol.Refused:
			done()
			return woken, sent, err
		case l.Ambiguous && sent || try == 2:
			done()
			return woken, sent, &UnknownError{Lease: l.Lease, Err: cause(err)}
		}
		if !cleaning && limit.Ended(ctx) { // in the middle
			done()
			step, done = s.cleanup(ctx)
		}
		st, readErr := s.backend.Inspect(step, s.now, l.Key)
		done()
		if readErr != nil {
			return woken, sent, &UnknownError{Lease: l.Lease, Err: cause(err)}
		}
		if !st.Holds(l.Value) {
			return woken, sent, s.gone(l, sent, inTime, err)
		}
	}
}

// gone is what it means that the key of l, whose release failed by err, is not ours any more: in
// time it was released; unless nothing was sent, or a server answers that may never have had it
// (any/failover).
func (s *settler) gone(l Grant, sent, inTime bool, err error) error {
	switch {
	case !inTime:
		return ranOut(l.Key)
	case !sent || since(s.backend, l.Key) > l.epoch:
		return fmt.Errorf("%w: %q is not ours on the server that answers now: %w", ErrLost, l.Key, err)
	}
	return nil
}

// removing is one release on the server.
func (s *settler) removing(ctx context.Context, l Grant, signal bool) (woken bool, err error) {
	if s.wakes && signal {
		return s.backend.Abilities().server.releaseWaking(ctx, s.now, l)
	}
	return false, s.backend.Release(ctx, s.now, l)
}

// orCleanup is a step's context, or a cleanup's if ctx has ended.
func (s *settler) orCleanup(ctx context.Context) (context.Context, func()) {
	if limit.Ended(ctx) { // a connection notices a deadline before the context does
		return s.cleanup(ctx)
	}
	return s.step(ctx, s.limit)
}

// since is the epoch in which the server that answers for key was last replaced.
func since(b Backend, key string) uint64 {
	a := b.Abilities()
	if a.server != nil {
		return a.server.since(key)
	}
	return epochOf(b)
}

// epochOf is that of the server which answers, if it can be replaced.
func epochOf(b Backend) uint64 {
	if e := b.Abilities().Epoch; e != nil {
		return e()
	}
	return 0
}

// loose is a lease that is no Lock: of an attempt that is being settled, of a lock that is
// being passed on, or a part of a lock that is made of several.
type loose struct {
	state lease.State
	lease Grant
	why   error // what the last step ended with
}

func newLoose(l Grant, ttl time.Duration, now time.Time) *loose {
	h := &loose{lease: l, state: lease.New(claimOf(l, ttl), false, now)}
	for _, v := range slices.Backward(l.Or) { // the likeliest was asked for last
		e := lease.Event{Kind: lease.Unknown, At: now, Claim: claimOf(l, ttl)}
		e.Claim.Value = v
		h.state.On(e)
	}
	return h
}

func claimOf(l Grant, ttl time.Duration) lease.Claim {
	return lease.Claim{Value: l.Value, Until: l.Until, TTL: ttl, Fence: l.Fence}
}

func (h *loose) current() Grant             { return believed(h.lease, &h.state) }
func (h *loose) value(i int) (string, bool) { return h.state.Value(i) }
func (h *loose) over() error                { return overError(h.lease.Key, &h.state, h.why) }
func (h *loose) lost(err error) error       { return lostToo(h.lease.Key, &h.state, h.why, err) }
func (h *loose) saw(err error)              { h.why = err }

func (h *loose) on(e lease.Event, l Grant) lease.Verdict {
	follow(&h.lease, e.Kind, l)
	return h.state.On(e)
}

// believed is l as its state machine believes it.
func believed(l Grant, s *lease.State) Grant {
	c := s.Claim()
	l.Value, l.Until, l.Fence, l.Rotate = c.Value, c.Until, c.Fence, s.Rotate()
	return l
}

// follow keeps what a lease carries beside its claim: whose epoch, which connection. An extension touches the key, and so
// ends what a connection knows of it.
func follow(of *Grant, k lease.Kind, l Grant) {
	switch k {
	case lease.Done, lease.Handoff:
		of.Ambiguous, of.epoch, of.pin = l.Ambiguous, l.epoch, 0
	case lease.Unknown:
		of.Ambiguous, of.pin = of.Ambiguous || l.Ambiguous, 0
	}
}

// overError is what an operation on a lock that has ended returns. why is what the last step ended with.
func overError(key string, s *lease.State, why error) error {
	err := causeError(key, s, why)
	if s.Cause() == lease.Lost {
		return err
	}
	return fmt.Errorf("%w: %q", err, key)
}

// causeError is the cause with which its context ends.
func causeError(key string, s *lease.State, why error) error {
	switch s.Cause() {
	case lease.Released, lease.None: // None: its release has begun
		return ErrReleased
	case lease.HandedOff:
		return ErrHandedOff
	case lease.Detached:
		return ErrDetached
	}
	c := s.Claim()
	e := &LostError{Key: key, Err: why, Confirmed: c.Until.Add(lease.Drift(c.TTL) - c.TTL), Renewed: s.Renews()}
	if seen := (*LostError)(nil); errors.As(why, &seen) && seen.Key == key {
		e.Value, e.Gone, e.Err = seen.Value, seen.Gone, seen.Err
	}
	return e
}

// lostToo adds to a release's error that the lock was lost, if it was, and why: whatever became of the release, the work
// under the lock may have overlapped.
func lostToo(key string, s *lease.State, why, err error) error {
	if s.Cause() != lease.Lost {
		return err
	}
	if errors.Is(err, ErrLost) {
		why = ErrLost // and what else err says
	}
	if seen := (*LostError)(nil); err == ErrLost || errors.As(err, &seen) && err == error(seen) {
		why, err = err, nil
	}
	if err == nil {
		return overError(key, s, why)
	}
	return fmt.Errorf("%w: %w", overError(key, s, why), err)
}

// Settled wraps b as a part of a lock that is made of several: it settles a step whose reply was
// lost by reading the key, as the Locker does for its own lock.
func Settled(b Backend) Backend { return settled{b} }

type settled struct{ Backend }

func (b settled) settler(now func() time.Time) *settler {
	same := func(ctx context.Context, _ time.Duration) (context.Context, func()) { return ctx, func() {} }
	return &settler{backend: b.Backend, now: now, step: same, cleanup: func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }}
}

// Acquire asks once more if a request of unknown outcome turns out not to have taken the key: an
// idle connection that the server had closed must not cost a part of the lock. With an error of
// outcome Unknown it returns the lease that may stand.
func (b settled) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (Grant, error) {
	for try := 1; ; try++ {
		l, err := b.Backend.Acquire(ctx, now, key, ttl)
		if protocol.OutcomeOf(err) != protocol.Unknown {
			return l, err
		}
		h := newLoose(l, ttl, now())
		err = b.settler(now).settle(ctx, h, ttl, err)
		switch {
		case err == nil, errors.Is(err, ErrUnknown):
			return h.current(), err
		case protocol.OutcomeOf(err) == protocol.Refused:
			return l, err
		case try == 2 || ctx.Err() != nil: // it is free, or was taken back
			return l, protocol.NotSent.Mark(err)
		}
	}
}

// Extend returns the lease that stands at least, with an error of outcome Unknown, and with
// Grant.Or, if it is not known which of several.
func (b settled) Extend(ctx context.Context, now func() time.Time, l Grant, ttl time.Duration) (Grant, error) {
	h := newLoose(l, ttl, now())
	next, err := b.settler(now).extend(ctx, h, ttl, l.Rotate, l.Fence == 0, lease.Done)
	switch protocol.OutcomeOf(err) {
	case protocol.Done:
		got := h.either(h.current())
		got.Final, got.drew = next.Final, next.drew
		got.Rotate = got.Rotate || l.Rotate && got.Value == l.Value && b.Abilities().Rotates
		return got, nil
	case protocol.Unknown:
		next.Until = h.state.Until()
		return h.either(next), err
	}
	if h.state.Rotate() && !errors.Is(err, ErrLost) { // an earlier try may have run
		next := h.either(h.current())
		return next, &UnknownError{Lease: next.Lease, Err: cause(err)}
	}
	return l, err
}

// either is l with all that its key may hold.
func (h *loose) either(l Grant) Grant {
	l.Or = nil
	for i := 0; ; i++ {
		v, ok := h.value(i)
		if !ok {
			return l
		}
		if v != l.Value {
			l.Or = append(l.Or, v)
		}
	}
}

// Release removes the key if it is ours.
func (b settled) Release(ctx context.Context, now func() time.Time, l Grant) error {
	if l.epoch == 0 { // a part of a lease: when it was written is not known
		l.epoch = epochOf(b.Backend)
	}
	_, err := b.settler(now).release(ctx, newLoose(l, 0, now()), false)
	return err
}
