package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/lease"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/oneline"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A resolver carries one step of a Backend to an outcome. After a lost reply it reads the key to learn the outcome.
// The Locker's locks go through it, and so do the single locks of a lock over several servers or keys (Settled).
type resolver struct {
	backend Backend
	now     func() time.Time
	step    func(ctx context.Context, ttl time.Duration) (context.Context, func())
	cleanup func(ctx context.Context) (context.Context, func())
	limit   time.Duration // of a step that is for no ttl
}

// A holder owns the lease of a step: a lock, or a lease without a lock yet. on tells its state machine about an event;
// l is the lease of that event.
type holder interface {
	current() Grant
	value(i int) (value string, ok bool) // the i-th that the key may hold as ours
	on(e lease.Event, l Grant) lease.Verdict
	over() error          // why it has ended
	lost(err error) error // err, and that it was lost if it was
	saw(err error)        // what the last step ended with, which tells why it is lost, if it is
}

// settle reads the key over another connection to learn the outcome of an attempt with a lost reply
// (any/lost-reply). If the key holds our value, extending it proves the lease ours, gives it its TTL if the
// connection broke before that was sent, and draws the fence whose number was lost.
func (s *resolver) settle(ctx context.Context, h *unattached, ttl time.Duration, why error) error {
	l := h.current()
	if l.Ambiguous || errors.Is(why, ErrUnknown) {
		return &UnknownError{Lease: l.Lease, Err: why}
	}
	if ctx.Err() != nil {
		return s.undo(ctx, h, limit.Cause(ctx))
	}
	var st State
	var err error
	// In a look for a waiter, Open can also mean that its ticket wants renewing.
	attempt := context.WithValue(ctx, ofWaiter{}, "")
	onPanic(func() { st, err = s.inspect(attempt, l.Key, ttl) }, func() { s.undo(ctx, h, nil) }) //nolint:errcheck // a panic is on its way
	switch {
	case err != nil:
		return s.undo(ctx, h, why)
	case !st.Holds(l.Value) && !st.Open && st.Status != StatusFree && st.Status != StatusDead:
		return &HeldError{Key: l.Key, Value: st.Value, Until: st.Until, Foreign: st.Status == StatusForeign, Persistent: st.Status == StatusPersistent}
	case !st.Holds(l.Value):
		return fmt.Errorf("setnxlock: not obtained, %q can be taken: %w", l.Key, why)
	}
	if _, err := s.extend(ctx, h, extension{ttl: ttl, redraw: true}); err != nil {
		return s.undo(ctx, h, oneline.Join(why, err))
	}
	h.lease.How = protocol.Resolved
	return nil
}

// undo releases a possible lease, in a context that outlives ctx, and returns why. If the release is not known to
// have worked, it returns ErrUnknown too. The release compares: undoing a step that never ran must not remove
// another client's lock (any/release-of-unknown).
func (s *resolver) undo(ctx context.Context, h *unattached, why error) error {
	step, done := s.cleanup(ctx)
	defer done()
	l := h.current()
	err := s.release(step, h)
	if err == nil || protocol.OutcomeOf(err) == protocol.Refused && errors.Is(err, ErrLost) {
		return why
	}
	return &UnknownError{Lease: l.Lease, Err: oneline.Join(cause(why), cause(err))}
}

// An extension lists the wishes of a request to extend a lease.
type extension struct {
	ttl      time.Duration
	rotate   bool // to a new value
	redraw   bool // with a new fence
	handsOff bool // and the lock is another holder's then
}

// extend extends h. It sends the extension again, three times at most, while the outcome is open or the key must
// be read.
func (s *resolver) extend(ctx context.Context, h holder, x extension) (Grant, error) {
	for try := 1; ; try++ {
		l, v := s.ask(h, x)
		if v == lease.Read || v == lease.Doubt {
			if _, err := s.read(ctx, h); err != nil {
				h.on(lease.Event{Kind: lease.Postpone, At: s.now()}, l)
				return l, err
			}
			l, v = s.send(h, x)
		}
		switch v {
		case lease.Over:
			return l, h.over()
		case lease.Doubt:
			h.on(lease.Event{Kind: lease.Postpone, At: s.now()}, l)
			return l, &UnknownError{Lease: l.Lease, Err: errTooManyUnknown}
		}
		step, done := s.step(ctx, x.ttl)
		next, err := s.backend.Extend(step, s.now, l, x.ttl)
		done()
		again, err := s.answer(h, l, next, err, x)
		if p := (*limit.Panicked)(nil); errors.As(err, &p) {
			panic(p.Value)
		}
		open := protocol.OutcomeOf(err) == protocol.Unknown
		if !again || try == 3 || open && (ctx.Err() != nil || errors.Is(err, ErrUnknown) || l.Ambiguous) {
			return next, err
		}
		if !open { // the key may hold what an earlier extension asked for
			continue
		}
		found, readErr := s.read(ctx, h)
		switch {
		case errors.Is(readErr, ErrLost):
			return next, readErr
		case readErr != nil:
			return next, err
		case found == next.Value && found != l.Value && !next.drew && !x.handsOff:
			if h.on(lease.Event{Kind: lease.Ask, At: s.now()}, next) == lease.Over { // its time has run out meanwhile
				return next, h.over()
			}
			return h.current(), nil
		case try == 2:
			return next, err // the lease is what it was, or what was asked for: the lesser is believed
		}
	}
}

