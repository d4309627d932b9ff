// Package faulty loses, delays and answers commands on purpose, between a client and its server. A
// test hands a [Network] a [Hook], which decides what becomes of each command.
//
// The commands of a write are delivered one by one, so that a fault can cut a pipeline in two, when
// their sender waits for the first reply. The connections of a network behave as redigo's: one
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
)

// A Message is one command on its way.
type Message struct {
	N     int      // counted from 1 since [Network.Expect], over all connections
	At    int      // the position in its write, from 0
	Write []string // the names of all commands of that write
	Name  string
	Args  []any
}

func (m Message) String() string {
	return strings.TrimSpace(fmt.Sprintln(append([]any{m.Name}, m.Args...)...))
}

// A Hook says what becomes of a message. A network calls it for one message at a time. It may act and change
// the network, but must neither wait nor send anything through the network: [Fate.Serve] may.
type Hook func(Message) Fate

// A Fate is what becomes of a message: that of the zero value arrives, and so does its reply.
type Fate struct {
	Loss   Loss
	Err    error         // the connection's, if it breaks; nil: [io.ErrUnexpectedEOF]
	Cut    bool          // nothing arrives from then on, as after [Network.Cut]
	Before time.Duration // on its way there
	After  time.Duration // its reply's way back

	// Serve, if not nil, answers in place of the server: run has the server run the message, or the
	// command that it is given. An error that is no server's ends the connection.
	Serve func(run func(cmd ...any) any) any
}

// Forever is a delay that ends with the client's patience alone.
const Forever = time.Duration(math.MaxInt64)

// A Loss is what is lost of a message, and the connection with it.
type Loss int

const (
	None        Loss = iota
	LostRequest      // it never arrives
	LostReply        // it runs
	LateRequest      // it arrives, with the rest of its write, at [Network.DeliverLate]
)

func (l Loss) String() string {
	return [...]string{"none", "request lost", "reply lost", "request late"}[l]
}

// At befalls the n-th message.
func (f Fate) At(n int) Hook {
	return func(m Message) Fate {
		if m.N == n {
			return f
		}
		return Fate{}
	}
}

// Of befalls each message with one of the names.
func (f Fate) Of(names ...string) Hook {
	return func(m Message) Fate {
		if slices.Contains(names, m.Name) {
			return f
		}
		return Fate{}
	}
}

// Always befalls every message.
func (f Fate) Always() Hook { return func(Message) Fate { return f } }

// First is the fate of a message before which act is called.
func First(act func()) Fate {
	return Fate{Serve: func(run func(...any) any) any { act(); return run() }}
}

// Then is the fate of a message that has run when act is called.
func Then(act func()) Fate {
	return Fate{Serve: func(run func(...any) any) any { defer act(); return run() }}
}

// Answer is the fate of a message that is answered so, and that the server does not see.
func Answer(reply any) Fate { return Fate{Serve: func(func(...any) any) any { return reply }} }

// Over returns c with a hook.
func Over(c redis.Conn, h Hook) redis.Conn {
	n := new(Network)
	n.Expect(h)
	return n.Conn(c)
}

// A Network is what lies between its clients and their servers. The zero value loses nothing.
type Network struct {
	hooks sync.Mutex // held while one runs

	mu     sync.Mutex
	hook   Hook
	dial   func(context.Context) error
	closed func()
	waits  []context.CancelFunc // of those that dial
	held   int                  // dials that OnDial has, and messages that wait for ever
	down   bool
	sent   []Message
	writes int
	open   int
	late   []func()
}

