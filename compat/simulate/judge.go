package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A judge watches a run and says what is wrong:
//
//   - exclusion: no two clients believe at once that they hold a key, unless both are readers;
//   - ownership: while a client believes, the key is there and was last changed by its process;
//   - fences grow with each acquisition of a key, and never fall while it is held; no writer's lies between that of a
//     writer and that of the reader which it became;
//   - no context outlives its lease;
//   - accuracy: each error is true (ErrHeld: somebody did; ErrLost: it is gone or its time was up;
//     ErrTimeout: a limit did run out; ctx.Err: the caller's did; others never come, or only where
//     something went wrong), and so is nil;
//   - no call takes longer than its limits allow, and nobody waits for a key that is free;
//   - when nothing goes wrong any more, every key can be had, and nothing is left (world.finale).
//
// A client believes while its Lock's context goes on and Until is ahead, from the call that
// returned the Lock to the one that gives it up. A server that forgot its keys excuses what
// follows from that; it is counted.
type judge struct {
	w  *world
	mu sync.Mutex
	r  Report

	held  map[*holding]bool
	fence map[string]int64
	keys  map[string]*keyState
	wrote map[string]*process // whose each value on an owned key was first
	downs map[string][]turned
	alone map[string][]int64 // the fences of all who had a key alone

	waiting map[*call]bool // calls of Lock

	eyes []redis.Conn // an onlooker's connection to each server

	amnesia time.Time // when a server last forgot its keys

	shown  string // the key of which the trace tells
	events []race.Event
}

// A holding is one client's belief.
type holding struct {
	x     *worker
	c     client
	lock  *compat.Lock
	key   string
	over  bool // given up by its holder
	given bool // … who has given its handle to be released, and can't take that back
	dead  bool // its process has crashed
	began time.Time
	hands int    // of the key, when it was taken
	epoch uint64 // of the server, then
	fence int64
	calls []context.Context // of the calls on it: one that ended in between leaves its outcome open
}

// A keyState is what is true of a key of an owned Kind.
type keyState struct {
	value   string
	there   bool
	by      *process   // who changed its value last
	hands   []*process // each time that it went from one process to another, or was gone: who removed it; nil: nobody, or time
	existed time.Time  // when it was seen last
}

func newJudge(w *world) *judge {
	j := &judge{w: w, held: map[*holding]bool{}, fence: map[string]int64{}, keys: map[string]*keyState{}, waiting: map[*call]bool{},
		wrote: map[string]*process{}, downs: map[string][]turned{}, alone: map[string][]int64{}}
	j.r.Runs, j.r.Counts = 1, map[string]int{}
	j.shown = w.keys()[0]
	j.eyes = make([]redis.Conn, len(w.servers))
	for _, key := range w.keys() {
		j.keys[key] = new(keyState)
	}
	return j
}

// at is a moment in seconds since the run began.
func (w *world) at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.4f", t.Sub(w.start).Seconds())
}

func (j *judge) count(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.r.Counts[what]++
}

func (j *judge) note(format string, args ...any) {
	if !j.w.Trace {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line(format, args...)
}

// line is note; j.mu is held.
func (j *judge) line(format string, args ...any) {
	if j.w.Trace {
		j.r.Lines = append(j.r.Lines, j.w.at(time.Now())+"  "+fmt.Sprintf(format, args...))
	}
}

func (j *judge) fault(id, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.r.Faults = append(j.r.Faults, id)
	j.line(id+" "+format, args...)
	j.event("network", "", "", id+" "+fmt.Sprintf(format, args...))
}

func (j *judge) broken(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.breach(format, args...)
}

// breach is broken; j.mu is held.
func (j *judge) breach(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.r.Broken = append(j.r.Broken, fmt.Sprintf("at %s s: %s", j.w.at(time.Now()), text))
	j.event("judge", "", "", text)
	j.line("BROKEN: %s", text)
}

func (j *judge) report() Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.r.Virtual = time.Since(j.w.start)
	if j.w.Trace {
		j.r.Trace = j.trace()
	}
	return j.r
}

