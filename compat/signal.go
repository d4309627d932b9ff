package compat

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A release wakes one of ours, wherever it waits, by two lists beside the key:
//
//	a waiter     LPUSH waiters id; EXPIRE waiters 60     it is there
//	             BLPOP wake 1                            and listens, again and again
//	a release    RPOPLPUSH waiters wake; EXPIRE wake 60  in the write that removes the key
//
// Who has registered first is named first, and who has listened longest hears
// it; that they need not be the same harms nobody, there is one word for each.
// If nobody waits nothing is written. Foreign clients know nothing of it, and a
// word can get lost with a connection: so a waiter looks all the same, slowly. It
// looks once when it has registered, for a release that came before that.
//
// Before 2.2 a list that has a TTL is deleted by whoever pushes to it, or moves from
// it: there the waiters have none.
const (
	listFor = 60 * time.Second // how long the lists stand unused
	listMax = 1024             // how many may be registered
	listen  = 1                // seconds, the least that there is: shorter than any sensible read timeout
	refresh = 20 * time.Second // how often a waiter looks after the list it is on
)

// signalling is a Backend whose releases can wake a waiter elsewhere.
type signalling interface {
	// releaseWaking is Release, and wakes a waiter if there is one.
	releaseWaking(ctx context.Context, now func() time.Time, l Lease) (woken bool, err error)

	// wake wakes one without a release.
	wake(ctx context.Context, key string) error

	// hear registers id, says so, and returns when it was woken, or can't be, or
	// ctx is done.
	hear(ctx context.Context, now func() time.Time, key, id string, registered func()) (woken bool, err error)

	// deregister takes id back. If it was named meanwhile, nobody may have heard
	// it: with pass, another is woken instead.
	deregister(ctx context.Context, key, id string, pass bool) error
}

// signals is the Backend if it is to signal.
func (k *Locker) signals() signalling {
	if !k.o.Signal {
		return nil
	}
	b, _ := k.backend.(signalling)
	return b
}

// giveUp is one release on the server.
func (k *Locker) giveUp(ctx context.Context, l Lease, signal bool) (woken bool, err error) {
	if b := k.signals(); b != nil && signal {
		return b.releaseWaking(ctx, k.now, l)
	}
	return false, k.backend.Release(ctx, k.now, l)
}

// An ear listens for the head of a line.
type ear struct {
	close      context.CancelFunc
	registered bool
	pass       bool // the lock was not taken here: others go on waiting
}

// hush ends it. The lines' mutex is held.
func (c *crowd) hush(pass bool) {
	if c.ear != nil {
		c.ear.pass = pass
		c.ear.close()
		c.ear = nil
	}
}

// listens has an ear listen for the head, if releases signal, and reports
// whether a release would wake it. The lines' mutex is held.
func (k *Locker) listens(key string, ln *line) bool {
	b, c := k.signals(), ln.crowd
	if b == nil {
		return false
	}
	if c.ear == nil && !k.now().Before(k.lines.deaf) {
		ctx, cancel := context.WithCancel(context.Background())
		c.ear = &ear{close: cancel}
		go k.listen(ctx, b, key, ln, c.ear)
	}
	return c.ear != nil && c.ear.registered
}

// deafFor is how long nobody listens after that has failed: polling is enough.
const deafFor = 10 * time.Second

func (k *Locker) listen(ctx context.Context, b signalling, key string, ln *line, e *ear) {
	id := NewToken()
	woken, err := b.hear(ctx, k.now, key, id, func() {
		k.lines.mu.Lock()
		defer k.lines.mu.Unlock()
		if ln.crowd.ear == e {
			e.registered = true
			ln.tell(false)
		}
	})
	e.close()
	k.lines.mu.Lock()
	c := ln.crowd
	wanted := c.ear == e
	if wanted {
		c.ear = nil
		if woken {
			c.owed = true
			ln.tell(true)
		} else {
			k.lines.deaf = k.now().Add(deafFor)
		}
	}
	pass := wanted || e.pass
	k.lines.mu.Unlock()
	switch {
	case woken && !wanted:
		k.wakeAnother(key)
	case err != nil:
		ctx, done := k.cleanup(ctx)
		defer done()
		b.deregister(ctx, key, id, pass) //nolint:errcheck // it is one name too many, for a minute
	}
}

// wakeAnother passes on a word that came to somebody who waits no more.
func (k *Locker) wakeAnother(key string) {
	ctx, done := k.cleanup(context.Background())
	defer done()
	k.signals().wake(ctx, key) //nolint:errcheck // whoever is not woken looks, later
}

// A rider is what goes with a release, in the same write: behind the command that
// removes the key.
type rider struct {
	cmds  []Cmd
	woken bool
	err   error // why it is not to be asked for again soon
}

func waking(key string) []Cmd {
	wake := Aux(key, "wake")
	return []Cmd{{"RPOPLPUSH", Aux(key, "waiters"), wake}, {"EXPIRE", wake, int64(listFor / time.Second)}}
}

// carries reports which of the commands of one write is the one that a rider goes with.
func carries(sent []string, name string) int {
	for i, s := range append(sent, name) {
		switch strings.ToUpper(s) {
		case "EXEC", "EVALSHA", "EVAL":
			return i
		case "DEL":
			if !contains(sent[:min(i, len(sent))], "MULTI") {
				return i
			}
		}
	}
	return -1
}

