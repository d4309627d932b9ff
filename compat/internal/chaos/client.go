//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

// An order tells a client process its work.
type order struct {
	Client     int
	Kind       string            // of the group
	Addrs      []string          // of the group's servers, or of its Sentinels
	Mixed      bool              // a server that takes over may be too old for the lock
	Ways       map[string]string // the address of our proxy, by the address of the server
	Locks      []string          // the lock on each server
	Millis     []bool            // for each server: ttls in milliseconds
	Goroutines int
	Keys       []string
	Seed       uint64
	Until      time.Time
	Diary      string
}

// The ttls are between shortest and usual. A patient client, whose steps may wait for a stopped server, uses longest.
const shortest, usual, longest = time.Second, 3 * time.Second, 6 * time.Second

func (o order) patient() bool { return o.Client%3 == 0 && followed(o.Kind) }

// client runs one client process: it takes locks, works under them and gives them up, and writes its
// beliefs into a diary.
func client(text string) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	f, err := os.OpenFile(o.Diary, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	d := &diary{f: f, client: o.Client}
	options := compat.Options{NoRenew: o.Client%2 != 0, Timeout: time.Second}
	if o.patient() {
		options.Timeout = longest
	}
	before := runtime.NumGoroutine()
	at := o.reach(options)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithDeadline(ctx, o.Until)
	defer cancel()
	var wg sync.WaitGroup
	for i := range o.Goroutines {
		wg.Go(func() {
			w := &worker{Rand: rand.New(rand.NewPCG(o.Seed, uint64(o.Client*100+i))), d: d, k: at.k, readers: at.readers, o: o, name: fmt.Sprintf("%d.%d.%d", o.Client, os.Getpid(), i)}
			for ctx.Err() == nil {
				w.section(ctx)
			}
		})
	}
	wg.Wait()
	stop()
	closing, end := context.WithTimeout(context.Background(), 30*time.Second)
	defer end()
	for _, k := range []*compat.Locker{at.k, at.readers} {
		if k == nil {
			continue
		}
		if err := k.Close(closing); err != nil && !benign(err) {
			d.write(history.Event{Op: wrong, Text: "Close: " + err.Error()})
		}
	}
	at.hangUp()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before+1 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+1 {
		buf := make([]byte, 64<<10)
		text := fmt.Sprintf("%d goroutines are left: %s", n-before, buf[:runtime.Stack(buf, true)])
		d.write(history.Event{Op: wrong, Text: text})
	}
	if n := at.connections(); n > 0 {
		d.write(history.Event{Op: wrong, Text: fmt.Sprintf("%d connections are left", n)})
	}
	d.write(history.Event{Op: bye})
}

// A reach is a client's access to the servers.
type reach struct {
	k, readers  *compat.Locker // readers is nil unless the lock is for readers, too
	connections func() int     // counts the open connections; 0 where the client can't count them
	hangUp      func()
}

func (o order) dial(ctx context.Context, addr string) (redis.Conn, error) {
	return redis.DialContext(ctx, "tcp", o.Ways[addr], redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(longest), redis.DialWriteTimeout(2*time.Second))
}

// algorithm makes the lock on the i-th server.
func (o order) algorithm(i int) protocol.Algorithm {
	form, name := formOf(o.Locks[i])
	l, _ := locks.Get(name)
	told := locks.Options{Fence: o.Kind != five && form != inTurn, Millis: o.Millis[i]}
	switch form {
	case several:
		return l.Several(told)
	case slotted:
		told.Limit = together
		return l.Slots(told)
	}
	return l.New(told)
}

// together is the size of a semaphore.
const together = 2