// believes reports whether h's client may work under it now.
func (h *holding) believes() bool {
	return !h.over && !h.dead && h.lock.Context().Err() == nil && h.c.p.clock.left(h.lock.Until()) > 0
}

// interrupted reports whether the context of a call on h has ended: its outcome may be open.
func (h *holding) interrupted() bool {
	return h != nil && slices.ContainsFunc(h.calls, func(ctx context.Context) bool { return ctx.Err() != nil })
}

// excused reports whether a server has forgotten its keys since h's lease may have begun: one that
// was handed off is older than its holder.
func (j *judge) excused(h *holding) bool { return j.amnesia.After(h.began.Add(-longest)) }

// forgets is about to happen to a server.
func (j *judge) forgets(server int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.amnesia = time.Now()
	for _, k := range j.keys {
		k.there, k.value, k.by = false, "", nil
	}
	j.forget()
}

// forget forgets the fences. j.mu is held.
func (j *judge) forget() {
	clear(j.fence)
	clear(j.downs)
	clear(j.alone)
}

// lags is what a replica does that has taken a server's place: what was written last to a key and to
// those beside it may be missing, but for the fence.
func (j *judge) lags(server int, r *rand.Rand) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.amnesia = time.Now()
	keys, _ := redis.Strings(j.ask(server, "KEYS", "*"))
	slices.Sort(keys)
	lost := map[string]bool{}
	for _, key := range keys {
		if of := base(key); strings.Contains(key, ":fence") {
			continue
		} else if _, drawn := lost[of]; !drawn {
			lost[of] = r.IntN(2) == 0
		}
		if lost[base(key)] {
			j.ask(server, "DEL", key) //nolint:errcheck // it is there
		}
	}
	if j.w.Kind.Owned {
		j.look(nil)
	}
	j.forget()
}

// promoted puts a server's replica in its place. What was said to be on it is; a value of which it has not
// heard that it is gone is there again.
func (j *judge) promoted(server int, r *rand.Rand) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.w.servers[server]
	s.replica.promoted(s.Server, r)
	j.look(nil)
	for _, k := range j.keys {
		if k.there {
			k.by = j.wrote[k.value]
		}
	}
}

// replica cuts a server's replica off, or has it follow again.
func (j *judge) replica(server int, follows bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.servers[server].replica.cutOff = !follows
}

// chosen is told of the Options of a Locker.
func (j *judge) chosen(o compat.Options) {
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			j.count("option: " + v.Type().Field(i).Name)
		}
	}
}

func (j *judge) crashed(p *process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for h := range j.held {
		if h.c.p == p {
			h.dead = true
			delete(j.held, h)
		}
	}
}

// holds is told of a lock that a client has just got.
func (j *judge) holds(x *worker, c client, l *compat.Lock, key string) *holding {
	l.Context() // somebody works in it
	j.mu.Lock()
	defer j.mu.Unlock()
	h := &holding{x: x, c: c, lock: l, key: key, began: time.Now(), fence: l.Fence()}
	j.r.Sections++
	j.r.Counts["how: "+"got"]++
	if x.p.isDead() || c.life != x.p.lives {
		h.dead = true
		return h
	}
	j.line("%s holds %s until %s, fence %d", x.name, key, j.w.at(l.Until()), l.Fence())
	j.event(x.p.name(), "", "", fmt.Sprintf("%s holds %s", x.name, key))
	if h.believes() {
		for o := range j.held {
			if o.key == key && !(o.c.shared && c.shared) && o.believes() {
				if j.excused(o) {
					j.r.Excused++
					continue
				}
				j.breach("exclusion: %s and %s both hold %s, until %s and %s", o.x.name, x.name, key, j.w.at(o.lock.Until()), j.w.at(l.Until()))
			}
		}
	}
	if j.w.Kind.Fences && !j.excused(h) {
		// Readers come in beside each other: the number of each is higher than that of the writer before it.
		f, last := h.fence, j.fence[key]
		if c.shared {
			last = 0
			if n := len(j.alone[key]); n > 0 {
				last = j.alone[key][n-1]
			}
		}
		if f <= last && l.Context().Err() == nil {
			j.breach("fences: %s got %d for %s, after %d", x.name, f, key, last)
		} else {
			j.fence[key] = max(f, j.fence[key])
			if !c.shared && j.w.Kind.reader != nil {
				j.alone[key] = append(j.alone[key], f)
				j.between(key)
			}
		}
	}
	if j.w.Kind.Owned {
		j.look(nil)
		if k := j.keys[key]; k.there && h.believes() {
			k.by, j.wrote[k.value] = x.p, x.p // adopted: its value is what it was
		}
		h.hands, h.epoch = len(j.keys[key].hands), j.w.servers[0].epoch.Load()
	}
	j.held[h] = true
	j.owns(h)
	return h
}

