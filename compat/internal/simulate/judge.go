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

// A judge watches a run and reports violations. After every command and call, it tells the history the beliefs of the
// clients and the values of the keys. A client believes while its Lock's context goes on and Until is ahead, from the
// call that returned the Lock to the call that gives the Lock up. Package history has the rules for beliefs. The judge
// itself judges the results of calls:
//
//   - accuracy: each result is true. ErrHeld needs a holder, ErrTimeout an expired limit, ctx.Err() the end of the
//     caller's context; other errors need a fault, or never come. The history judges losses.
//   - no call takes longer than its limits allow, and no call waits for a free key;
//   - without faults, every client can get every key (world.finale).
type judge struct {
	w  *world
	mu sync.Mutex
	r  Report

	history history.Judge
	held    map[*holding]bool // holdings whose clients may believe
	keys    map[string]*keyState
	wrote   map[string]*process // the process that first wrote each value of an owned key

	waiting map[*call]bool // calls of Lock

	conns []redis.Conn // the judge's connection to each server

	amnesia time.Time // the moment of the last loss of keys
}

// A holding is one client's belief.
type holding struct {
	x     *worker
	c     client
	lock  *compat.Lock
	key   string
	id    string            // in the history
	over  bool              // the holder has given the lock up
	given bool              // the holder has passed its handle on for a release, and stays over
	dead  bool              // the process has crashed
	epoch uint64            // of the server at the acquisition
	calls []context.Context // of calls on the lock: an ended context leaves the outcome of its call open
}

// A keyState is the last observation of a key of an owned Kind.
type keyState struct {
	value   string
	there   bool
	by      string    // the process of the last change
	existed time.Time // the last moment at which the key existed
}

func newJudge(w *world) *judge {
	j := &judge{w: w, held: map[*holding]bool{}, keys: map[string]*keyState{}, waiting: map[*call]bool{},
		wrote: map[string]*process{}}
	j.history = history.Judge{Fenced: w.Kind.Fences, Margin: running, Grace: overdue, Found: j.found}
	j.r.Runs, j.r.Counts = 1, map[string]int{}
	j.conns = make([]redis.Conn, len(w.servers))
	for _, key := range w.keys() {
		if j.keys[key] = new(keyState); w.Kind.Owned {
			j.tell(history.Event{Op: history.Changed, Key: key})
		}
	}
	return j
}

// tell adds an event of this moment to the history. j.mu is held, also while the history calls found.
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

// at formats a moment in seconds since the beginning of the run.
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

// line does the same as note. j.mu is held.
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

// breach does the same as broken. j.mu is held.
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

// believes reports whether h's client may work under the lock now.
func (h *holding) believes() bool {
	return !h.over && !h.dead && h.lock.Context().Err() == nil && h.c.p.clock.left(h.lock.Until()) > 0
}

// interrupted reports whether the context of a call on h has ended. The outcome of such a call may be open.
func (h *holding) interrupted() bool {
	return h != nil && slices.ContainsFunc(h.calls, func(ctx context.Context) bool { return ctx.Err() != nil })
}

// forgets records that a server is about to lose its keys.
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

// forget records a loss of keys at this moment. j.mu is held.
func (j *judge) forget() {
	j.amnesia = time.Now()
	for key := range j.keys {
		j.tell(history.Event{Op: history.Forgot, Key: key, Until: j.amnesia.UnixNano()})
	}
}

// lags deletes random keys, with their auxiliary keys: a replica that took a server's place lacks the last
// writes. Fences stay.
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
			j.ask(server, "DEL", key) //nolint:errcheck // the next look reads the key
		}
	}
	j.observe(j.look(nil))
}

// promoted puts a server's replica in its place. Every acknowledged change is on the replica. A value whose removal has
// not reached the replica exists again.
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

// replica cuts a server's replica off, or connects it again.
func (j *judge) replica(server int, follows bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.servers[server].replica.cutOff = !follows
}

// jump sets a process's clock. What its clients believe is told before: afterwards the end of a lease that ran out by
// the clock before can't be placed.
func (j *judge) jump(p *process, by time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.observe(j.look(nil))
	p.clock.Set(by)
}

