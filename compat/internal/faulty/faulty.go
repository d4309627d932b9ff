// Package faulty loses, delays and answers commands on purpose, between a client and its server. A
// test gives a [Network] a [Hook], which decides the fate of each command.
//
// The network delivers the commands of a write one by one, when the client waits for the first reply.
// So a fault can cut a pipeline in two. The connections of a network behave as redigo's: one
// goroutine may send while another receives.
package faulty

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// A Message is one command on its way.
type Message struct {
	N     int      // the number since [Network.Expect], over all connections, from 1
	At    int      // the position in the write, from 0
	Write []string // the names of all commands of the write
	Name  string
	Args  []any
}

func (m Message) String() string {
	return strings.TrimSpace(fmt.Sprintln(append([]any{m.Name}, m.Args...)...))
}

// A Hook decides the fate of a message. A network calls its hook for one message at a time. The hook may change
// the network, but must neither wait nor send anything through the network: [Fate.Serve] may.
type Hook func(Message) Fate

// A Fate says how a network treats a message. With the zero value, the message and its reply arrive.
type Fate struct {
	Loss   Loss
	Err    error         // the connection's error if it breaks; nil: [io.ErrUnexpectedEOF]
	Cut    bool          // cuts the network, as [Network.Cut] does
	Before time.Duration // the delay of the message
	After  time.Duration // the delay of the reply

	// Serve, if not nil, answers in place of the server. run lets the server run the message, or another
	// command. An error that is not a [redis.Error] ends the connection.
	Serve func(run func(cmd ...any) any) any
}

// Forever is a delay that only the client's patience ends.
const Forever = time.Duration(math.MaxInt64)

// A Loss loses a message or its reply, and breaks the connection.
type Loss int

const (
	None        Loss = iota
	LostRequest      // the message never arrives
	LostReply        // the message runs, and its reply is lost
	LateRequest      // the message arrives, with the rest of its write, at [Network.DeliverLate]
)

func (l Loss) String() string {
	return [...]string{"none", "request lost", "reply lost", "request late"}[l]
}

// At gives the n-th message this fate.
func (f Fate) At(n int) Hook {
	return func(m Message) Fate {
		if m.N == n {
			return f
		}
		return Fate{}
	}
}

// Of gives each message with one of the names this fate.
func (f Fate) Of(names ...string) Hook {
	return func(m Message) Fate {
		if slices.Contains(names, m.Name) {
			return f
		}
		return Fate{}
	}
}

// Always gives every message this fate.
func (f Fate) Always() Hook { return func(Message) Fate { return f } }

// First returns a fate: act is called, then the message runs.
func First(act func()) Fate {
	return Fate{Serve: func(run func(...any) any) any { act(); return run() }}
}

// Then returns a fate: the message runs, then act is called.
func Then(act func()) Fate {
	return Fate{Serve: func(run func(...any) any) any { defer act(); return run() }}
}

// Answer returns a fate: the client gets reply, and the server does not see the message.
func Answer(reply any) Fate { return Fate{Serve: func(func(...any) any) any { return reply }} }

// Over returns c through a network with the hook h.
func Over(c redis.Conn, h Hook) redis.Conn {
	n := new(Network)
	n.Expect(h)
	return n.Conn(c)
}

// A Network carries commands between its clients and their servers. The zero value loses nothing.
type Network struct {
	hooks sync.Mutex // held while a hook runs

	mu     sync.Mutex
	hook   Hook
	dial   func(context.Context) error
	closed func()
	dials  []context.CancelFunc // end the calls of dial that are under way
	held   int                  // calls of dial, and messages that are delayed Forever
	down   bool
	sent   []Message
	writes int
	open   int
	late   []func()
}