// A turned is a writer that became a reader: its fence, and the reader's.
type turned struct{ writer, reader int64 }

// downgraded is told that the writer h is the reader l now.
func (j *judge) downgraded(h *holding, l *compat.Lock) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.w.Kind.Fences || j.excused(h) {
		return
	}
	if w, r := h.lock.Fence(), l.Fence(); r <= w {
		j.breach("fences: %s was the writer of %s with %d, and is a reader with %d", h.x.name, h.key, w, r)
	} else {
		j.downs[h.key] = append(j.downs[h.key], turned{w, r})
		j.between(h.key)
	}
}

// between looks for a writer that came in while another became a reader. j.mu is held.
func (j *judge) between(key string) {
	for _, t := range j.downs[key] {
		for _, f := range j.alone[key] {
			if t.writer < f && f < t.reader {
				j.breach("exclusion: there was a writer of %s with the fence %d between one with %d and the reader that it became, with %d", key, f, t.writer, t.reader)
				j.downs[key] = nil
				return
			}
		}
	}
}

// reads has a lock say all that it says of itself, which shows its value to whoever asked.
func (j *judge) reads(h *holding) {
	l := h.lock
	first, fence, key, handle := l.Lease(), l.Fence(), l.Key(), l.Handle()
	gone := l.Context().Err() != nil
	token, until := l.Token(), l.Until()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, read := range []string{"Lease", "Fence", "Key", "Handle", "Context", "Token", "Until"} {
		j.r.Counts[read+": read"]++
	}
	switch {
	case !strings.HasSuffix(key, h.key) || first.Key != key || handle.Key != key:
		j.breach("accuracy: %s: the lock of %s says that it is of %q, %q and %q", h.x.name, h.key, key, first.Key, handle.Key)
	case h.over || gone:
	case token == "" || handle.Token == "" || until.IsZero() || fence < first.Fence:
		j.breach("accuracy: %s: the lock of %s says of itself: %+v, then fence %d, %q, %v", h.x.name, h.key, first, fence, token, until)
	}
}

// over is told that a client gives its lock up, or that it has it still.
func (j *judge) over(h *holding, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.over = over || h.given; h.over {
		delete(j.held, h)
	} else if !h.dead {
		j.held[h] = true
	}
}

// gives is told that a client has given its lock's handle to be released.
func (j *judge) gives(h *holding) {
	j.over(h, true)
	j.mu.Lock()
	defer j.mu.Unlock()
	h.given = true
}

// ran is told that a server has run what a process sent. j.mu is held.
func (j *judge) ran(p *process, server int, cmds []compat.Cmd, replies []any) {
	if j.w.Kind.Owned {
		j.look(p)
	}
	if j.w.Trace {
		cmd, reply := said(cmds, replies)
		j.line("P%d → S%d  %s  → %s", p.id, server, cmd, reply)
		j.event(p.name(), cmd, reply, "")
	}
	for h := range j.held {
		j.owns(h)
		j.fences(h)
		j.lost(h)
	}
}

// ask is an onlooker's question to a server.
func (j *judge) ask(server int, name string, args ...any) (any, error) {
	for {
		if j.eyes[server] == nil {
			j.eyes[server] = j.w.servers[server].Dial()
		}
		reply, err := j.eyes[server].Do(name, args...)
		if j.eyes[server].Err() == nil {
			return reply, err
		}
		j.eyes[server] = nil // it was cut with all others
	}
}

