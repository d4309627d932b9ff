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
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A fate is the network's treatment of a message.
type fate uint8

const (
	arrives        fate = iota
	slow                // the message takes long, and arrives
	requestLost         // the message never arrives, and the connection breaks
	replyLost           // the message runs, and the connection breaks
	late                // the connection breaks, and the message arrives later
	torn                // some commands of the message run, and the connection breaks
	swallowed           // the message never arrives, and the sender waits
	replySwallowed      // the message runs, and the sender waits
	lateSwallowed       // the sender waits and gives up, and the message arrives later
	fates
)

func (f fate) String() string {
	return [...]string{"arrives", "is slow", "request lost", "reply lost", "arrives late", "torn", "request swallowed", "reply swallowed", "swallowed, and arrives late"}[f]
}

// Faults has the frequency of each fault.
type Faults struct {
	Name    string
	Message [fates]float64 // the probability of each fate but the first
	Burst   float64        // the probability of another fault for a message within two seconds of one, of the same process
	Every   time.Duration  // the mean time between two misfortunes of a server or a process; 0: no misfortunes
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

// fate returns the fate for a random number x, 0 ≤ x < 1. In a burst, the probabilities of the fates are scaled up to
// a sum of Burst.
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

// draw returns the fate of a process's next message to a server about a key. The fate depends only on the
// seed, the process, the server, the key and the message's number, and not on the order of goroutines
// that wake at the same moment. So a run without one of its faults is the same up to that fault.
func (p *process) draw(server int, what string, cmds []protocol.Cmd) (fate, *rand.Rand) {
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
		if r.IntN(8) == 0 { // the link of the process breaks
			p.cutOff = p.bursts.Add(time.Duration(r.Int64N(int64(longest / 2))))
		}
	}
	w.mu.Unlock() // the judge's mutex comes before w.mu
	if skip {
		return arrives, r
	}
	w.judge.fault(id, "message of P%d to S%d %s: %s", p.id, server, f, words(cmds))
	return f, r
}

// about returns the key of a message, or the name of its first command if it has no key.
func about(cmds []protocol.Cmd) string {
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

// base returns the lock's key for an auxiliary key.
func base(key string) string {
	key, _, _ = strings.Cut(key, ":")
	return key
}

// ofKey is the context key of the lock's key, for a dial.
type ofKey struct{}

// latency draws the duration of a message: half a millisecond, seldom much longer. Two messages almost
// never have the same latency, so events at the same moment are there by design.
func latency(r *rand.Rand) time.Duration {
	d := time.Duration(50_000 + r.ExpFloat64()*400_000)
	if r.IntN(200) == 0 {
		d *= 50
	}
	return d
}

// lateness draws the delay of a late message: between two steps of the sender, or any time up to after
// the end of the lease.
func lateness(r *rand.Rand) time.Duration {
	most := 3 * longest / 2
	if r.IntN(3) == 0 {
		most = 5 * time.Millisecond
	}
	return time.Duration(r.Int64N(int64(most)))
}

// A conn is a connection of a process to a server, through the network.
type conn struct {
	*faulty.Conn
	p     *process
	to    int
	inner redis.Conn
	late  atomic.Bool // a late message still uses inner, and closes it
}

var (
	errCut     = fmt.Errorf("simulate: connection cut: %w", io.ErrUnexpectedEOF)
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
		if err := faulty.Pause(ctx, patience); err != nil {
			return nil, err
		}
		return nil, errTimeout
	}
	if err := faulty.Pause(ctx, latency(r)); err != nil {
		return nil, err
	}
	if f == requestLost || f == torn || p.w.unreachable(s) || p.isDead() {
		return nil, errDial
	}
	c := &conn{p: p, to: to, inner: s.Dial()}
	c.Conn = faulty.Carried(c.carry, c.end)
	c.ReadTimeout = patience
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.conns[c] = true
	return c, nil
}

func (c *conn) Err() error {
	if err := c.Conn.Err(); err != nil || c.late.Load() {
		return err
	}
	return c.inner.Err()
}

// end closes the connection for its client.
func (c *conn) end(broke bool) {
	if !broke {
		c.p.w.set(func() { delete(c.p.conns, c) })
	}
	if !c.late.Load() {
		c.inner.Close()
	}
}

// carry brings a write to the server and the replies back, according to its fate.
func (c *conn) carry(ctx context.Context, write [][]any) ([]any, error) {
	cmds := make([]protocol.Cmd, len(write))
	for i, cmd := range write {
		cmds[i] = cmd
	}
	f, r := c.p.draw(c.to, about(cmds), cmds)
	there, back := latency(r), latency(r)
	if f == slow {
		there += time.Duration(r.Int64N(int64(2 * time.Second)))
		back += time.Duration(r.Int64N(int64(time.Second)))
	}
	there += c.p.standsFor() // a process that stands still sends late
	c.p.w.judge.count("message: " + f.String())
	switch f {
	case requestLost:
		if err := faulty.Pause(ctx, there); err != nil {
			return nil, err
		}
		return nil, errCut
	case swallowed:
		return nil, faulty.Pause(ctx, faulty.Forever)
	case late, lateSwallowed:
		c.late.Store(true)
		c.p.w.late(there+lateness(r), func() {
			c.p.w.set(func() { c.p.befall(0) })
			c.run(cmds)
			c.inner.Close()
		})
		if f == lateSwallowed {
			return nil, faulty.Pause(ctx, faulty.Forever)
		}
		return nil, errCut
	case torn:
		if len(cmds) > 1 {
			cmds = cmds[:1+r.IntN(len(cmds)-1)]
		}
	}
	if err := faulty.Pause(ctx, there); err != nil {
		return nil, err
	}
	if f == torn || f == replyLost {
		c.run(cmds)
		return nil, errCut
	}
	if f == replySwallowed {
		c.run(cmds)
		return nil, faulty.Pause(ctx, faulty.Forever)
	}
	replies, err := c.blocking(ctx, cmds)
	if err == nil {
		err = faulty.Pause(ctx, back)
	}
	if err == nil {
		err = c.inner.Err() // a cut while the reply was under way
	}
	if err != nil && ctx.Err() != nil {
		err = faulty.Cause(ctx)
	}
	return replies, err
}

// run runs cmds on the server. The judge's mutex is held all the time, so c's process has made every
// change that the judge finds afterwards.
func (c *conn) run(cmds []protocol.Cmd) (replies []any) {
	s, j := c.p.w.servers[c.to], c.p.w.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range cmds {
		name := m[0].(string)
		if name == "BLPOP" { // no client waits for the reply
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
			reply, err = c.inner.Do(name, m[1:]...)
			s.replica.ran(s.Server)
		}
		if c.inner.Err() != nil {
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

// blocking runs cmds for a client that may wait at a BLPOP.
func (c *conn) blocking(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
	last := cmds[len(cmds)-1]
	name := last[0].(string)
	if name != "BLPOP" {
		replies := c.run(cmds)
		if err := c.inner.Err(); err != nil || len(replies) < len(cmds) {
			return nil, errCut
		}
		return replies, nil
	}
	replies := c.run(cmds[:len(cmds)-1])
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

// words returns the commands of a message, cut after 300 bytes.
func words(cmds []protocol.Cmd) string {
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