// set changes n.
func (n *Network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// read returns what is at v, which is n's.
func read[T any](n *Network, v *T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return *v
}

// Expect has h decide from here on, from where messages and writes are counted; nil: all arrive. What was cut is
// whole again.
func (n *Network) Expect(h Hook) {
	n.set(func() { n.hook, n.down, n.sent, n.writes = h, false, nil, 0 })
}

// OnDial has f called before each connection is made: its error is that of the dial. Its context ends
// with [Network.Clear], too.
func (n *Network) OnDial(f func(context.Context) error) { n.set(func() { n.dial = f }) }

// OnClose has f called when a connection is closed, and when one that was dialled could not be made.
func (n *Network) OnClose(f func()) { n.set(func() { n.closed = f }) }

func (n *Network) ended() {
	if closed := read(n, &n.closed); closed != nil {
		closed()
	}
}

// Hang is for [Network.OnDial]: nobody answers a dial.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Cut lets nothing arrive, and nobody connect.
func (n *Network) Cut() { n.set(func() { n.down = true }) }

// Mend ends what Cut began.
func (n *Network) Mend() { n.set(func() { n.down = false }) }

// Clear ends all faults; a dial that hangs is refused.
func (n *Network) Clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, end := range n.waits {
		end()
	}
	n.hook, n.dial, n.down, n.waits = nil, nil, false, nil
}

// DeliverLate delivers what was late until now.
func (n *Network) DeliverLate() {
	n.mu.Lock()
	late := n.late
	n.late = nil
	n.mu.Unlock()
	for _, deliver := range late {
		deliver()
	}
}

// Sent returns the messages that were sent, or lost, since [Network.Expect].
func (n *Network) Sent() []Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sent)
}

// Names returns their names, with a blank between them.
func (n *Network) Names() string {
	var names []string
	for _, m := range n.Sent() {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

// Count returns how many they are.
func (n *Network) Count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sent)
}

// Writes returns in how many writes they were sent.
func (n *Network) Writes() int { return read(n, &n.writes) }

// Hanging returns how many dials a function of [Network.OnDial] has not let go, and how many messages are delayed
// [Forever].
func (n *Network) Hanging() int { return read(n, &n.held) }

// hold counts what hangs.
func (n *Network) hold(more int) { n.set(func() { n.held += more }) }

// Open returns how many connections were made and not closed.
func (n *Network) Open() int { return read(n, &n.open) }

// A Pool hands out connections to one server.
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

// A Getter gets a connection to the server of a key, as that of a compat.Source does.
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
		n.waits = append(n.waits, end)
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

// A wire is what one connection goes over.
type wire struct {
	net  *Network
	to   redis.Conn
	left bool // what was sent over it is late; under net.mu
}

// end closes the connection. One that broke is closed for good, also if it is a pool's.
func (w *wire) end(broke bool) {
	w.net.mu.Lock()
	if !broke {
		w.net.open--
		defer w.net.ended()
	}
	left := w.left
	w.net.mu.Unlock()
	if left {
		return
	}
	if broke {
		past, end := context.WithDeadline(context.Background(), time.Unix(0, 0))
		defer end()
		redis.DoContext(w.to, past, "") //nolint:errcheck // it breaks, and sends nothing
	}
	w.to.Close()
}

func (w *wire) carry(ctx context.Context, write [][]any) ([]any, error) {
	names := make([]string, len(write))
	for i, cmd := range write {
		names[i] = cmd[0].(string)
	}
	w.net.set(func() { w.net.writes++ })
	at := ctx // the server
	if ctx.Err() != nil {
		at = context.WithoutCancel(ctx) // what is sent runs
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

// fate gives m its number, and asks what becomes of it.
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

// deliver carries one message there and its reply back; rest is it and what is behind it in its write.
func (w *wire) deliver(ctx, at context.Context, m Message, f Fate, rest [][]any) (any, error) {
	lost := f.Err
	if lost == nil {
		lost = io.ErrUnexpectedEOF
	}
	if f.Loss == LateRequest {
		w.leave(rest)
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
		do := w.to.Do // of a test's own connection
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

// leave keeps what is to arrive late.
func (w *wire) leave(cmds [][]any) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.left = true
	w.net.late = append(w.net.late, func() {
		for _, cmd := range cmds {
			w.to.Do(cmd[0].(string), cmd[1:]...) //nolint:errcheck // nobody reads the reply
			if err := w.to.Err(); err != nil {
				panic("what is late does not arrive: " + err.Error())
			}
		}
		w.to.Close()
	})
}

// delay delays a message.
func (n *Network) delay(ctx context.Context, d time.Duration) error {
	if d == Forever {
		n.hold(1)
		defer n.hold(-1)
	}
	return Pause(ctx, d)
}

// Pause lets time pass while ctx goes on.
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
