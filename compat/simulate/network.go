package simulate

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A fate is what becomes of a message.
type fate uint8

const (
	arrives        fate = iota
	slow                // it takes long, and arrives
	requestLost         // it never arrives, and the connection breaks
	replyLost           // it runs, and the connection breaks
	late                // the connection breaks, and what was sent arrives later
	torn                // some of its commands run, and the connection breaks
	swallowed           // it never arrives, and the sender waits
	replySwallowed      // it runs, and the sender waits
	lateSwallowed       // the sender waits, gives up, and what was sent arrives later
	fates
)

func (f fate) String() string {
	return [...]string{"arrives", "is slow", "request lost", "reply lost", "arrives late", "torn", "request swallowed", "reply swallowed", "swallowed, and arrives late"}[f]
}

// Faults are how much goes wrong.
type Faults struct {
	Name    string
	Message [fates]float64 // the probability of each fate but the first
	Burst   float64        // the probability that another one befalls what a process sends within two seconds of one
	Every   time.Duration  // between two misfortunes of a server or a process; 0: there are none
	Forget  bool           // servers may lose their keys
}

var profiles = []Faults{
	{Name: "calm"},
	{Name: "losses", Message: [fates]float64{slow: .02, requestLost: .02, replyLost: .03, torn: .02}, Every: 20 * time.Second},
	{Name: "late", Message: [fates]float64{slow: .05, late: .03, lateSwallowed: .02}, Every: 30 * time.Second},
	{Name: "swallows", Message: [fates]float64{slow: .02, swallowed: .02, replySwallowed: .02}, Every: 30 * time.Second},
	{Name: "all", Message: [fates]float64{slow: .02, requestLost: .02, replyLost: .02, late: .02, torn: .01, swallowed: .01, replySwallowed: .01, lateSwallowed: .01}, Every: 5 * time.Second},
	{Name: "bursts", Message: [fates]float64{slow: .002, requestLost: .004, replyLost: .01, late: .006, torn: .002, swallowed: .002, replySwallowed: .004, lateSwallowed: .002}, Burst: .5, Every: 20 * time.Second},
	{Name: "mishaps", Every: 2 * time.Second},
	{Name: "forgets", Message: [fates]float64{replyLost: .01, late: .01}, Every: 5 * time.Second, Forget: true},
}

// fate is the one that the number x, of less than 1, stands for. In a burst each comes as much more often as
// makes them Burst together.
func (fs Faults) fate(x float64, burst bool) fate {
	more := 1.
	if burst && fs.Burst > 0 {
		sum := 0.
		for _, p := range fs.Message {
			sum += p
		}
		more = fs.Burst / sum
	}
	for f := slow; f < fates; f++ {
		if x -= more * fs.Message[f]; x < 0 {
			return f
		}
	}
	return arrives
}

// draw is the fate of a process's next message to a server about a key. It depends on the seed,
// these three and the message's number alone: not on the order in which goroutines come to run that
// wake at the same moment, and a run without one of its faults is the same up to there.
func (p *process) draw(server int, what string, cmds []compat.Cmd) (fate, *rand.Rand) {
	w := p.w
	w.mu.Lock()
	line := strconv.Itoa(server) + what
	p.messages[line]++
	n := p.messages[line]
	h := fnv.New64a()
	h.Write([]byte(line))
	r := rand.New(rand.NewPCG(w.Seed*1000003+uint64(p.id), h.Sum64()+uint64(n)))
	f := w.Faults.fate(r.Float64(), time.Since(p.bursts) < 2*time.Second)
	switch {
	case w.calm:
		f = arrives
	case p.crashed:
		w.mu.Unlock()
		return requestLost, r
	case time.Now().Before(p.cutOff):
		p.befall(0)
		w.mu.Unlock()
		return requestLost, r
	}
	if f == arrives {
		w.mu.Unlock()
		return arrives, r
	}
	id := fmt.Sprintf("P%d-S%d %s#%d", p.id, server, what, n)
	skip := w.Skip[id]
	if !skip {
		p.befall(0)
		p.bursts = time.Now()
		if r.IntN(8) == 0 { // that was the last before its link broke
			p.cutOff = p.bursts.Add(time.Duration(r.Int64N(int64(longest / 2))))
		}
	}
	w.mu.Unlock() // the judge locks its own first
	if skip {
		return arrives, r
	}
	w.judge.fault(id, "message of P%d to S%d %s: %s", p.id, server, f, words(cmds))
	return f, r
}

// about is the key that a message is about, or what else it is.
func about(cmds []compat.Cmd) string {
	for _, m := range cmds {
		if name := m[0].(string); name == "MULTI" || len(m) < 2 {
			continue
		} else if name == "EVALSHA" || name == "EVAL" {
			if len(m) > 3 {
				return base(fmt.Sprint(m[3]))
			}
		}
		return base(fmt.Sprint(m[1]))
	}
	return fmt.Sprint(cmds[0][0])
}

// base is the key that an auxiliary one belongs to.
func base(key string) string {
	key, _, _ = strings.Cut(key, ":")
	return key
}

