// Package cluster is for locks on a Redis Cluster, 3.0 and later: a [compat.Source] that knows
// which server has a key, and whose connections follow a key that moves.
//
//	source := cluster.New([]string{"10.0.0.1:6379", "10.0.0.2:6379"}, cluster.Options{})
//	defer source.Close()
//	locks := compat.NewOn(source.Source(), txlock.Renamed{}, compat.Options{})
//
// What the servers say, and what is done about it:
//
//	MOVED 3999 host:port       another has the slot: learn the map anew, ask there
//	ASK 3999 host:port         the slot is being moved, and the key may be there
//	                           already: ASKING and the command, this once
//	TRYAGAIN                   it is being moved, and the keys of one command are
//	                           apart: an error; the Locker waits and asks again
//	CLUSTERDOWN                nobody serves the slot now: likewise
//
// A command that gets one of these answers did not run, so it is safe to send it again to the other
// server. A write of several commands is sent again only if they then still run in their order;
// otherwise the answer is returned as an error.
//
// A transaction under a WATCH is never sent to another server: the WATCH is on the old server,
// which no longer has the key. It returns nil, as if a touched key had aborted it, and the
// algorithm looks again (cluster/watch-left-behind). A transaction of several keys is not sent into
// a slot that is being moved: Redis 3.0 would run it there even if one of the keys is still on the
// old server, and a fence would begin again at 1 (cluster/keys-apart). It ends with TRYAGAIN, as on
// later servers.
//
// So while a slot is being moved, a step that needs one key works as always: acquisitions without a
// fence, except by txlock.Renamed; every extension; every release. A step that needs several keys
// must wait until the slot has moved: an acquisition with a fence or by txlock.Renamed, and both
// acquisition and release of a read-write lock. Such a release is ErrUnknown with TRYAGAIN inside,
// and can be called again.
//
// A master that was stopped and goes on may answer requests from before it was replaced, or the next
// ones, until it hears of it. So a reply counts only if another server's map has named its master within the
// last second, or a reply of that master that counted was asked for since; else another server is asked first
// (any/failover). A server that was given to New by another name than the cluster's for it may be that master: its map
// does not count here. A cluster with a single master has no failover, and is not asked.
//
// If a master can't be reached or does not answer, other servers are asked for the map until they
// name another master in its place. Dropped packets are noticed within 5 s, or by the end of the
// first step that they affect, if that is sooner. Until there is a new master, steps that need it
// fail with [compat.ErrElection], which a Locker's Lock waits for. If no server answers with a map, or
// the master answers Dial with a refusal, the error is another one.
//
// All commands go to masters, reads too: a replica may not yet know of a lock, or not yet know that
// it ended (any/read-from-replica). When a master dies, writes that it had not yet sent to its
// replica are lost: a lock can be lost silently and taken by another client (any/failover). Its
// holder learns it at its next extension, or when the lease ends, whichever comes first. The map
// shows that a master was replaced ([Source.Epoch]), and for which slots ([Source.Since]); a Locker
// then reports a lock whose key is gone as lost, not as released.
//
// Source: the Redis Cluster specification, "Redirection and resharding"; what
// servers of 3.0.7, 5.0.14 and 7.0.15 answered.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/guard"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/safe"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
)

// Options are a Source's. The zero value is ready to use.
type Options struct {
	// Dial connects to the server at addr, a host:port as the servers announce it: translate the
	// address here if they are behind a NAT. Dial is also the place for a password, TLS and time
	// limits; the Source gives up on it after 5 s. Over TLS verify the certificate for a name of your
	// own, not for what a server announced. nil: redis.DialContext, with Timeout and [guard.Dial].
	Dial func(ctx context.Context, addr string) (redis.Conn, error)

	// Timeout bounds connecting, each write and each reply, where Dial is nil. Default: 5 s. A
	// Locker limits each step as well ([compat.Options]).
	Timeout time.Duration

	// MaxIdle is how many connections to each server are kept for the next use.
	// Default: 16.
	MaxIdle int

	// IdleTimeout is how long they are kept. Default: 4 min.
	IdleTimeout time.Duration
}