// look reads the keys. What has changed was p's doing; nil: nobody's, but time's.
func (j *judge) look(p *process) {
	for key, k := range j.keys {
		value, err := redis.String(j.ask(0, "GET", j.w.onServer(key)))
		there := err == nil || !errors.Is(err, redis.ErrNil)
		now := time.Now()
		if k.there || there {
			k.existed = now
		}
		if there != k.there || value != k.value {
			if !there || p != k.by {
				remover := p
				if there {
					remover = nil
				}
				k.hands = append(k.hands, remover)
			}
			k.there, k.value, k.by = there, value, p
			if there && p != nil && j.w.Kind.Replicated && j.wrote[value] == nil {
				j.wrote[value] = p
			}
		}
	}
}

// owns checks that what h's client believes is so.
func (j *judge) owns(h *holding) {
	if !j.w.Kind.Owned || !h.believes() {
		return
	}
	k := j.keys[h.key]
	if k.there && k.by == h.c.p {
		return
	}
	if j.excused(h) {
		j.r.Excused++
	} else if k.there {
		j.breach("ownership: %s believes in %s until %s, and P%d has changed it", h.x.name, h.key, j.w.at(h.lock.Until()), who(k.by))
	} else {
		j.breach("ownership: %s believes in %s until %s, and it is gone", h.x.name, h.key, j.w.at(h.lock.Until()))
	}
	delete(j.held, h)
}

// lost checks that a lock which is said to be lost is: somebody has touched its key, or its time is
// up.
func (j *judge) lost(h *holding) {
	if h.over || h.dead || h.lock.Context().Err() == nil {
		return
	}
	delete(j.held, h)
	if why := context.Cause(h.lock.Context()); !j.w.Kind.Owned || !errors.Is(why, compat.ErrLost) || j.excused(h) {
		return
	}
	if left := h.c.p.clock.left(h.lock.Until()); left > time.Second && len(j.keys[h.key].hands) == h.hands {
		j.breach("accuracy: %s has lost %s, it is said; its time is up in %v, and nobody has touched the key", h.x.name, h.key, left)
	}
}

func who(p *process) int {
	if p == nil {
		return -1
	}
	return p.id
}

// show makes replies readable.
func show(replies []any) []any {
	out := make([]any, len(replies))
	for i, r := range replies {
		switch r := r.(type) {
		case []byte:
			out[i] = string(r)
		case []any:
			out[i] = show(r)
		case redis.Error:
			out[i] = "(" + string(r) + ")"
		default:
			out[i] = r
		}
	}
	return out
}

// A call is one call of the API under way.
type call struct {
	j      *judge
	x      *worker
	c      client
	name   string
	key    string
	h      *holding // the lock that it is of; nil: of none
	ctx    context.Context
	ttl    time.Duration
	began  time.Time
	works  time.Duration // in a function of the caller's
	before time.Duration // for how long its process's observers had blocked it until then
	ended  time.Time     // when ctx did; zero: it goes on
	there  bool          // the key was, when the call began
	until  time.Time
	alive  bool // its lock's context went on
}

func (j *judge) call(x *worker, c client, name, key string, ctx context.Context, ttl time.Duration) *call {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line("%s calls %s(%s, %v)", x.name, name, key, ttl)
	j.event(x.p.name(), "", "", fmt.Sprintf("%s calls %s(%s, %v)", x.name, name, key, ttl))
	k := &call{j: j, x: x, c: c, name: name, key: key, ctx: ctx, ttl: ttl, began: time.Now()}
	context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		k.ended = time.Now()
	})
	j.w.mu.Lock()
	k.before = c.p.blocked
	j.w.mu.Unlock()
	if j.w.Kind.Owned {
		j.look(nil)
		k.there = j.keys[key].there
	}
	return k
}