// ofKey is the key for which a connection is wanted, in its context.
type ofKey struct{}

// latency is how long a message is under way: half a millisecond, seldom much longer. No two are
// alike, so that what happens at the same moment does so by design.
func latency(r *rand.Rand) time.Duration {
	d := time.Duration(50_000 + r.ExpFloat64()*400_000)
	if r.IntN(200) == 0 {
		d *= 50
	}
	return d
}

// lateness is how much later what was sent arrives: between two steps of whoever has given it up, or
// at any time, up to after the lease.
func lateness(r *rand.Rand) time.Duration {
	most := 3 * longest / 2
	if r.IntN(3) == 0 {
		most = 5 * time.Millisecond
	}
	return time.Duration(r.Int64N(int64(most)))
}

// A conn is a connection of a process to a server, through the network.
type conn struct {
	p       *process
	to      int
	inner   redis.Conn
	pending []compat.Cmd
	sent    []compat.Cmd // flushed, and not delivered yet
	replies []any        // an error among them is a redis.Error
	mu      sync.Mutex
	dead    error
	cut     chan struct{} // closed when it is dead: whoever reads from it learns it
}

var (
	_ redis.ConnWithContext = (*conn)(nil)
	_ redis.ConnWithTimeout = (*conn)(nil)

	errCut     = fmt.Errorf("simulate: connection cut: %w", io.ErrUnexpectedEOF)
	errClosed  = errors.New("simulate: connection closed by its client")
	errDial    = errors.New("simulate: connection refused")
	errTimeout = fmt.Errorf("simulate: read timeout: %w", os.ErrDeadlineExceeded)
)

// patience is a connection's read timeout.
const patience = 10 * time.Second

// dial connects p to a server.
func (p *process) dial(ctx context.Context, to int) (redis.Conn, error) {
	f, r := p.draw(to, fmt.Sprint("dial for ", ctx.Value(ofKey{})), nil)
	s := p.w.servers[to]
	if f == swallowed || f == replySwallowed || f == lateSwallowed {
		if err := pause(ctx, patience); err != nil {
			return nil, err
		}
		return nil, errTimeout
	}
	if err := pause(ctx, latency(r)); err != nil {
		return nil, err
	}
	if f == requestLost || f == torn || p.w.unreachable(s) || p.isDead() {
		return nil, errDial
	}
	c := &conn{p: p, to: to, inner: s.Dial(), cut: make(chan struct{})}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.conns[c] = true
	return c, nil
}

// pause lets time pass, while ctx goes on.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return c.dead
	}
	return c.inner.Err()
}

func (c *conn) Close() error {
	c.p.w.mu.Lock()
	open := c.p.conns[c]
	delete(c.p.conns, c)
	c.p.w.mu.Unlock()
	if !open {
		return nil
	}
	c.die(errClosed) //nolint:errcheck // its own
	return nil
}

// die is the end of the connection, as its client sees it.
func (c *conn) die(why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.dead = why
		c.inner.Close()
		close(c.cut)
	}
	return why
}

// leave is the end of the connection for its client alone: what it sent last is under way.
func (c *conn) leave(why error) redis.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	inner := c.inner
	c.inner = closedConn{}
	if c.dead == nil && why != nil {
		c.dead = why
		close(c.cut)
	}
	return inner
}

func (c *conn) Send(name string, args ...any) error {
	if err := c.Err(); err != nil {
		return err
	}
	c.pending = append(c.pending, append(compat.Cmd{name}, args...))
	return nil
}

func (c *conn) Flush() error {
	if err := c.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.pending = append(c.sent, c.pending...), nil
	return nil
}

func (c *conn) Do(name string, args ...any) (any, error) {
	return c.do(context.Background(), 0, name, args)
}

func (c *conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.die(err) // as redigo does it
	}
	return c.do(ctx, 0, name, args)
}

func (c *conn) DoWithTimeout(limit time.Duration, name string, args ...any) (any, error) {
	return c.do(context.Background(), limit, name, args)
}

func (c *conn) do(ctx context.Context, limit time.Duration, name string, args []any) (any, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if name != "" {
		c.pending = append(c.pending, append(compat.Cmd{name}, args...))
	}
	c.mu.Lock()
	c.sent, c.pending = append(c.sent, c.pending...), nil
	c.mu.Unlock()
	if err := c.deliver(ctx, limit); err != nil {
		return nil, err
	}
	replies := c.replies
	c.replies = nil
	return answer.Do(name, replies)
}

func (c *conn) Receive() (any, error) { return c.receive(context.Background(), 0) }
func (c *conn) ReceiveContext(ctx context.Context) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.die(err) // as redigo does it
	}
	return c.receive(ctx, 0)
}
func (c *conn) ReceiveWithTimeout(limit time.Duration) (any, error) {
	return c.receive(context.Background(), limit)
}

