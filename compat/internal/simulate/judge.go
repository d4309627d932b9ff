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
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A judge watches a run and says what is wrong. After every command and call it tells a history, whose package has the
// rules, what each client believes and what is on the keys. A client believes while its Lock's context goes on and
// Until is ahead, from the call that returned the Lock to the one that gives it up. What calls return it judges by
// itself:
//
//   - accuracy: each error is true (ErrHeld: somebody did; ErrTimeout: a limit did run out; ctx.Err: the caller's did;
//     others never come, or only where something went wrong), and so is nil; of losses the history says that;
//   - no call takes longer than its limits allow, and nobody waits for a key that is free;
//   - when nothing goes wrong any more, every key can be had (world.finale).
type judge struct {
	w  *world
	mu sync.Mutex
	r  Report

	history history.Judge
	held    map[*holding]bool // whose clients may believe
	keys    map[string]*keyState
	wrote   map[string]*process // whose each value on an owned key was first

	waiting map[*call]bool // calls of Lock

	eyes []redis.Conn // an onlooker's connection to each server

	amnesia time.Time // when a server last forgot its keys
}

// A holding is one client's belief.
type holding struct {
	x     *worker
	c     client
	lock  *compat.Lock
	key   string
	id    string            // in the history
	over  bool              // given up by its holder
	given bool              // … who has given its handle to be released, and can't take that back
	dead  bool              // its process has crashed
	epoch uint64            // of the server, when it was taken
	calls []context.Context // of the calls on it: one that ended in between leaves its outcome open
}

// A keyState is what an onlooker saw of a key of an owned Kind.
type keyState struct {
	value   string
	there   bool
	by      string    // whose process changed its value last
	existed time.Time // when it was seen last
}

func newJudge(w *world) *judge {
	j := &judge{w: w, held: map[*holding]bool{}, keys: map[string]*keyState{}, waiting: map[*call]bool{},
		wrote: map[string]*process{}}
	j.history = history.Judge{Fenced: w.Kind.Fences, Margin: running, Grace: overdue, Found: j.found}
	j.r.Runs, j.r.Counts = 1, map[string]int{}
	j.eyes = make([]redis.Conn, len(w.servers))
	for _, key := range w.keys() {
		if j.keys[key] = new(keyState); w.Kind.Owned {
			j.tell(history.Event{Op: history.Changed, Key: key})
		}
	}
	return j
}

// tell tells the history of something that happens now. j.mu is held, as of all that follows from it.
func (j *judge) tell(e history.Event) {
	e.At = time.Now().UnixNano()
	j.history.Add(e)
}

func (j *judge) found(v history.Verdict) {
	if v.Excused {
		j.r.Excused++
		return
	}
	j.breach("%v", v)
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
	j.line("BROKEN: %s", text)
}

func (j *judge) report() Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.r.Virtual = time.Since(j.w.start)
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

// forgets is about to happen to a server.
func (j *judge) forgets() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget()
	for name, k := range j.keys {
		if k.there, k.value, k.by = false, "", ""; j.w.Kind.Owned {
			j.tell(history.Event{Op: history.Changed, Key: name})
		}
	}
}

// forget notes that a server forgets keys, now. j.mu is held.
func (j *judge) forget() {
	j.amnesia = time.Now()
	for key := range j.keys {
		j.tell(history.Event{Op: history.Forgot, Key: key, Until: j.amnesia.UnixNano()})
	}
}

// lags is what a replica does that has taken a server's place: what was written last to a key and to
// those beside it may be missing, but for the fence.
func (j *judge) lags(server int, r *rand.Rand) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget()
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
	j.observe(j.look(nil))
}