// reach connects to a group of o.Kind.
func (o order) reach(options compat.Options) reach {
	switch o.Kind {
	case sentinels, replicated:
		s := sentinel.New("chaos", o.Addrs, sentinel.Options{Dial: o.dial, DialSentinel: o.dial})
		a := o.algorithm(0)
		if o.Kind == replicated {
			a = sentinel.Replicated{Algorithm: a, Replicas: 2}
		}
		return o.over(s.Source(), a, options, func() { s.Close() })
	case clustered:
		c := cluster.New(o.Addrs, cluster.Options{Dial: o.dial})
		return o.over(c.Source(), o.algorithm(0), options, func() { c.Close() })
	}
	var pools []*redis.Pool
	var backends []compat.Backend
	for i, addr := range o.Addrs {
		pool := &redis.Pool{MaxIdle: 8, IdleTimeout: time.Minute, DialContext: func(ctx context.Context) (redis.Conn, error) { return o.dial(ctx, addr) }}
		pools = append(pools, pool)
		backends = append(backends, compat.NewBackend(compat.Pooled(pool), o.algorithm(i)))
	}
	hangUp := func() {
		for _, p := range pools {
			p.Close()
		}
	}
	var at reach
	if o.Kind == five {
		at = reach{k: compat.NewLocker(redlock.New(backends, redlock.Options{}), options), hangUp: hangUp}
	} else {
		at = o.over(compat.Pooled(pools[0]), o.algorithm(0), options, hangUp)
	}
	at.connections = func() (n int) {
		for _, p := range pools {
			n += p.ActiveCount()
		}
		return n
	}
	return at
}

// over returns the reach over one Source.
func (o order) over(s compat.Source, a protocol.Algorithm, options compat.Options, hangUp func()) reach {
	at := reach{connections: func() int { return 0 }, hangUp: hangUp}
	switch form, _ := formOf(o.Locks[0]); form {
	case inTurn:
		at.k = compat.NewLocker(multilock.New(s, a), options)
		return at
	case readWrite:
		l, _ := locks.Get("rw:read")
		at.readers = compat.NewOn(s, l.New(locks.Options{Fence: true}), options)
	}
	at.k = compat.NewOn(s, a, options)
	return at
}

// benign reports whether a fault may explain the error.
func benign(err error) bool {
	return errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrLost) || errors.Is(err, compat.ErrTimeout) || errors.Is(err, compat.ErrAborted) || errors.Is(err, compat.ErrElection)
}

// A worker is one goroutine of a client.
type worker struct {
	*rand.Rand
	d       *diary
	k       *compat.Locker
	readers *compat.Locker // nil: the lock is not for readers
	o       order
	name    string
	n       int
}

func (w *worker) rest(d time.Duration) { time.Sleep(time.Duration(w.Int64N(int64(d)))) }

func (w *worker) ttl() time.Duration {
	if w.o.patient() {
		return longest
	}
	return shortest + time.Duration(w.Int64N(int64(usual-shortest)))
}

// choose draws the key of the next lock, and returns the keys that it locks.
func (w *worker) choose() (key string, keys []string) {
	first := w.o.Keys[w.IntN(len(w.o.Keys))]
	if form, _ := formOf(w.o.Locks[0]); form == one || form == readWrite || form == slotted {
		return first, []string{first}
	}
	keys = slices.Compact(slices.Sorted(slices.Values([]string{first, w.o.Keys[w.IntN(len(w.o.Keys))]})))
	return multilock.Join(keys...), keys
}

// tell writes an event down for each of keys.
func (w *worker) tell(e history.Event, keys []string) {
	id := e.ID
	for _, key := range keys {
		if e.Key = key; len(keys) > 1 {
			e.ID = id + "/" + key
		}
		w.d.write(e)
	}
}

// section runs one critical section.
func (w *worker) section(ctx context.Context) {
	key, keys := w.choose()
	ttl, asked := w.ttl(), time.Now()
	k, shared := w.k, w.readers != nil && w.IntN(3) > 0
	if shared {
		k = w.readers
	}
	waiting, cancel := context.WithTimeout(ctx, time.Duration(w.Int64N(int64(30*time.Second))))
	defer cancel()
	var l *compat.Lock
	var err error
	if w.IntN(8) == 0 {
		l, err = k.TryLock(waiting, key, ttl)
	} else {
		l, err = k.Lock(waiting, key, ttl)
		if len(keys) == 1 { // a set has no claim to a turn: it is locked when all of its keys are free
			w.d.write(history.Event{Op: waited, Key: keys[0], Asked: asked.UnixNano()})
		}
	}
	if err != nil {
		w.judge("Lock", err, waiting, asked)
		w.rest(20 * time.Millisecond)
		return
	}
	w.holds(ctx, l, keys, history.Event{Op: history.Got, Asked: asked.UnixNano(), Shared: shared})
}