func (c *conn) receive(ctx context.Context, limit time.Duration) (any, error) {
	if len(c.replies) == 0 {
		if err := c.Err(); err != nil {
			return nil, err
		}
		if err := c.deliver(ctx, limit); err != nil {
			return nil, err
		}
	}
	if len(c.replies) == 0 {
		return nil, c.die(errTimeout) // nothing was asked
	}
	r := c.replies[0]
	c.replies = c.replies[1:]
	return answer.Receive(r)
}

// deliver brings what was sent to the server, and the replies back, or does to them what their
// fate is.
func (c *conn) deliver(ctx context.Context, limit time.Duration) error {
	c.mu.Lock()
	cmds := c.sent
	c.sent = nil
	c.mu.Unlock()
	if len(cmds) == 0 {
		return nil
	}
	if limit == 0 {
		limit = patience
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	f, r := c.p.draw(c.to, about(cmds), cmds)
	there, back := latency(r), latency(r)
	if f == slow {
		there += time.Duration(r.Int64N(int64(2 * time.Second)))
		back += time.Duration(r.Int64N(int64(time.Second)))
	}
	there += c.p.standsFor() // what a process sends that stands still is late
	c.p.w.judge.count("message: " + f.String())
	switch f {
	case requestLost:
		if err := c.wait(ctx, there); err != nil {
			return err
		}
		return c.die(errCut)
	case swallowed:
		return c.wait(ctx, 24*time.Hour)
	case late, lateSwallowed:
		var inner redis.Conn
		var err error = errCut
		if f == late {
			inner = c.leave(errCut)
		} else {
			inner = c.leave(nil)
		}
		c.p.w.late(there+lateness(r), func() {
			c.p.w.set(func() { c.p.befall(0) })
			c.run(inner, cmds)
			inner.Close()
		})
		if f == lateSwallowed {
			err = c.wait(ctx, 24*time.Hour)
		}
		return err
	case torn:
		if len(cmds) > 1 {
			cmds = cmds[:1+r.IntN(len(cmds)-1)]
		}
	}
	if err := c.wait(ctx, there); err != nil {
		return err
	}
	if f == torn || f == replyLost {
		c.run(c.inner, cmds)
		return c.die(errCut)
	}
	if f == replySwallowed {
		c.run(c.inner, cmds)
		return c.wait(ctx, 24*time.Hour)
	}
	replies, err := c.blocking(ctx, cmds)
	if err != nil {
		return c.die(cause(ctx, err))
	}
	if err := c.wait(ctx, back); err != nil {
		return err
	}
	if err := c.inner.Err(); err != nil { // cut while its reply was under way
		return c.die(err)
	}
	c.replies = append(c.replies, replies...)
	return nil
}

// wait is pause; if the client's patience ends, so does the connection.
func (c *conn) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return c.die(cause(ctx, ctx.Err()))
	case <-c.cut:
		return c.Err()
	}
}

// cause tells the read timeout from the caller's own context.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && errors.Is(why, errTimeout) {
		return why
	}
	return err
}

// run has the server run cmds. Nobody looks at the keys in between: what has changed then was c's
// process's doing.
func (c *conn) run(inner redis.Conn, cmds []compat.Cmd) (replies []any) {
	s, j := c.p.w.servers[c.to], c.p.w.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range cmds {
		name := m[0].(string)
		if name == "BLPOP" { // nobody waits for it
			break
		}
		if c.p.w.unreachable(s) {
			break
		}
		var reply any
		var err error
		if name == "WAIT" {
			reply = s.replica.has(s.Server)
		} else {
			reply, err = inner.Do(name, m[1:]...)
			s.replica.ran(s.Server)
		}
		if inner.Err() != nil {
			break
		}
		if err != nil {
			reply = err
		}
		replies = append(replies, reply)
	}
	j.ran(c.p, c.to, cmds, replies)
	return replies
}

// blocking is run for a client that waits, as one does at BLPOP.
func (c *conn) blocking(ctx context.Context, cmds []compat.Cmd) ([]any, error) {
	last := cmds[len(cmds)-1]
	name := last[0].(string)
	if name != "BLPOP" {
		replies := c.run(c.inner, cmds)
		if err := c.inner.Err(); err != nil || len(replies) < len(cmds) {
			return nil, errCut
		}
		return replies, nil
	}
	replies := c.run(c.inner, cmds[:len(cmds)-1])
	if err := c.inner.Send(name, last[1:]...); err != nil {
		return nil, err
	}
	if err := c.inner.Flush(); err != nil {
		return nil, err
	}
	reply, err := c.inner.(redis.ConnWithContext).ReceiveContext(ctx)
	if c.inner.Err() != nil {
		return nil, err
	}
	if err != nil {
		reply = err
	}
	return append(replies, reply), nil
}

// closedConn is what is left of a connection whose last message is still under way.
type closedConn struct{ redis.Conn }

func (closedConn) Err() error   { return nil }
func (closedConn) Close() error { return nil }

// words is what a message says, in short.
func words(cmds []compat.Cmd) string {
	var b strings.Builder
	for i, m := range cmds {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(strings.TrimSuffix(fmt.Sprintln(m...), "\n"))
		if b.Len() > 300 {
			b.WriteString("…")
			break
		}
	}
	return b.String()
}