// on is call of a method of a lock.
func (j *judge) on(x *worker, c client, name string, h *holding, ctx context.Context, ttl time.Duration) *call {
	k := j.call(x, c, name, h.key, ctx, ttl)
	j.mu.Lock()
	h.calls = append(h.calls, ctx)
	j.mu.Unlock()
	k.h, k.until, k.alive = h, h.lock.Until(), h.lock.Context().Err() == nil
	return k
}

var named = []struct {
	err  error
	name string
}{
	{compat.ErrReleased, "ErrReleased"}, {compat.ErrHandedOff, "ErrHandedOff"}, {compat.ErrDetached, "ErrDetached"},
	{compat.ErrClosed, "ErrClosed"}, {compat.ErrInvalid, "ErrInvalid"}, {compat.ErrUnsafeServer, "ErrUnsafeServer"},
	{compat.ErrForeign, "ErrForeign"}, {compat.ErrHeld, "ErrHeld"}, {compat.ErrLost, "ErrLost"}, {compat.ErrUnknown, "ErrUnknown"},
	{compat.ErrAborted, "ErrAborted"}, {compat.ErrDenied, "ErrDenied"}, {compat.ErrTimeout, "ErrTimeout"}, {compat.ErrUnanswered, "ErrUnanswered"},
	{errors.ErrUnsupported, "ErrUnsupported"}, {context.Canceled, "Canceled"}, {context.DeadlineExceeded, "DeadlineExceeded"},
}