// ask asks h's machine for an extension. The lease may be sent if the verdict is OK.
func (s *resolver) ask(h holder, x extension) (Grant, lease.Verdict) {
	if v := h.on(lease.Event{Kind: lease.Ask, At: s.now()}, Grant{}); v != lease.OK {
		return h.current(), v
	}
	return s.send(h, x)
}

// send notes the extension as sent, and returns the lease for it.
func (s *resolver) send(h holder, x extension) (Grant, lease.Verdict) {
	l := h.current()
	l.Rotate = l.Rotate || x.rotate
	if x.redraw {
		l.Fence = 0
	}
	return l, h.on(lease.Event{Kind: lease.Send, At: s.now(), Claim: lease.Claim{TTL: x.ttl}}, l)
}

// answer tells h's machine the outcome of an extension of l, and returns the caller's error. It returns again if
// the outcome is open, or if the key must be read and the extension repeated.
func (s *resolver) answer(h holder, l, next Grant, err error, x extension) (again bool, _ error) {
	h.saw(err)
	e := lease.Event{At: s.now(), Claim: lease.Claim{Value: next.Value, Until: next.Until, TTL: x.ttl, Fence: next.Fence}, Final: next.Final || l.Rotate && !next.Rotate && next.Value != l.Value}
	e.Kept = next.Rotate || !l.Rotate && s.backend.Abilities().server == nil
	switch o := protocol.OutcomeOf(err); {
	case o == protocol.Done:
		if next.Rotate { // what was sent before may still find the value that it was sent with
			e.Kind = lease.Unknown
			h.on(e, next)
		}
		if e.Kind = lease.Done; x.handsOff {
			e.Kind = lease.Handoff
		}
		switch h.on(e, next) {
		case lease.Read:
			e.Kind, e.Claim.Value = lease.Done, next.Value // it was extended all the same
			h.on(e, next)
			return false, fmt.Errorf("setnxlock: %q can't be handed off with this value and fence: %w", l.Key, errors.ErrUnsupported)
		case lease.Over: // the answer came after its time had run out
			return false, h.over()
		}
		return false, nil
	case o == protocol.NotSent || o == protocol.Refused && !notOurs(err):
		if e.Kind = lease.NotSent; o == protocol.Refused {
			e.Kind = lease.Refused
		}
		h.on(e, next)
		return false, err
	case o == protocol.Refused:
		e.Kind, err = lease.NotOurs, errTouched
	default:
		e.Kind = lease.Unknown
		if next.drew && next.Until.After(l.Until) { // finding the value will not prove all of it
			e.Claim.Until = l.Until
		}
	}
	if h.on(e, next) == lease.Over {
		return false, h.over()
	}
	return true, err
}

// notOurs reports whether a server found our value gone from the key, or the key not a lock's.
func notOurs(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrForeign) }

var errTouched = fmt.Errorf("%w: an earlier extension has arrived late", ErrAborted)

var errTooManyUnknown = errors.New("setnxlock: too many extensions whose outcome is unknown")

// read reads the key and tells h its value.
func (s *resolver) read(ctx context.Context, h holder) (value string, err error) {
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
	if ours == "" { // else its last error tells why it is not extended
		h.saw(&LostError{Key: l.Key, Value: value, Gone: st.Status == StatusFree})
	}
	if h.on(lease.Event{Kind: lease.Found, At: s.now(), Claim: lease.Claim{Value: value}}, l) == lease.Over {
		return value, h.over()
	}
	return value, nil
}

// ownValue returns the first held one of h's values, or "" if none is held.
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

func (s *resolver) inspect(ctx context.Context, key string, ttl time.Duration) (State, error) {
	step, done := s.step(ctx, ttl)
	defer done()
	return s.backend.Inspect(step, s.now, key)
}