// set calls change under n.mu.
func (n *Network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// read returns *v, a field of n, under n.mu.
func read[T any](n *Network, v *T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *v
}

// Expect makes h decide from now on, mends the network, and starts the counts of messages and writes anew. With a nil
// hook, all messages arrive.
func (n *Network) Expect(h Hook) {
	n.set(func() { n.hook, n.down, n.sent, n.writes = h, false, nil, 0 })
}

// OnDial makes the network call f before it makes a connection. An error of f is the error of the dial. The context
// of f ends with [Network.Clear], too.
func (n *Network) OnDial(f func(context.Context) error) { n.set(func() { n.dial = f }) }

// OnClose makes the network call f when a client closes a connection, and when a dial fails.
func (n *Network) OnClose(f func()) { n.set(func() { n.closed = f }) }

func (n *Network) ended() {
	if closed := read(n, &n.closed); closed != nil {
		closed()
	}
}

// Hang is an argument of [Network.OnDial]: no dial gets an answer.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Cut loses every message from now on, and refuses every connection.
func (n *Network) Cut() { n.set(func() { n.down = true }) }

// Mend ends a Cut.
func (n *Network) Mend() { n.set(func() { n.down = false }) }

// Clear ends all faults, and refuses hanging dials.
func (n *Network) Clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, end := range n.dials {
		end()
	}
	n.hook, n.dial, n.down, n.dials = nil, nil, false, nil
}

// DeliverLate delivers the late messages.
func (n *Network) DeliverLate() {
	n.mu.Lock()
	late := n.late
	n.late = nil
	n.mu.Unlock()
	for _, deliver := range late {
		deliver()
	}
}