// A Source hands out connections to the masters of a cluster, and follows slots that move. It is
// safe for concurrent use. It runs nothing in the background: when a connection finds the map of
// the cluster wrong, the Source loads it again, once for all callers that wait for it.
type Source struct {
	seeds []string
	o     Options

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	asks   chan struct{}  // held by the one who asks whether a master is one still
	asking sync.WaitGroup // the inquiry

	mu       sync.Mutex
	slots    *slotMap      // nil: not learnt yet
	number   uint64        // grows with each map
	inquiry  *inquiry      // under way; nil: none
	learnt   chan struct{} // closed when the next map has come
	stale    bool          // somebody found the map wrong
	epoch    uint64
	since    []uint64             // of each slot, the epoch in which its server was last replaced; nil: of none yet
	moving   map[int]bool         // slots for which a server has said ASK
	passed   map[int]string       // slots that another server has than the map says: the one that said so
	suspects map[string]bool      // servers that did not answer, or not well, since the map was learnt
	named    map[string]time.Time // when each master was last known to be one, by another server's map
	pools    map[string]*redis.Pool
	closed   bool
}

// New returns a [Source] for a cluster; addrs are servers of it (host:port), and one that answers is enough. It does
// not connect before it is used.
func New(addrs []string, o Options) *Source {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 16
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 4 * time.Minute
	}
	if o.Dial == nil {
		timeout := o.Timeout
		o.Dial = func(ctx context.Context, addr string) (redis.Conn, error) {
			d := net.Dialer{Timeout: timeout, KeepAlive: 5 * time.Minute}
			return redis.DialContext(ctx, "tcp", addr, redis.DialContextFunc(guard.Dial(d.DialContext)),
				redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
		}
	}
	o.Dial = safe.Dial(o.Dial)
	s := &Source{
		seeds: slices.Clone(addrs), o: o, asks: make(chan struct{}, 1), learnt: make(chan struct{}),
		moving: map[int]bool{}, passed: map[int]string{}, suspects: map[string]bool{},
		named: map[string]time.Time{}, pools: map[string]*redis.Pool{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// ErrClosed means that the [Source] was closed.
var ErrClosed = errors.New("setnxlock: the cluster's source is closed")

// Source returns s for a Locker, by compat.NewOn.
func (s *Source) Source() compat.Source {
	return compat.Source{Get: s.Get, Slots: true, Listen: 16, Epoch: s.Epoch, Since: s.Since}
}

// Get returns a connection to the master of key. It is meant for key and other keys of its slot ([protocol.Aux]); a
// command for another slot works, for one round trip more. Get with "" returns a connection to some master, for
// commands without a key; the first key that is used on it moves it to that key's server.
func (s *Source) Get(ctx context.Context, key string) (redis.Conn, error) {
	if key == "" {
		return s.get(ctx, noSlot)
	}
	return s.get(ctx, Slot(key))
}

const noSlot = -1

func (s *Source) get(ctx context.Context, slot int) (redis.Conn, error) {
	c := &conn{s: s, slot: slot}
	addr, err := s.master(ctx, c)
	if err == nil {
		c.home, err = c.leg(ctx, addr)
	}
	// The master is gone, or its pool was closed behind our back by another's
	// new map: whose slot is it now?
	for tries := 0; err != nil && addr != "" && tries < mapsAtMost && s.learn(ctx, c.number, "") == nil; tries++ {
		was := addr
		if addr, err = s.master(ctx, c); err != nil {
			break
		}
		c.home, err = c.leg(ctx, addr)
		if err != nil && addr == was && !errors.Is(err, ErrClosed) {
			if !answer.Refused(err) { // a server that wants another password is there
				err = fmt.Errorf("%w: %s, by the map that others tell: %w", compat.ErrElection, addr, err)
			}
			break
		}
	}
	if err != nil {
		c.err = err
		return nil, err
	}
	return c, nil
}

// mapsAtMost is how many maps one Get follows, each of which leads to a server that can't be
// reached.
const mapsAtMost = 3

// master returns the address of the server with c's slot, by the map as it is now. A map that was found wrong is learnt
// anew first; if that takes long the old one is followed, to be redirected.
func (s *Source) master(ctx context.Context, c *conn) (string, error) {
	s.mu.Lock()
	known, stale, number := s.slots != nil, s.stale, s.number
	s.mu.Unlock()
	var err error
	switch {
	case !known:
		err = s.learn(ctx, number, "")
	case stale:
		soon, done := context.WithTimeout(ctx, patience)
		err = s.learn(soon, number, "")
		done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "", ErrClosed
	case s.slots == nil:
		return "", err
	}
	c.number = s.number // an old map is better than none: err is told by the server it leads to
	return s.slots.master(c.slot), nil
}

// Epoch grows with the first map, and with each map in which a master has lost all its slots: its replica was promoted,
// and lacks what had not reached it. A server with the same id at another address was not replaced.
func (s *Source) Epoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// Since returns the epoch in which the server of key was last replaced. A slot that another server has now counts as
// moved without loss, unless a server is gone from the same map, which may have had the slot in between.
func (s *Source) Since(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == nil {
		return 0
	}
	return s.since[Slot(key)]
}

// replaced notes the replacement of slot's server in this epoch. s.mu is held.
func (s *Source) replaced(slot int) {
	if s.since == nil {
		s.since = make([]uint64, slotCount)
	}
	s.since[slot] = s.epoch
}

// Close closes all idle connections. Borrowed ones close when they are returned.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.asking.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for addr, p := range s.pools {
		errs = append(errs, p.Close())
		delete(s.pools, addr)
	}
	return errors.Join(errs...)
}

// borrow takes a connection to addr from its pool.
func (s *Source) borrow(ctx context.Context, addr string) (redis.Conn, error) {
	p, err := s.pool(addr)
	if err != nil {
		return nil, err
	}
	return p.GetContext(ctx)
}

func (s *Source) pool(addr string) (*redis.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	p := s.pools[addr]
	if p == nil {
		p = &redis.Pool{
			MaxIdle: s.o.MaxIdle, IdleTimeout: s.o.IdleTimeout,
			DialContext: func(ctx context.Context) (redis.Conn, error) { return s.connect(ctx, addr) },
		}
		s.pools[addr] = p
	}
	return p, nil
}

// suspect asks for a new map, from another server if possible: addr did not answer, or said that it can't serve.
// number is that of the map that led there, so that many users of the same wrong map load a new one once.
func (s *Source) suspect(addr string, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == number {
		s.stale = true
		s.suspects[addr] = true
	}
}

// moved notes a redirection of slot from the server at from to addr. When it returns, the map no longer leads to from,
// and the epoch tells whether from was replaced.
func (s *Source) moved(ctx context.Context, c *conn, slot int, from, addr string) {
	s.mu.Lock()
	delete(s.moving, slot)
	wrong := s.slots == nil || s.slots.owner(slot) == from
	c.number = s.number
	s.mu.Unlock()
	if !wrong {
		return
	}
	err := s.learn(ctx, c.number, addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.number == c.number {
		s.epoch++ // nobody knows, so we assume it
		s.replaced(slot)
	}
	c.number = s.number
	if s.slots != nil && s.slots.owner(slot) == from {
		s.slots.set(slot, addr)
		s.passed[slot] = from
	}
}

// ask notes a slot on its way to another server.
func (s *Source) ask(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving[slot] = true
}

func (s *Source) isMoving(slot int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moving[slot]
}

// Slot returns the hash slot of key: CRC16 of its hash tag, or of all of it, modulo 16384.
func Slot(key string) int { return slot.Of(key) }