// chosen counts the Options of a Locker.
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

// holds records a lock that a client has just got. from is the writer that became this reader, or nil.
func (j *judge) holds(x *worker, c client, l *compat.Lock, key string, from *holding) *holding {
	l.Context() // a Lock's context exists from its first use on
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
	// A lock that was handed off is older than its holder.
	got.By, got.Key, got.Shared, got.Asked = c.p.name(), key, c.shared, time.Now().Add(-longest).UnixNano()
	if from != nil {
		got.From = from.id
	}
	if got.Most = j.w.Kind.most; got.Most > 0 {
		got.Slot = semaphore.Slot(l.Token())
	}
	if !h.believes() { // the lease has expired, a clock has jumped, or Close has released the lock
		left := l.Until().Sub(c.p.clock.Now())
		got.Unplaced, got.Until = left > 0, time.Now().Add(min(left, 0)).UnixNano()
	}
	j.tell(got)
	j.held[h] = true
	if k := j.keys[key]; k.there && h.believes() {
		k.by, j.wrote[k.value] = x.p.name(), x.p // an adopted lock keeps its value
	}
	return h
}

// event returns an event with the belief of h's client.
func (h *holding) event(op history.Op) history.Event {
	until := time.Now().Add(h.c.p.clock.left(h.lock.Until()))
	return history.Event{Op: op, ID: h.id, Until: until.UnixNano(), Fence: h.lock.Fence()}
}

// observe tells the history the beliefs of all clients, then the changes of keys. j.mu is held.
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

// loses tells the history that h's client has learnt of a loss. j.mu is held.
func (j *judge) loses(h *holding, why error) {
	e := h.event(history.Lost)
	e.Other, e.Text = h.epoch != j.w.servers[0].epoch.Load(), why.Error()
	j.tell(e)
}

// reads calls all methods of a Lock that return its state, and compares the results. Its value counts as disclosed then.
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

// over records that a client gives its lock up, or still holds it.
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

// gives records that a client has passed its lock's handle on for a release.
func (j *judge) gives(h *holding) {
	j.over(h, true)
	j.mu.Lock()
	defer j.mu.Unlock()
	h.given = true
}

// ran records that a server has run the commands of a process. j.mu is held.
func (j *judge) ran(p *process, server int, cmds []protocol.Cmd, replies []any) {
	changed := j.look(p)
	if j.w.Trace {
		j.line("P%d → S%d  %s  → %s", p.id, server, words(cmds), oldredis.Readable(replies))
	}
	j.observe(changed)
}

// ask sends a command to a server over the judge's own connection.
func (j *judge) ask(server int, name string, args ...any) (any, error) {
	for {
		if j.conns[server] == nil {
			j.conns[server] = j.w.servers[server].Dial()
		}
		reply, err := j.conns[server].Do(name, args...)
		if j.conns[server].Err() == nil {
			return reply, err
		}
		j.conns[server] = nil // a fault cuts the judge's connection, too
	}
}