// promoted puts a server's replica in its place. What was said to be on it is; a value of which it has not
// heard that it is gone is there again.
func (j *judge) promoted(server int, r *rand.Rand) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.observe(j.look(nil))
	s := j.w.servers[server]
	s.replica.promoted(s.Server, r)
	changed := j.look(nil)
	for i, e := range changed {
		if k := j.keys[e.Key]; e.There && j.wrote[k.value] != nil {
			k.by = j.wrote[k.value].name()
			changed[i].Owner = k.by
		}
	}
	j.observe(changed)
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
	j.tell(history.Event{Op: history.Crashed, By: p.name()})
}

// holds is told of a lock that a client has just got; from is the writer's that became this reader's, if it is one.
func (j *judge) holds(x *worker, c client, l *compat.Lock, key string, from *holding) *holding {
	l.Context() // somebody works in it
	j.mu.Lock()
	defer j.mu.Unlock()
	j.r.Sections++
	j.r.Counts["how: "+"got"]++
	h := &holding{x: x, c: c, lock: l, key: key, epoch: j.w.servers[0].epoch.Load()}
	h.id = fmt.Sprintf("%s#%d", x.name, j.r.Sections)
	if x.p.isDead() || c.life != x.p.lives {
		h.dead = true
		return h
	}
	j.line("%s holds %s until %s, fence %d", h.id, key, j.w.at(l.Until()), l.Fence())
	j.observe(j.look(nil))
	got := h.event(history.Got)
	// One that was handed off is older than its holder.
	got.By, got.Key, got.Shared, got.Asked = c.p.name(), key, c.shared, time.Now().Add(-longest).UnixNano()
	if from != nil {
		got.From = from.id
	}
	if got.Most = j.w.Kind.most; got.Most > 0 {
		got.Slot = semaphore.Slot(l.Token())
	}
	if !h.believes() { // it was over before: its time was up, or a clock was set, or Close released it
		left := l.Until().Sub(c.p.clock.Now())
		got.Unplaced, got.Until = left > 0, time.Now().Add(min(left, 0)).UnixNano()
	}
	j.tell(got)
	j.held[h] = true
	if k := j.keys[key]; k.there && h.believes() {
		k.by, j.wrote[k.value] = x.p.name(), x.p // adopted: its value is what it was
	}
	return h
}

// event says what h's client believes.
func (h *holding) event(op history.Op) history.Event {
	until := time.Now().Add(h.c.p.clock.left(h.lock.Until()))
	return history.Event{Op: op, ID: h.id, Until: until.UnixNano(), Fence: h.lock.Fence()}
}

// observe tells the history what each client believes, then what has changed on the keys. j.mu is held.
func (j *judge) observe(changed []history.Event) {
	var ended []*holding
	for h := range j.held {
		if h.lock.Context().Err() == nil {
			j.tell(h.event(history.Holds))
			continue
		}
		j.tell(h.event(history.Ends))
		ended = append(ended, h)
	}
	for _, e := range changed {
		j.tell(e)
	}
	for _, h := range ended {
		delete(j.held, h)
		if why := context.Cause(h.lock.Context()); errors.Is(why, compat.ErrLost) {
			j.loses(h, why)
		}
	}
}

// loses tells the history that h's client is told of a loss. j.mu is held.
func (j *judge) loses(h *holding, why error) {
	e := h.event(history.Lost)
	e.Other, e.Text = h.epoch != j.w.servers[0].epoch.Load(), why.Error()
	j.tell(e)
}

// reads has a lock say all that it says of itself, which shows its value to whoever asked.
func (j *judge) reads(h *holding) {
	l := h.lock
	first, fence, key, handle := l.Lease(), l.Fence(), l.Key(), l.Handle()
	gone := l.Context().Err() != nil
	joined, end := l.With(context.Background())
	defer end()
	lives := gone && joined.Err() == nil
	token, until := l.Token(), l.Until()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, read := range []string{"Lease", "Fence", "Key", "Handle", "Context", "With", "Token", "Until"} {
		j.r.Counts[read+": read"]++
	}
	switch {
	case !strings.HasSuffix(key, h.key) || first.Key != key || handle.Key != key:
		j.breach("accuracy: %s: the lock of %s says that it is of %q, %q and %q", h.x.name, h.key, key, first.Key, handle.Key)
	case lives || compat.FromContext(joined) != l:
		j.breach("accuracy: %s: the lock of %s has ended, and a context that was joined with its own goes on, or is another's", h.x.name, h.key)
	case h.over || gone:
	case token == "" || handle.Token == "" || until.IsZero() || fence < first.Fence:
		j.breach("accuracy: %s: the lock of %s says of itself: %+v, then fence %d, %q, %v", h.x.name, h.key, first, fence, token, until)
	}
}

