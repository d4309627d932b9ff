// Package sentinel finds the server that Redis Sentinel names the master, and
// hands out connections to it: a compat.Source that follows a failover.
//
//	source := sentinel.New("mymaster", []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"}, sentinel.Options{})
//	defer source.Close()
//	locks := compat.NewOn(source.Source(), txlock.Renamed{}, compat.Options{})
//
// Most pools ask Sentinel only when they dial, and go on with the old master after a failover.
// Sentinel may leave it a master for eight seconds and more (after SENTINEL FAILOVER, and when a
// server that was stopped comes back). During that time it gives its clients locks that the new
// master gives to others: with eighteen clients, 17,000 locks were held twice within ten seconds.
// So this is asked before Get returns a connection:
//
//	SENTINEL get-master-addr-by-name NAME   to all Sentinels at once: most of those known must name one server
//	ROLE                                    to that server, on this connection; INFO before 2.8.12
//
// It is not asked again within Options.Recheck. A reply that takes longer than Recheck counts only
// after the Sentinels have named the same server once more: a server that was stopped and goes on
// may answer requests from before it was replaced. A refused write (READONLY), a replica that is
// cut off from its master (MASTERDOWN) and a server that is still loading its data (LOADING) end
// the connection, and the Locker asks again on another. Nothing is read from a replica
// (any/read-from-replica).
//
// What this can't prevent (any/failover): Redis acknowledges a write before its replicas have it. A
// lock that a master gave in its last moments, or after it was cut off, is missing on the new
// master, which gives it to another client while the first holder's lease still runs. The first
// holder learns it at its next extension or release, with renewal after a third of the ttl: the key
// is gone or another client's, which is [compat.ErrLost]. Its context ends with its lease at the
// latest. Fences are counted on the same servers: what loses a lock loses its fence, and both
// holders may have the same number.
//
// Three things help. With min-slaves-to-write and min-slaves-max-lag on the servers (Redis 2.8), a
// master that is cut off from its replicas soon refuses every write. [Replicated] takes no lock
// that is not on the replicas too (WAIT, Redis 3.0). redlock needs no failover: its servers are
// independent. A master that restarts empty before Sentinel notices that it was down forgets every
// lock (any/restart-forgets): start it with its data, or late.
//
// Each Sentinel has one vote, however many addresses it has; all that tell neither a run_id in INFO
// nor SENTINEL MYID have one vote together. Sentinels that were not given to [New] are asked once
// most of those given have told of them: fewer may invent them. Until then nothing is sent there, and
// no password. A learnt Sentinel is forgotten when no other names it any more and it does not answer.
// So give at least three, if there are as many.
//
// While fewer than Options.Agree Sentinels answer, no lock is acquired, extended or released: they
// may be dead, or we may be cut off together with the old master.
//
// It was tested with the Sentinels of 2.6.11, 2.8.24 and 7.0.15. A Sentinel of 2.6 answers
// IDONTKNOW until it has seen the master, waits up to fifteen seconds before it replaces a master
// that is down, and leaves clients' connections open when it demotes one; since 2.8.12 they are
// closed. The servers may be of any version. Before 2.6 replicas accept writes, and only INFO tells
// them from a master.
package sentinel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/guard"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
)

var (
	// ErrNoMaster means that the Sentinels agree on no server that is a master. No command of a
	// lock was sent.
	ErrNoMaster = errors.New("setnxlock: no master")

	// ErrNotMaster means that a connection led to a server that is not the
	// master any more. What was sent over it may have run there, and does not
	// count.
	ErrNotMaster = errors.New("setnxlock: not the master")

	errClosed = errors.New("setnxlock: the source is closed")
)