// look reads the keys of an owned Kind, and returns the changes: by p, or by time if p is nil. j.mu is held.
func (j *judge) look(p *process) (changed []history.Event) {
	if !j.w.Kind.Owned {
		return nil
	}
	for key, k := range j.keys {
		value, err := redis.String(j.ask(0, "GET", j.w.Options.Prefix+key))
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

// A call is a call of the API under way.
type call struct {
	j      *judge
	x      *worker
	c      client
	name   string
	key    string
	h      *holding // the lock of the called method; nil: a Locker's method
	ctx    context.Context
	ttl    time.Duration
	began  time.Time
	works  time.Duration // spent in the caller's own function
	before time.Duration // process.blocked at the beginning
	ended  time.Time     // the end of ctx; zero: ctx goes on
	there  bool          // the key existed at the beginning
	alive  bool          // the lock's context went on at the beginning
	wrong  bool          // a fault may show in the result
	jumped bool          // the clock of the process has jumped since the beginning
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

// on registers a call of a method of a Lock.
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

// running is the margin for a reported loss before the end of a lease: a holder must stop in time.
const running = 250 * time.Millisecond

// end judges the result of a call.
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
		return // no goroutine of the program gets the result
	}
	j.observe(j.look(nil))
	if why := k.untrue(err); why != "" {
		j.breach("accuracy: %s: %s(%s, %v) says %q after %v: %s", k.x.name, k.name, k.key, k.ttl, fmt.Sprint(err), took, why)
	}
	if k.ended.IsZero() {
		return
	}
	// After the end of the caller's context, Cleanup bounds the call.
	limit := j.w.cleanup() + k.works + blocked
	if late := min(time.Since(k.ended), time.Since(stood)); late > limit+50*time.Millisecond {
		j.breach("waits: %s: %s(%s, %v) took %v, and went on for %v after its context had ended, where %v are allowed", k.x.name, k.name, k.key, k.ttl, took, late, limit)
	}
}

// untrue returns the reason why the result of a call is untrue, or "". j.mu is held.
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
		if k.h != nil && k.alive && !k.h.given && !k.jumped { // endAdopt judges calls without a lock
			j.loses(k.h, err)
		}
	case "ErrTimeout":
		limit := step
		if k.ttl > 0 {
			limit = min(limit, k.ttl)
		}
		shared := (k.name == "Lock" || k.name == "Do") && j.w.Workers > 1 // one attempt serves all waiters of a Locker
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

// endDo judges the result of Do. h is the lock of the caller's function, or nil if Do did not call the function.
func (k *call) endDo(err error, h *holding) {
	k.end(err)
	if h == nil || errors.Is(err, compat.ErrLost) {
		return
	}
	k.j.mu.Lock()
	defer k.j.mu.Unlock()
	k.j.tell(history.Event{Op: history.Kept, ID: h.id, Text: fmt.Sprint("Do says ", err)})
}

// endAdopt judges the result of an adoption.
func (k *call) endAdopt(err error, g given) {
	k.end(err)
	j := k.j
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.w.Kind.Owned && errors.Is(err, compat.ErrLost) && !j.amnesia.After(k.began) {
		left, _ := redis.Int(j.ask(0, "TTL", g.handle.Key))
		end, timed := getsetlock.Float.Parse(g.handle.Token)
		over := timed && k.c.p.clock.left(end) < time.Second // a bridge's TTL may outlast the timestamp: the TTL counts from the arrival of the command
		if s := j.keys[g.key]; !over && s.there && s.value == g.handle.Token && k.there && left >= 2 {
			j.breach("accuracy: %s: Adopt of %s says %v, and its token is on it", k.x.name, g.key, err)
		}
	}
}

// leftovers finds the keys of the servers at the end of a run. Fences may stay, and expired timestamps: a
// lock of timestamps has no TTL, and a late request, or a fleet that has moved, may leave one.
func (j *judge) leftovers() {
	for i := range j.conns {
		keys, err := redis.Strings(j.ask(i, "KEYS", "*"))
		if err != nil {
			j.broken("KEYS: %v", err)
		}
		for _, key := range keys {
			if strings.Contains(key, ":fence") {
				continue
			}
			ttl, _ := redis.Int(j.ask(i, "TTL", key))
			if j.w.Kind.most > 0 && strings.Contains(key, ":limit:") && ttl > 0 { // a semaphore's limit lasts for a day
				continue
			}
			name := strings.TrimPrefix(strings.TrimPrefix(key, oldPrefix), j.w.Options.Prefix)
			if _, locked := j.keys[name]; locked && !j.w.Kind.AnyClock && ttl < 0 {
				continue
			}
			if j.w.Options.Hold > 0 && !j.w.Kind.AnyClock && ttl < 0 { // Options.Hold leaves each key to its timestamp
				continue
			}
			if owner, deadline, pair := dialect.PairOf(key); pair && !j.w.Kind.AnyClock && slices.Contains(keys, owner) && slices.Contains(keys, deadline) {
				continue
			}
			if j.w.At[i] < "2.2" && strings.Contains(key, ":waiters:") { // before 2.2 the list can't have a TTL; each release removes a name
				continue
			}
			j.mu.Lock()
			j.tell(history.Event{Op: history.Left, Key: fmt.Sprintf("S%d %s", i, key), Text: fmt.Sprint("TTL ", ttl)})
			j.mu.Unlock()
		}
	}
}