// release tries each possible value of h in turn, until one is released.
func (s *resolver) release(ctx context.Context, h holder) (err error) {
	if h.on(lease.Event{Kind: lease.Release}, Grant{}) == lease.Over {
		return h.over()
	}
	if _, several := h.value(1); several {
		if err := s.lookFirst(ctx, h); errors.Is(err, ErrLost) {
			return s.releaseError(h, err)
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
		r := removal{Grant: l, inTime: !lease.Past(s.now(), l.Until)}
		if r.Value = v; v != l.Value {
			r.pin = 0
		}
		for again := true; again; {
			s.begin(ctx, &r)
			err = s.backend.Release(r.step, s.now, r.Grant)
			again, err = s.releaseOne(ctx, &r, err)
		}
		sent = sent || r.sent && protocol.OutcomeOf(err) == protocol.Unknown
		if err == nil {
			h.on(lease.Event{Kind: lease.ReleaseDone}, l)
			return h.lost(nil)
		}
		if !notOurs(err) {
			unknown = err
		}
	}
	switch {
	case unknown == nil:
		h.on(lease.Event{Kind: lease.ReleaseNotOurs}, l)
		return s.releaseError(h, err)
	case sent:
		h.on(lease.Event{Kind: lease.ReleaseUnknown}, l)
	default:
		h.on(lease.Event{Kind: lease.ReleaseNotSent}, l)
	}
	return h.lost(unknown)
}

// lookFirst reads which of h's values the key holds: a lock of several names would release one name by each of them, and
// take the other for lost.
func (s *resolver) lookFirst(ctx context.Context, h holder) error {
	if limit.Ended(ctx) {
		cleanup, done := s.cleanup(ctx)
		defer done()
		ctx = cleanup
	}
	_, err := s.read(ctx, h)
	return err
}

// releaseError returns the error of a release after it found nothing of ours. It returns nil if an earlier release of
// ours had got through.
func (s *resolver) releaseError(h holder, err error) error {
	if errors.Is(h.over(), ErrReleased) {
		return nil
	}
	return h.lost(err)
}

// A removal keeps the state of one lease's release, and its present step.
type removal struct {
	Grant
	inTime bool // it began before the lease's end
	sent   bool // something of it was
	tries  int

	step     context.Context
	done     func()
	cleaning bool // it began after the end of the caller's context
}

// begin begins a try.
func (s *resolver) begin(ctx context.Context, r *removal) {
	r.tries++
	r.cleaning = limit.Ended(ctx)
	r.step, r.done = s.orCleanup(ctx)
}

// releaseOne judges a try by its error. If the outcome is unknown it looks, and r is to be released once more if
// the key still holds its value. A release compares, so a second one never removes another client's lock
// (any/lost-reply-to-release).
func (s *resolver) releaseOne(ctx context.Context, r *removal, err error) (again bool, _ error) {
	o, open := protocol.OutcomeOf(err), r.sent
	r.sent = r.sent || o != protocol.NotSent
	known := o == protocol.Done || o == protocol.Refused
	if known || r.Ambiguous && r.sent || r.tries == 2 {
		r.done()
		switch {
		case o == protocol.Refused && open && notOurs(err): // the first arrived after we had looked (any/late-request)
			return false, s.gone(r, err)
		case known:
			return false, err
		}
		return false, &UnknownError{Lease: r.Lease, Err: cause(err)}
	}
	if !r.cleaning && limit.Ended(ctx) { // in the middle
		r.done()
		r.step, r.done = s.cleanup(ctx)
	}
	st, readErr := s.backend.Inspect(r.step, s.now, r.Key)
	r.done()
	switch {
	case readErr != nil:
		return false, &UnknownError{Lease: r.Lease, Err: cause(err)}
	case !st.Holds(r.Value):
		return false, s.gone(r, err)
	}
	return true, err
}

// gone interprets a key without r's value after its release failed by err. If r began in time, the lock was
// released. It was lost if nothing was sent, or if a server answers that may never have had it (any/failover).
func (s *resolver) gone(r *removal, err error) error {
	switch {
	case !r.inTime:
		return ranOut(r.Key)
	case !r.sent || since(s.backend, r.Key) > r.epoch:
		return fmt.Errorf("%w: %q is not ours on the server that answers now: %w", ErrLost, r.Key, err)
	}
	return nil
}

// orCleanup returns a step's context, or a cleanup's if ctx has ended.
func (s *resolver) orCleanup(ctx context.Context) (context.Context, func()) {
	if limit.Ended(ctx) { // a connection notices a deadline before the context does
		return s.cleanup(ctx)
	}
	return s.step(ctx, s.limit)
}