// Options are a Source's. The zero value is ready to use.
type Options struct {
	// Dial connects to a server, DialSentinel to a Sentinel: with a password,
	// over TLS, or to another address than the one that is announced. addr is
	// the Sentinels' word: before a password is sent there over TLS, verify the
	// certificate for a name of your own. nil: redis.DialContext(ctx, "tcp", addr), with
	// [guard.Dial].
	Dial, DialSentinel func(ctx context.Context, addr string) (redis.Conn, error)

	// Agree is how many Sentinels must name the same server. Default: a
	// majority of all that are known, given to New or learnt from others,
	// dead ones included. With 1, a Sentinel that is cut off together with an
	// old master can send us there.
	Agree int

	// Recheck is how long the Sentinels' answer counts, and a server's answer about its role. For
	// that long an old master may still be taken for the master. Default: 1 s. With a nanosecond
	// they are asked before and after each command.
	Recheck time.Duration

	// Patience is how long Get goes on asking while there is no master, unless its context ends
	// first. A Locker's Lock goes on after that, for up to a whole ttl, while a Sentinel answers.
	// Default: 3 s.
	Patience time.Duration

	// Timeout bounds each question to a Sentinel or to a server about its role, with dialling.
	// Default: 1 s.
	Timeout time.Duration

	// MaxIdle is how many idle connections to the master the Source keeps. Default: 16.
	MaxIdle int

	// Clock tells how old an answer is, and runs the timer between two
	// questions. nil: clock.New().
	Clock clock.Clock
}

func (o Options) withDefaults() Options {
	tcp := func(ctx context.Context, addr string) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialContextFunc(guard.Dial(nil)))
	}
	if o.Dial == nil {
		o.Dial = tcp
	}
	if o.DialSentinel == nil {
		o.DialSentinel = tcp
	}
	o.Dial, o.DialSentinel = safe.Dial(o.Dial), safe.Dial(o.DialSentinel)
	if o.Recheck <= 0 {
		o.Recheck = time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 3 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 16
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	return o
}

// pause is how long Get waits between two looks for a master.
const pause = 50 * time.Millisecond

// A Source hands out connections to the master. It is safe for concurrent use,
// and between two questions it runs nothing.
type Source struct {
	name string
	o    Options

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	asked  sync.WaitGroup // questions under way

	asking chan struct{} // held by the one who asks the Sentinels
	given  []*watcher
	learnt map[string]*watcher // by the address that another told; asking is held

	mu     sync.Mutex
	now    *master   // nil: none was ever named
	named  time.Time // when the question was sent by whose answers it is; zero: it is in doubt
	epoch  uint64
	closed bool
}

// A master is a server that was named, and the connections to it.
type master struct {
	addr string
	pool *redis.Pool

	doubted time.Time // when it last seemed to be none; s.mu is held
}