// Sent returns the messages since [Network.Expect], lost ones included.
func (n *Network) Sent() []Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// Names returns the names of the messages of [Network.Sent], with a blank between them.
func (n *Network) Names() string {
	var names []string
	for _, m := range n.Sent() {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

// Count returns the number of messages since [Network.Expect].
func (n *Network) Count() int { return len(read(n, &n.sent)) }

// Writes returns the number of writes since [Network.Expect].
func (n *Network) Writes() int { return read(n, &n.writes) }

// Hanging returns the number of calls of the function of [Network.OnDial] that are under way, and of messages that
// are delayed [Forever].
func (n *Network) Hanging() int { return read(n, &n.held) }

// hold adds to the count of Hanging.
func (n *Network) hold(more int) { n.set(func() { n.held += more }) }

// Open returns the number of open connections.
func (n *Network) Open() int { return read(n, &n.open) }

// A Pool provides connections to one server.
type Pool interface {
	GetContext(context.Context) (redis.Conn, error)
}

// Pool returns p through the network.
func (n *Network) Pool(p Pool) Pool { return pool{n, p} }

type pool struct {
	net *Network
	p   Pool
}

func (p pool) GetContext(ctx context.Context) (redis.Conn, error) {
	return p.net.get(ctx, p.p.GetContext)
}

// A Getter gets a connection to the server of a key, as a compat.Source does.
type Getter = func(ctx context.Context, key string) (redis.Conn, error)

// Get returns get through the network.
func (n *Network) Get(get Getter) Getter {
	return func(ctx context.Context, key string) (redis.Conn, error) {
		return n.get(ctx, func(ctx context.Context) (redis.Conn, error) { return get(ctx, key) })
	}
}

func (n *Network) get(ctx context.Context, get func(context.Context) (redis.Conn, error)) (redis.Conn, error) {
	n.mu.Lock()
	dial := n.dial
	within, end := context.WithCancel(ctx)
	defer end()
	if dial != nil {
		n.dials = append(n.dials, end)
	}
	n.mu.Unlock()
	if dial != nil {
		n.hold(1)
		err := dial(within)
		n.hold(-1)
		if err != nil && within.Err() != nil && ctx.Err() == nil {
			return nil, syscall.ECONNREFUSED
		} else if err != nil {
			return nil, err
		}
	}
	if read(n, &n.down) {
		return nil, syscall.ECONNREFUSED
	}
	c, err := get(ctx)
	if err != nil {
		n.ended()
		return nil, err
	}
	return n.Conn(c), nil
}

// Conn returns c through the network.
func (n *Network) Conn(c redis.Conn) redis.Conn {
	n.set(func() { n.open++ })
	w := &wire{net: n, to: c}
	return Carried(w.carry, w.end)
}

// A wire carries the commands of one connection.
type wire struct {
	net  *Network
	to   redis.Conn
	late bool // DeliverLate still uses to, and closes it; under net.mu
}

// end closes the connection, or breaks it: also beside a Do of another goroutine. A broken connection of a pool does not
// return to the pool.
func (w *wire) end(broke bool) {
	w.net.mu.Lock()
	late := w.late
	if !broke {
		w.net.open--
		defer w.net.ended()
	}
	w.net.mu.Unlock()
	switch {
	case late:
	case broke:
		redis.ReceiveContext(w.to, limit.Past) //nolint:errcheck // breaks it
	default:
		w.to.Close()
	}
}

func (w *wire) carry(ctx context.Context, write [][]any) ([]any, error) {
	names := make([]string, len(write))
	for i, cmd := range write {
		names[i] = cmd[0].(string)
	}
	w.net.set(func() { w.net.writes++ })
	at := ctx // for the server
	if ctx.Err() != nil {
		at = context.WithoutCancel(ctx) // a command that was sent runs
	}
	replies := make([]any, len(write))
	for i, cmd := range write {
		m := Message{At: i, Write: names, Name: names[i], Args: cmd[1:]}
		reply, err := w.deliver(ctx, at, m, w.net.fate(&m), write[i:])
		if err != nil {
			return nil, err
		}
		replies[i] = reply
	}
	return replies, nil
}

// fate gives m its number, and asks the hook for its fate.
func (n *Network) fate(m *Message) Fate {
	n.hooks.Lock()
	defer n.hooks.Unlock()
	n.mu.Lock()
	m.N = len(n.sent) + 1
	n.sent = append(n.sent, *m)
	down, hook := n.down, n.hook
	n.mu.Unlock()
	switch {
	case down:
		return Fate{Loss: LostRequest}
	case hook == nil:
		return Fate{}
	}
	f := hook(*m)
	if f.Cut {
		n.Cut()
	}
	return f
}

// deliver carries one message to the server and its reply back. rest is the message and the commands behind it in its
// write.
func (w *wire) deliver(ctx, at context.Context, m Message, f Fate, rest [][]any) (any, error) {
	lost := f.Err
	if lost == nil {
		lost = io.ErrUnexpectedEOF
	}
	if f.Loss == LateRequest {
		w.postpone(rest)
	}
	if err := w.net.delay(ctx, f.Before); err != nil {
		return nil, err
	}
	if f.Loss == LostRequest || f.Loss == LateRequest {
		return nil, lost
	}
	run := func(cmd ...any) any {
		if len(cmd) == 0 {
			cmd = append([]any{m.Name}, m.Args...)
		}
		do := w.to.Do // the fake connection of a test has no DoContext
		if to, ok := w.to.(redis.ConnWithContext); ok {
			do = func(name string, args ...any) (any, error) { return to.DoContext(at, name, args...) }
		}
		reply, err := do(cmd[0].(string), cmd[1:]...)
		if err != nil {
			return err
		}
		return reply
	}
	serve := f.Serve
	if serve == nil {
		serve = func(run func(...any) any) any { return run() }
	}
	reply := serve(run)
	broken := w.to.Err()
	if err, failed := reply.(error); failed && !answer.Refused(err) {
		broken = err
	}
	switch {
	case broken != nil && ctx.Err() != nil:
		return nil, Cause(ctx)
	case broken != nil:
		return nil, broken
	}
	if err := w.net.delay(ctx, f.After); err != nil {
		return nil, err
	}
	if f.Loss == LostReply {
		return nil, lost
	}
	return reply, nil
}

// postpone keeps cmds for DeliverLate.
func (w *wire) postpone(cmds [][]any) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.late = true
	w.net.late = append(w.net.late, func() {
		for _, cmd := range cmds {
			w.to.Do(cmd[0].(string), cmd[1:]...) //nolint:errcheck // nobody reads the reply
			if err := w.to.Err(); err != nil {
				panic("a late command does not arrive: " + err.Error())
			}
		}
		w.to.Close()
	})
}

// delay waits for d, or for the end of ctx, and counts a delay of Forever as hanging.
func (n *Network) delay(ctx context.Context, d time.Duration) error {
	if d == Forever {
		n.hold(1)
		defer n.hold(-1)
	}
	return Pause(ctx, d)
}

// Pause waits for d. If ctx ends before, Pause returns its [Cause].
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	var over <-chan time.Time
	if d < Forever {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return Cause(ctx)
	}
}