// over is told that a client gives its lock up, or that it has it still.
func (j *judge) over(h *holding, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.over = over || h.given
	switch {
	case h.over && h.lock.Context().Err() != nil:
		j.observe(j.look(nil))
	case h.over:
		j.tell(h.event(history.Ends))
		delete(j.held, h)
	case !h.dead:
		if j.held[h] = true; h.lock.Context().Err() == nil {
			j.tell(h.event(history.Again))
		}
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
func (j *judge) ran(p *process, server int, cmds []protocol.Cmd, replies []any) {
	changed := j.look(p)
	if j.w.Trace {
		j.line("P%d → S%d  %s  → %s", p.id, server, words(cmds), oldredis.Readable(replies))
	}
	j.observe(changed)
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

// look reads the keys of an owned Kind. It returns what p has changed, or time if that is nil. j.mu is held.
func (j *judge) look(p *process) (changed []history.Event) {
	if !j.w.Kind.Owned {
		return nil
	}
	for key, k := range j.keys {
		value, err := redis.String(j.ask(0, "GET", j.w.onServer(key)))
		there := err == nil || !errors.Is(err, redis.ErrNil)
		now := time.Now()
		if k.there || there {
			k.existed = now
		}
		if there != k.there || value != k.value {
			k.there, k.value, k.by = there, value, ""
			if p != nil {
				k.by = p.name()
			}
			if there && p != nil && j.w.Kind.Replicated && j.wrote[value] == nil {
				j.wrote[value] = p
			}
			e := history.Event{Op: history.Changed, Key: key, There: there, By: k.by, Owner: k.by}
			changed = append(changed, e)
		}
	}
	return changed
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
	alive  bool          // its lock's context went on
	wrong  bool          // something went wrong since it began
	jumped bool          // its process's clock was set since then
}

func (j *judge) call(x *worker, c client, name, key string, ctx context.Context, ttl time.Duration) *call {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line("%s calls %s(%s, %v)", x.name, name, key, ttl)
	k := &call{j: j, x: x, c: c, name: name, key: key, ctx: ctx, ttl: ttl, began: time.Now()}
	context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		k.ended = time.Now()
	})
	j.w.mu.Lock()
	k.before = c.p.blocked
	j.w.mu.Unlock()
	j.observe(j.look(nil))
	k.there = j.keys[key].there
	return k
}

// on is call of a method of a lock.
func (j *judge) on(x *worker, c client, name string, h *holding, ctx context.Context, ttl time.Duration) *call {
	k := j.call(x, c, name, h.key, ctx, ttl)
	j.mu.Lock()
	h.calls = append(h.calls, ctx)
	j.mu.Unlock()
	k.h, k.alive = h, h.lock.Context().Err() == nil
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
	j.w.mu.Lock()
	k.wrong, k.jumped = p.faulted.After(k.began) || k.h.interrupted(), p.jumped.After(k.began)
	crashed := p.crashed || p.ending || k.c.life != p.lives
	blocked, stood := p.blocked-k.before, p.stands
	j.w.mu.Unlock()
	if crashed {
		return // nobody is told anything any more
	}
	j.observe(j.look(nil))
	if why := k.untrue(err); why != "" {
		j.breach("accuracy: %s: %s(%s, %v) says %q after %v: %s", k.x.name, k.name, k.key, k.ttl, fmt.Sprint(err), took, why)
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

// untrue says why what a call returned is not so; "" if it is. j.mu is held.
func (k *call) untrue(err error) (why string) {
	j, took := k.j, time.Since(k.began)
	key := j.keys[k.key]
	step := cmp.Or(j.w.Options.Timeout, 5*time.Second)
	switch name := nameOf(err); name {
	case "nil":
		if k.name == "Extend" && !k.h.over {
			kept := k.h.event(history.Kept)
			kept.Text = "Extend says nil"
			j.tell(kept)
		}
	case "ErrReleased", "ErrHandedOff", "ErrDetached":
		if k.h == nil {
			return "it is of no lock"
		} else if !k.h.over && k.h.lock.Context().Err() == nil {
			return "nobody gave it up"
		}
	case "ErrInvalid":
		if k.ttl >= shortest && k.ttl <= longest {
			return "there is no reason for it"
		}
	case "ErrClosed", "ErrUnsafeServer", "ErrForeign":
		return "there is no reason for it"
	case "ErrHeld":
		if k.h != nil {
			return "it is ours"
		} else if j.w.Kind.Owned && !j.amnesia.After(k.began) && !k.there && key.existed.Before(k.began) {
			return "the key was free all the time"
		}
	case "ErrLost":
		if k.h != nil && k.alive && !k.h.given && !k.jumped { // ReleaseHandle, Adopt are of none: see endAdopt
			j.loses(k.h, err)
		}
	case "ErrTimeout":
		limit := step
		if k.ttl > 0 {
			limit = min(limit, k.ttl)
		}
		shared := (k.name == "Lock" || k.name == "Do") && j.w.Workers > 1 // one attempt is made for all that wait in a Locker
		if !k.wrong && !shared && took < min(limit, 250*time.Millisecond) {
			return "no limit has run out"
		}
	case "ErrUnsupported":
		if k.name != "Handoff" {
			return "there is no reason for it"
		}
	case "ErrUnknown", "ErrDenied", "ErrUnanswered", "another":
		if !k.wrong && k.ctx.Err() == nil && took < 250*time.Millisecond {
			return "nothing went wrong"
		}
	case "Canceled", "DeadlineExceeded":
		if k.ctx.Err() == nil {
			return "the caller's context goes on"
		}
	}
	return ""
}

// endDo judges what Do returned; h is what its function held, nil if it was not called.
func (k *call) endDo(err error, h *holding) {
	k.end(err)
	if h == nil || errors.Is(err, compat.ErrLost) {
		return
	}
	k.j.mu.Lock()
	defer k.j.mu.Unlock()
	k.j.tell(history.Event{Op: history.Kept, ID: h.id, Text: fmt.Sprint("Do says ", err)})
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
			if j.w.Kind.most > 0 && strings.Contains(key, ":limit:") && ttl > 0 { // it lasts for a day
				continue
			}
			name := strings.TrimPrefix(strings.TrimPrefix(key, before), j.w.Options.Prefix)
			if _, locked := j.keys[name]; locked && !j.w.Kind.AnyClock && ttl < 0 {
				continue
			}
			if j.w.Options.Hold > 0 && !j.w.Kind.AnyClock && ttl < 0 { // of several keys, each: its holder left it to its time
				continue
			}
			if owner, deadline, pair := dialect.PairOf(key); pair && !j.w.Kind.AnyClock && slices.Contains(keys, owner) && slices.Contains(keys, deadline) {
				continue
			}
			if j.w.At[i] < "2.2" && strings.Contains(key, ":waiters:") { // there it can't have a TTL; each release takes a name off it
				continue
			}
			j.mu.Lock()
			j.tell(history.Event{Op: history.Left, Key: fmt.Sprintf("S%d %s", i, key), Text: fmt.Sprint("TTL ", ttl)})
			j.mu.Unlock()
		}
	}
}