// holds works under a lock, and gives it up.
func (w *worker) holds(ctx context.Context, l *compat.Lock, keys []string, got history.Event) {
	w.n++
	id := fmt.Sprintf("%s.%d", w.name, w.n)
	ends := l.Context()
	lost := make(chan int64, 1)
	defer context.AfterFunc(ends, func() { lost <- now() })()
	got.ID, got.At, got.Until, got.Fence, got.Text = id, now(), l.Until().UnixNano(), l.Fence(), string(l.Lease().How)
	if form, _ := formOf(w.o.Locks[0]); form == slotted {
		got.Most, got.Slot = together, semaphore.Slot(l.Token())
	}
	w.tell(got, keys)
	for range w.IntN(3) {
		w.rest(8 * time.Millisecond)
		if w.IntN(3) == 0 {
			began, ttl := time.Now(), w.ttl()
			holds := history.Event{Op: history.Holds, ID: id, Fence: l.Fence()}
			holds.Until = min(l.Until().UnixNano(), began.Add(ttl).UnixNano()) // after a kill the shorter lease counts
			w.tell(holds, keys)
			err := l.Extend(ctx, ttl)
			holds.Until, holds.Fence = l.Until().UnixNano(), l.Fence()
			w.tell(holds, keys)
			if err != nil {
				w.judge("Extend", err, ctx, began)
			}
		}
		if w.IntN(400) == 0 {
			w.rest(2 * usual) // the client overstays its lease
		}
	}
	end := history.Event{Op: history.Ends, ID: id, At: now(), Until: l.Until().UnixNano()}
	if ends.Err() != nil { // the context has ended at the moment in lost
		end.Text = byContext
		end.At = max(got.At, min(end.At, <-lost))
	}
	w.tell(end, keys)
	began := time.Now()
	if w.readers != nil && !got.Shared && end.Text == "" && w.IntN(3) == 0 {
		reader, err := rwlock.Downgrade(ctx, l, w.readers, w.ttl())
		switch {
		case err == nil:
			w.tell(history.Event{Op: history.Released, ID: id}, keys)
			w.holds(ctx, reader, keys, history.Event{Op: history.Got, Asked: began.UnixNano(), Shared: true, From: id})
			return
		case l.Context().Err() != nil:
			w.released(ctx, "Downgrade", err, began, end, keys)
			return
		}
	}
	w.released(ctx, "Release", l.Release(context.WithoutCancel(ctx)), began, end, keys)
}

// byContext is the Text of a hold that ended by its context.
const byContext = "lost"

// released writes down the result of the call that gave up a lock.
func (w *worker) released(ctx context.Context, call string, err error, began time.Time, end history.Event,
	keys []string) {
	end.Op, end.At = history.Released, now()
	if err != nil {
		w.judge(call, err, ctx, began)
	}
	if errors.Is(err, compat.ErrLost) && end.Text != byContext {
		lost := end
		lost.Op, lost.Text = history.Lost, err.Error()
		w.tell(lost, keys)
	}
	w.tell(end, keys)
}

// over reports whether a context has ended, or is past its deadline because its timer is late.
func over(ctx context.Context) bool {
	at, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(at)
}

// judge writes down an error that no fault of the server or the network explains.
func (w *worker) judge(call string, err error, ctx context.Context, began time.Time) {
	took := time.Since(began)
	why := ""
	switch {
	case w.o.Mixed && call == "Lock" && errors.Is(err, compat.ErrUnsafeServer): // a held lock goes on there
	case errors.Is(err, compat.ErrUnsafeServer), errors.Is(err, compat.ErrForeign), errors.Is(err, compat.ErrInvalid), errors.Is(err, compat.ErrClosed):
		why = "nothing explains it"
	case (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !over(ctx):
		why = "the caller's context goes on"
	case errors.Is(err, compat.ErrReleased), errors.Is(err, compat.ErrHandedOff), errors.Is(err, compat.ErrDetached):
		why = "nobody gave it up"
	case call != "Lock" && errors.Is(err, compat.ErrHeld):
		why = "it is ours"
	case call == "Lock" && took > 60*time.Second:
		why = "it took " + took.String()
	}
	if why != "" {
		w.d.write(history.Event{Op: wrong, Text: fmt.Sprintf("%s says %q after %v: %s", call, err, took, why)})
	}
}