func contains(sent []string, name string) bool {
	for _, s := range sent {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

// carry has r go with the step.
func (g *guard) carry(r *rider) { g.rider = r }

// ride is Do with the rider behind it, whose replies nobody else sees. It gets
// off unless its command was refused, or did nothing, and will be sent again.
func (g *guard) ride(at int, name string, args []any) (any, error) {
	if name != "" {
		if err := g.Send(name, args...); err != nil {
			return nil, err
		}
	}
	own, r := len(g.sent), g.rider
	for _, m := range r.cmds {
		if err := g.Conn.Send(m[0].(string), m[1:]...); err != nil {
			return nil, err
		}
	}
	reply, err := g.exchange("")
	all, _ := reply.([]any)
	if err != nil || len(all) != own+len(r.cmds) {
		g.note("", nil, err)
		if err == nil {
			err = errors.New("setnxlock: a write was answered in part")
		}
		r.err = err
		return nil, err
	}
	replies := all[:own:own]
	g.note("", replies, nil)
	r.woken = r.woken || all[own] != nil
	if e := first(all[own:], nil); e != nil {
		r.woken, r.err = false, e
	}
	if _, refused := all[at].(redis.Error); !refused && all[at] != nil {
		g.rider = nil
	}
	if name == "" {
		return replies, nil
	}
	return replies[own-1], first(replies, nil)
}

func (s *single) releaseWaking(ctx context.Context, now func() time.Time, l Lease) (woken bool, err error) {
	if now().UnixNano() < s.mute.Load() {
		return false, s.release(ctx, now, l, nil)
	}
	r := &rider{cmds: waking(l.Key)}
	err = s.release(ctx, now, l, r)
	var refused redis.Error
	if r.err != nil && (closed(r.err) || errors.As(r.err, &refused)) {
		// A user who may not, a proxy that does not know it: the release must not suffer again.
		s.mute.Store(now().Add(deafFor).UnixNano())
	}
	return r.woken, err
}

func (s *single) wake(ctx context.Context, key string) error {
	return s.do(ctx, key, func(c redis.Conn) error {
		_, err := Pipe(c, waking(key)...)
		return err
	})
}

func (s *single) deregister(ctx context.Context, key, id string, pass bool) error {
	return s.do(ctx, key, func(c redis.Conn) error {
		there, err := redis.Int(c.Do("LREM", Aux(key, "waiters"), 1, id))
		if err == nil && there == 0 && pass {
			_, err = Pipe(c, waking(key)...)
		}
		return err
	})
}

func (s *single) hear(ctx context.Context, now func() time.Time, key, id string, registered func()) (woken bool, err error) {
	waiters, wake := Aux(key, "waiters"), Aux(key, "wake")
	var looked time.Time
	for {
		err := s.listening(ctx, key, func(c redis.Conn) error {
			if t := now(); t.Sub(looked) >= refresh {
				first := looked.IsZero()
				looked = t
				if err := s.register(c, waiters, id, first); err != nil {
					return err
				}
				registered()
			}
			heard, err := c.Do("BLPOP", wake, listen)
			woken = err == nil && heard != nil
			return err
		})
		if woken || err != nil {
			return woken, err
		}
	}
}

// register puts id on the list, if it is not on it any more.
func (s *single) register(c redis.Conn, waiters, id string, first bool) error {
	volatile, err := s.volatile(c, waiters)
	if err != nil {
		return err
	}
	seconds := int64(listFor / time.Second)
	if !first {
		still := Cmd{"EXISTS", waiters}
		if volatile {
			still = Cmd{"EXPIRE", waiters, seconds}
		}
		if n, err := redis.Int(c.Do(still[0].(string), still[1:]...)); n > 0 || err != nil {
			return err
		}
	}
	cmds := []Cmd{{"LPUSH", waiters, id}}
	if volatile {
		cmds = append(cmds, Cmd{"EXPIRE", waiters, seconds})
	}
	replies, err := Pipe(c, cmds...)
	if err != nil {
		return err
	}
	n, err := redis.Int(replies[0], nil)
	if err == nil && n > listMax {
		_, err = c.Do("LTRIM", waiters, 0, listMax-1)
	}
	return err
}

// volatile reports whether lists can have a TTL here and be lists all the same.
func (s *single) volatile(c redis.Conn, waiters string) (bool, error) {
	era := s.era() + 1
	if known := s.lists.Load(); known>>1 == era {
		return known&1 == 1, nil
	}
	scratch := waiters + ":check:" + NewToken()
	replies, err := Pipe(c, Cmd{"LPUSH", scratch, "x"}, Cmd{"EXPIRE", scratch, 10}, Cmd{"LPUSH", scratch, "x"}, Cmd{"DEL", scratch})
	if err != nil {
		return false, err
	}
	if err := first(replies, nil); err != nil {
		return false, err
	}
	yes := replies[2] == int64(2)
	s.lists.Store(era<<1 | map[bool]uint64{true: 1}[yes])
	return yes, nil
}

// listening is do for a step that blocks, and that a cancellation ends with its
// connection: which tells nothing of the server.
func (s *single) listening(ctx context.Context, key string, step func(redis.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.connection(ctx, key)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return err
	}
	g := &guard{Conn: c}
	g.begin(ctx)
	err = step(g)
	g.giveBack()
	return err
}