func nameOf(err error) string {
	if err == nil {
		return "nil"
	}
	for _, n := range named {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	return "another"
}

// running is how long before its end a lease may be said to be lost: its holder has to stop in time.
const running = 250 * time.Millisecond

// end judges what a call returned.
func (k *call) end(err error) {
	j, took := k.j, time.Since(k.began)
	p := k.c.p
	j.mu.Lock()
	defer j.mu.Unlock()
	j.r.Counts[k.name+": "+nameOf(err)]++
	j.line("%s: %s(%s) says %v, after %v", k.x.name, k.name, k.key, err, took)
	j.event(k.x.p.name(), "", "", fmt.Sprintf("%s: %s(%s) says %v", k.x.name, k.name, k.key, err))
	j.w.mu.Lock()
	wrong, jumped := p.faulted.After(k.began) || k.h.interrupted(), p.jumped.After(k.began)
	crashed := p.crashed || p.ending || k.c.life != p.lives
	blocked, stood := p.blocked-k.before, p.stands
	j.w.mu.Unlock()
	if crashed {
		return // nobody is told anything any more
	}
	if j.w.Kind.Owned {
		j.look(nil)
	}
	bad := func(why string) {
		j.breach("accuracy: %s: %s(%s, %v) says %q after %v: %s", k.x.name, k.name, k.key, k.ttl, fmt.Sprint(err), took, why)
	}
	key := j.keys[k.key]
	step := cmp.Or(j.w.Options.Timeout, 5*time.Second)
	owned := j.w.Kind.Owned && !j.amnesia.After(k.began) && (k.h == nil || !j.excused(k.h))
	switch name := nameOf(err); name {
	case "nil":
		switch k.name {
		case "Extend":
			if k.h.lock.Context().Err() != nil && !k.h.over {
				if cause := context.Cause(k.h.lock.Context()); errors.Is(cause, compat.ErrLost) && p.clock.left(k.h.lock.Until()) > time.Second {
					bad("its context has ended: " + cause.Error())
				}
			}
		}
	case "ErrReleased", "ErrHandedOff", "ErrDetached":
		if k.h == nil {
			bad("it is of no lock")
		} else if !k.h.over && k.h.lock.Context().Err() == nil {
			bad("nobody gave it up")
		}
	case "ErrInvalid":
		if k.ttl >= shortest && k.ttl <= longest {
			bad("there is no reason for it")
		}
	case "ErrClosed", "ErrUnsafeServer", "ErrForeign":
		bad("there is no reason for it")
	case "ErrHeld":
		if k.h != nil {
			bad("it is ours")
		} else if owned && !k.there && key.existed.Before(k.began) {
			bad("the key was free all the time")
		}
	case "ErrLost":
		switch {
		case k.h == nil: // ReleaseHandle, Adopt: see endAdopt
		case !owned || !k.alive || k.h.given || jumped || p.clock.left(k.h.lock.Until()) <= running:
		case len(key.hands) == k.h.hands:
			bad("its time is not up, and nobody has touched the key")
		case key.hands[k.h.hands] == p && k.h.epoch == j.w.servers[0].epoch.Load(): // else who answers may never have had it
			bad("its time is not up, and it was this process that removed the key")
		}
	case "ErrTimeout":
		limit := step
		if k.ttl > 0 {
			limit = min(limit, k.ttl)
		}
		shared := (k.name == "Lock" || k.name == "Do") && j.w.Workers > 1 // one attempt is made for all that wait in a Locker
		if !wrong && !shared && took < min(limit, 250*time.Millisecond) {
			bad("no limit has run out")
		}
	case "ErrUnsupported":
		if k.name != "Handoff" {
			bad("there is no reason for it")
		}
	case "ErrUnknown", "ErrDenied", "ErrUnanswered", "another":
		if !wrong && k.ctx.Err() == nil && took < 250*time.Millisecond {
			bad("nothing went wrong")
		}
	case "Canceled", "DeadlineExceeded":
		if k.ctx.Err() == nil {
			bad("the caller's context goes on")
		}
	}
	if k.ended.IsZero() {
		return
	}
	// What is done after the caller's context has ended is bounded by Cleanup.
	limit := j.w.cleanup() + k.works + blocked
	if late := min(time.Since(k.ended), time.Since(stood)); late > limit+50*time.Millisecond {
		j.breach("waits: %s: %s(%s, %v) took %v, and went on for %v after its context had ended, where %v are allowed", k.x.name, k.name, k.key, k.ttl, took, late, limit)
	}
}

// endDo judges what Do returned; in is why its function's context had ended, nil if it had not.
func (k *call) endDo(err, in error) {
	k.end(err)
	if errors.Is(in, compat.ErrLost) && !errors.Is(err, compat.ErrLost) {
		k.j.broken("accuracy: %s: the lock was lost inside Do, which says %v", k.x.name, err)
	}
}

// endAdopt judges what an adoption returned.
func (k *call) endAdopt(err error, g given) {
	k.end(err)
	j := k.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w.Kind.Owned && errors.Is(err, compat.ErrLost) && !j.amnesia.After(k.began) {
		left, _ := redis.Int(j.ask(0, "TTL", g.handle.Key))
		end, timed := getsetlock.Float.Parse(g.handle.Token)
		over := timed && k.c.p.clock.left(end) < time.Second // a bridge's TTL may be longer: it counts from when it arrives
		if s := j.keys[g.key]; !over && s.there && s.value == g.handle.Token && k.there && left >= 2 {
			j.breach("accuracy: %s: Adopt of %s says %v, and its token is on it", k.x.name, g.key, err)
		}
	}
}

// leftovers are keys that a server has in the end, but for fences, and for times in the past: a
// lock of times has no TTL, and what a late request or a fleet that has moved on left is dead.
func (j *judge) leftovers() {
	for i := range j.eyes {
		keys, err := redis.Strings(j.ask(i, "KEYS", "*"))
		if err != nil {
			j.broken("KEYS: %v", err)
		}
		for _, key := range keys {
			if strings.Contains(key, ":fence") {
				continue
			}
			ttl, _ := redis.Int(j.ask(i, "TTL", key))
			name := strings.TrimPrefix(strings.TrimPrefix(key, before), j.w.Options.Prefix)
			if _, locked := j.keys[name]; locked && !j.w.Kind.AnyClock && ttl < 0 {
				continue
			}
			if owner, deadline, pair := dialect.PairOf(key); pair && !j.w.Kind.AnyClock && slices.Contains(keys, owner) && slices.Contains(keys, deadline) {
				continue
			}
			if j.w.At[i] < "2.2" && strings.Contains(key, ":waiters:") { // there it can't have a TTL; each release takes a name off it
				continue
			}
			j.broken("left on S%d: %s, TTL %d", i, key, ttl)
		}
	}
}