// New returns a Source of connections to the master called name. sentinels are
// host:port; of others it learns when most of these tell of them. It sends nothing yet.
func New(name string, sentinels []string, o Options) *Source {
	s := &Source{name: name, asking: make(chan struct{}, 1), learnt: map[string]*watcher{}}
	for _, addr := range sentinels {
		s.given = append(s.given, newWatcher(addr))
	}
	s.o = o.withDefaults()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Source returns s for a Locker, by compat.NewOn.
func (s *Source) Source() compat.Source {
	return compat.Source{
		Get:    func(ctx context.Context, _ string) (redis.Conn, error) { return s.Get(ctx) },
		Epoch:  s.Epoch,
		Listen: 16,
	}
}

// Get returns a connection to the master. If there is none, because a failover is under way, it
// goes on asking for Options.Patience or until ctx ends, and then returns [ErrNoMaster] with the
// reason. If no Sentinel knows the name, or the password is refused, it returns at once.
func (s *Source) Get(ctx context.Context) (redis.Conn, error) {
	enough := s.o.Clock.Now().Add(s.o.Patience)
	for {
		m, err := s.master(ctx)
		passes := errors.As(err, new(undecided))
		if err == nil {
			var c redis.Conn
			if c, err = m.pool.GetContext(ctx); err == nil {
				return safe.Pass(c), nil
			}
			if !limit.Cancelled(ctx) {
				s.doubt(m)
			}
			passes = true // the Sentinels have named it
		}
		switch { // what passes is told in words only: it must not look like a closed connection
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w: %v", ErrNoMaster, limit.Cause(ctx), err)
		case final(err):
			return nil, fmt.Errorf("%w: %w", ErrNoMaster, err)
		case !s.o.Clock.Now().Before(enough) && passes:
			return nil, fmt.Errorf("%w: %w: %v", ErrNoMaster, compat.ErrElection, err)
		case !s.o.Clock.Now().Before(enough):
			return nil, fmt.Errorf("%w: %v", ErrNoMaster, err)
		}
		t := s.o.Clock.Timer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		t.Stop()
	}
}

// Master returns the address of the master for the next [Source.Get].
func (s *Source) Master(ctx context.Context) (string, error) {
	c, err := s.Get(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.addr, nil
}

// Epoch counts how often the Sentinels were found to name another server than before, the first included. A key that
// was written in one epoch and is missing in the next may never have reached the new server.
func (s *Source) Epoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// Close closes all idle connections, and the Sentinels'. Borrowed connections close when they are returned.
func (s *Source) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	m := s.now
	s.mu.Unlock()
	if again {
		return nil
	}
	s.cancel()
	s.asked.Wait()
	s.asking <- struct{}{} // for good: a waiter sees that s.ctx is done
	for _, w := range s.watchers() {
		w.hangUp()
	}
	if m != nil {
		return m.pool.Close()
	}
	return nil
}

// trusted returns the master if the Sentinels have named it lately.
func (s *Source) trusted() *master {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil || s.named.IsZero() || s.o.Clock.Since(s.named) >= s.o.Recheck {
		return nil
	}
	return s.now
}

// doubt makes the next step ask the Sentinels again, and m about its role on each of its connections.
func (s *Source) doubt(m *master) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.doubted = s.o.Clock.Now()
	if s.now == m {
		s.named = time.Time{}
	}
}

// master returns the master by the Sentinels' last answers, or asks them now. One asks for all.
func (s *Source) master(ctx context.Context) (*master, error) {
	if m := s.trusted(); m != nil {
		return m, nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-s.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, limit.Cause(ctx)
	}
	if m := s.trusted(); m != nil {
		return m, nil // another goroutine asked while we waited
	}
	start := s.o.Clock.Now()
	addr, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	return s.appoint(addr, start)
}

// appoint makes the server at addr the master, by answers to a question sent
// at asked.
func (s *Source) appoint(addr string, asked time.Time) (*master, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	s.named = asked
	if s.now != nil && s.now.addr == addr {
		return s.now, nil
	}
	if s.now != nil {
		s.now.pool.Close() // borrowed connections close when they are returned
	}
	m := &master{addr: addr}
	m.pool = &redis.Pool{
		MaxIdle:             s.o.MaxIdle,
		DialContext:         func(ctx context.Context) (redis.Conn, error) { return s.dial(ctx, m) },
		TestOnBorrowContext: func(ctx context.Context, c redis.Conn, _ time.Time) error { return c.(*conn).fit(ctx) },
	}
	s.now = m
	s.epoch++
	return m, nil
}

// hopeless is an error that will be the same the next time.
type hopeless struct{ error }

func (e hopeless) Unwrap() error { return e.error }

// undecided is an error of Sentinels of which some answered: the next time they may agree.
type undecided struct{ error }

// final reports whether the next question will end with err too: it is somebody's own word, not the want of one.
func final(err error) bool {
	var said redis.Error
	return errors.Is(err, errClosed) || errors.Is(err, errUnknownName) || errors.As(err, new(hopeless)) ||
		errors.As(err, &said) && !passing(said)
}

// notMaster is ErrNotMaster, and a closed connection: the Locker, which knows
// nothing of masters, asks again on another.
type notMaster struct{ addr, why string }

func (e *notMaster) Error() string { return fmt.Sprintf("%v: %s %s", ErrNotMaster, e.addr, e.why) }

func (e *notMaster) Is(target error) bool { return target == ErrNotMaster || target == net.ErrClosed }
