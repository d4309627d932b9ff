package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/setnxlock/setnxlock/internal/realredis"
)

// The model's server keeps one key. A delayed message reaches the server at any later time. A stranger takes
// the key as soon as its lease has run out by the server's clock, which runs a hundredth faster than ours.
type message struct {
	if_, value string // the value to compare with, and the new value
	ttl        time.Duration
	touched    int // run only if the key was not touched since, as under WATCH; -1: compare by value alone
	removes    bool
}

type world struct {
	now     time.Time
	value   string
	end     time.Time
	touches int
	counter int64 // the fence's
	late    []message
	s       State
	known   []string // values that were disclosed
	removed bool     // by a release of ours
	issued  int
	floor   int64 // the highest fence that any holder had
	was     Cause
	story   []string
	act     func(*State, Event) Verdict
}

const (
	long  = 60 * time.Second
	short = 10 * time.Second // time passes in steps of half of it, too
)

// fast returns how long the server keeps a key for ttl, by our clock.
func fast(ttl time.Duration) time.Duration { return ttl * 100 / 101 }

func start(v variant, act func(*State, Event) Verdict) *world {
	w := &world{now: time.Unix(1000, 0), act: act}
	if !v.unfenced {
		w.counter = 3
	}
	w.value, w.end, w.floor = "v0", w.now.Add(fast(long)), w.counter
	w.s = New(Claim{Value: "v0", Until: Until(w.now, long), TTL: long, Fence: w.counter}, true, w.now)
	return w
}

func values(s *State) (all []string) {
	for i := 0; ; i++ {
		v, ok := s.Value(i)
		if !ok {
			return all
		}
		all = append(all, v)
	}
}

func (w *world) clone() *world {
	c := *w
	c.late, c.known, c.story = slices.Clone(w.late), slices.Clone(w.known), slices.Clone(w.story)
	c.s.unresolved = slices.Clone(w.s.unresolved)
	return &c
}

// run lets the server run m, if the condition of m holds.
func (w *world) run(m message) bool {
	w.expire()
	if w.value != m.if_ || m.touched >= 0 && m.touched != w.touches {
		return false
	}
	w.touches++
	if m.removes {
		w.value, w.removed = "", true
		return true
	}
	w.value, w.end = m.value, w.now.Add(fast(m.ttl))
	return true
}

func (w *world) expire() {
	if w.value != "stranger" && (w.value == "" || !w.now.Before(w.end)) {
		w.value, w.end = "stranger", w.now.Add(time.Hour)
		w.touches++
	}
}

func (w *world) on(k Kind, c Claim, final bool) Verdict {
	cause, until := w.s.Cause(), w.s.Until()
	v := w.act(&w.s, Event{Kind: k, At: w.now, Claim: c, Final: final})
	if cause == None && w.s.Cause() == Lost && w.s.Until().After(until) && k != Done { // after Done the lease may have been longer, and over by now
		w.fail(fmt.Sprintf("believed until %v, lost, and says until %v now", until.Sub(w.now), w.s.Until().Sub(w.now)))
	}
	if (k == Ask || k == Send) && v != Over && !w.now.Before(w.s.Until()) {
		w.fail("an operation may begin on a lease that has run out")
	}
	return v
}

// A variant describes the extensions of an algorithm.
type variant struct {
	name    string
	watch   bool // under WATCH: a touch voids late messages
	changes bool // each extension changes the value
	rotates bool // an extension changes the value on request

	unfenced bool // no fence is taken: a lock may be handed off without an extension
}

var variants = []variant{
	{"timestamps, by value", false, true, true, false},
	{"tokens, under WATCH", true, false, true, false},
	{"tokens, by a script", false, false, true, false},
	{"tokens, by a script that can't change them", false, false, false, false},
	{"tokens, by a script, without a fence", false, false, true, true},
}

// extend asks the machine as the engine does, and lets fate decide.
func (w *world) extend(v variant, ttl time.Duration, fate string, then Kind) {
	switch w.on(Ask, Claim{}, false) {
	case Over:
		return
	case Read, Doubt:
		w.read()
	}
	if w.s.Cause() != None || w.on(Send, Claim{TTL: ttl}, false) != OK {
		return
	}
	c := w.s.Claim()
	next := Claim{Value: c.Value, Until: Until(w.now, ttl), TTL: ttl, Fence: c.Fence}
	if v.changes || v.rotates && (w.s.Rotate() || then == Handoff) {
		w.issued++
		next.Value = fmt.Sprint("v", w.issued)
	}
	if then == Handoff || c.Fence == 0 {
		next.Fence = 0
	}
	m := message{if_: c.Value, value: next.Value, ttl: ttl, touched: -1}
	if v.watch {
		m.touched = w.touches
	}
	final := next.Value != c.Value || v.watch
	w.check("while an extension is under way")
	switch fate {
	case "not sent":
		w.on(NotSent, Claim{}, false)
	case "aborted":
		w.on(Refused, Claim{}, false)
	case "lost request":
		w.on(Unknown, next, final)
	case "late":
		w.late = append(w.late, m)
		w.on(Unknown, next, final)
	case "lost reply":
		w.expire()
		if w.run(m) {
			w.draw(v, &next)
			w.inFlight()
		}
		next.Fence = c.Fence
		w.on(Unknown, next, final)
	case "done", "overtaken", "slow reply", "followed, slow reply":
		if w.expire(); fate == "overtaken" {
			w.arrive()
		}
		if v.watch { // after an aborted EXEC the client compares again
			m.touched = w.touches
		}
		if !w.run(m) {
			w.on(NotOurs, Claim{}, false)
			return
		}
		w.draw(v, &next)
		w.inFlight()
		if fate == "followed, slow reply" { // by a late message, before the reply is read
			w.arrive()
		}
		if strings.HasSuffix(fate, "slow reply") {
			w.now = w.now.Add(short)
		}
		switch verdict := w.on(then, next, final); {
		case verdict == OK && then == Handoff:
			w.handedOff(v, next)
		case verdict == OK:
			w.extended(v, next)
		case verdict == Read && w.on(Done, next, final) != Over:
			w.extended(v, next)
		}
	}
}

// extended checks that the machine believes in a done extension to its end. If an earlier extension may still
// arrive and change that end, the machine believes at least to the changed end.
func (w *world) extended(v variant, c Claim) {
	want := c.Until
	if !v.rotates {
		want = earlier(want, Until(want.Add(Drift(c.TTL)-c.TTL), short))
	}
	if until := w.s.Until(); until.Before(want) {
		w.fail(fmt.Sprintf("extended until %v, believed until %v", want.Sub(w.now), until.Sub(w.now)))
	}
}

// inFlight checks the believed end after the server has run an extension and before the reply arrives. The machine
// does not know yet that the key holds the new value.
func (w *world) inFlight() {
	if c := w.s.Claim(); w.s.Cause() == None && w.now.Before(c.Until) && c.Until.After(w.end) {
		w.fail(fmt.Sprintf("while the reply is on its way: believes until %v, granted until %v", c.Until.Sub(w.now), w.end.Sub(w.now)))
	}
}

// arrive lets the oldest late message reach the server.
func (w *world) arrive() {
	if len(w.late) > 0 {
		m := w.late[0]
		w.late = w.late[1:]
		w.run(m)
	}
}

func (w *world) draw(v variant, c *Claim) {
	if c.Fence == 0 && !v.unfenced {
		w.counter++
		c.Fence = w.counter
	}
}

// handedOff checks the lease of the next holder, and replaces the machine by the next holder's.
func (w *world) handedOff(v variant, c Claim) {
	if !w.now.Before(c.Until) {
		w.fail("a lease was handed off that has run out")
	}
	w.belongsToOther(c.Value)
	if slices.Contains(w.known, c.Value) {
		w.fail("a successor's value was known before it: " + c.Value)
	}
	if c.Fence <= w.floor && !v.unfenced {
		w.fail(fmt.Sprintf("a successor's fence is %d after %d", c.Fence, w.floor))
	}
	if v := values(&w.s); !slices.Equal(v, []string{""}) {
		w.fail(fmt.Sprintf("the predecessor still knows %q", v))
	}
	w.s = New(c, true, w.now)
	w.was, w.floor = None, c.Fence
}

// belongsToOther checks a key with a new holder: the key holds value, and no late message may still change it.
func (w *world) belongsToOther(value string) {
	if w.value != value {
		w.fail(fmt.Sprintf("%q has a new holder, and the key holds %q", value, w.value))
	}
	for _, m := range w.late {
		if m.if_ == value && (m.touched < 0 || m.touched == w.touches) {
			w.fail("a late message may still change what has a new holder")
		}
	}
}

func (w *world) read() {
	w.expire()
	held := w.value
	for _, v := range values(&w.s) {
		if v == w.value {
			held = v
		}
	}
	w.on(Found, Claim{Value: held}, false)
}

func (w *world) release(fate string) {
	if w.on(Release, Claim{}, false) == Over {
		return
	}
	sent, done := false, false
	for _, v := range values(&w.s) {
		if fate == "not sent" {
			break
		}
		m := message{if_: v, touched: -1, removes: true}
		switch fate {
		case "lost request":
			sent = true
		case "lost reply":
			w.run(m)
			sent = true
		case "late":
			w.late = append(w.late, m)
			sent = true
		case "done":
			done = w.run(m) || done
		}
	}
	switch {
	case fate == "done" && done:
		w.on(ReleaseDone, Claim{}, false)
	case fate == "done":
		w.on(ReleaseNotOurs, Claim{}, false)
	case sent:
		w.on(ReleaseUnknown, Claim{}, false)
	default:
		w.on(ReleaseNotSent, Claim{}, false)
	}
}

type broken string

func (w *world) fail(why string) { panic(broken(why + "\n  " + strings.Join(w.story, "\n  "))) }

// check holds the machine to its invariants.
func (w *world) check(when string) {
	c := w.s.Claim()
	if w.s.Cause() == None && !w.s.Leaving() {
		if w.now.Before(c.Until) && !slices.Contains(values(&w.s), w.value) {
			w.fail(when + ": believes in a lock that the server keeps for " + w.value)
		}
		if w.now.Before(c.Until) && c.Until.After(w.end) {
			w.fail(fmt.Sprintf("%s: believes until %v, granted until %v", when, c.Until.Sub(w.now), w.end.Sub(w.now)))
		}
	}
	if c.Fence < w.floor && w.s.Cause() != HandedOff {
		w.fail(fmt.Sprintf("%s: the fence fell from %d to %d", when, w.floor, c.Fence))
	}
	w.floor = max(w.floor, c.Fence)
	if w.was != None && w.s.Cause() != w.was && !(w.was == Released && w.s.Cause() == Lost) {
		w.fail(fmt.Sprintf("%s: ended for cause %d, and then for %d", when, w.was, w.s.Cause()))
	}
	if w.s.Cause() == Lost && w.was != Lost && w.removed {
		w.fail(when + ": lost, says the machine, and it was released by us")
	}
	if w.s.Cause() == Lost && w.was == None && w.now.Before(w.end) && strings.HasPrefix(w.value, "v") && w.now.Before(w.s.End()) {
		w.fail(when + ": lost, says the machine, and the server keeps it for us")
	}
	w.was = w.s.Cause()
	if !w.s.End().Before(w.s.Until()) {
		w.fail(when + ": the context does not end before the lease")
	}
	if w.s.Cause() == None { // the lock is scheduled: a Tick at its end must end it
		later := w.s
		later.unresolved = slices.Clone(w.s.unresolved)
		want := Lost
		if w.s.Leaving() { // the release's own outcome says whether it was
			want = Released
		}
		if w.act(&later, Event{Kind: Tick, At: later.Until()}); later.Cause() != want {
			w.fail(when + ": neither scheduled nor ended")
		}
		if !w.s.Leaving() && w.s.Renews() && w.s.RenewAt().IsZero() && w.s.sent.Until.IsZero() {
			w.fail(when + ": not to be renewed any more")
		}
	}
}

// steps returns the possible next steps of a world.
func steps(v variant) map[string]func(w *world) {
	all := map[string]func(w *world){
		"5 s pass":                   func(w *world) { w.now = w.now.Add(5 * time.Second) },
		"30 s pass":                  func(w *world) { w.now = w.now.Add(30 * time.Second) },
		"a renewal comes in between": func(w *world) { w.on(Postpone, Claim{}, false) },
		"the timer fires":            func(w *world) { w.on(Tick, Claim{}, false) },
		"the key is read":            func(w *world) { w.read() },
		"the value is shown":         func(w *world) { w.known = append(w.known, w.s.Claim().Value); w.on(Disclose, Claim{}, false) },
		"it is detached": func(w *world) {
			if w.on(Detach, Claim{}, false) == OK && w.s.Cause() == Detached {
				w.belongsToOther(w.s.Claim().Value)
				w.known = append(w.known, w.s.Claim().Value)
			}
		},
		"the oldest late message arrives": func(w *world) { w.arrive() },
		"the fence's counter is lost":     func(w *world) { w.counter = 0 }, // with the server
		"its release is asked for":        func(w *world) { w.on(Release, Claim{}, false) },
		"it is handed off as it is": func(w *world) {
			c := w.s.Claim()
			if w.on(Handoff, c, false) == OK {
				w.handedOff(v, c)
			}
		},
		"it is passed on by its release": func(w *world) {
			c, undisclosed := w.s.Claim(), w.s.Undisclosed()
			if w.on(Pass, Claim{}, false) == OK {
				if undisclosed && slices.Contains(w.known, c.Value) {
					w.fail("a successor's value was known before it")
				}
				w.belongsToOther(c.Value)
				w.s, w.was = State{cause: Released}, Released
				w.s.held.Fence = w.floor
			}
		},
	}
	for _, ttl := range []time.Duration{short, long} {
		for _, fate := range []string{"done", "overtaken", "slow reply", "followed, slow reply", "lost reply", "lost request", "late", "not sent", "aborted"} {
			all[fmt.Sprintf("extended by %v: %s", ttl, fate)] = func(w *world) { w.extend(v, ttl, fate, Done) }
		}
	}
	for _, fate := range []string{"done", "slow reply", "lost reply", "late"} {
		all["handed off with an extension: "+fate] = func(w *world) { w.extend(v, short, fate, Handoff) }
	}
	for _, fate := range []string{"done", "lost reply", "lost request", "late", "not sent"} {
		all["released: "+fate] = func(w *world) { w.release(fate) }
	}
	return all
}

// key returns the same text for two worlds only if they can go on in the same ways.
func (w *world) key() string {
	return fmt.Sprint(w.now.Unix(), w.value, w.end.Unix(), w.touches, w.late, w.s, w.counter, w.issued, w.known, w.removed, w.floor, w.was)
}

// explore tries every sequence of steps up to a length. It returns how many worlds it saw.
func explore(v variant, length int, act func(*State, Event) Verdict) (seen int, why string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			why = string(r)
		default:
			panic(r)
		}
	}()
	all := steps(v)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	known := map[string]bool{}
	level := []*world{start(v, act)}
	for range length {
		var next []*world
		for _, from := range level {
			for _, name := range names {
				w := from.clone()
				w.story = append(w.story, name)
				w.expire()
				all[name](w)
				w.expire()
				w.check("after " + name)
				if k := w.key(); !known[k] {
					known[k] = true
					next = append(next, w)
				}
			}
		}
		level = next
	}
	return len(known), ""
}

// The invariants hold after every sequence of four events; after five in the long test.
func TestInvariants(t *testing.T) { invariants(t, 4) }

func TestLongInvariants(t *testing.T) {
	realredis.Long(t)
	invariants(t, 5)
}

// A lease has run out when one of the two clocks says so: after a suspension the monotonic clock is behind.
func TestPastByEitherClock(t *testing.T) {
	set := func(now time.Time, seconds int64) time.Time { // the wall clock alone, whose seconds stand above 30 bits
		*(*uint64)(unsafe.Pointer(&now)) += uint64(seconds) << 30
		return now
	}
	now := time.Now()
	until := now.Add(time.Minute)
	for _, c := range []struct {
		passed time.Duration
		set    int64
		past   bool
	}{{59 * time.Second, 0, false}, {time.Minute, 0, true}, {5 * time.Second, 3600, true}, {time.Minute, -3600, true}, {5 * time.Second, -3600, false}} {
		if past := Past(set(now.Add(c.passed), c.set), until); past != c.past {
			t.Errorf("%v later, the clock set by %d s: past %v, want %v", c.passed, c.set, past, c.past)
		}
	}
}

// A lock that is lost while it is being shortened does not claim afterwards that it was held for longer.
func TestLostWhileItIsShortened(t *testing.T) {
	for _, end := range []Event{{Kind: NotOurs}, {Kind: Handoff, Claim: Claim{Value: "v1", Fence: 4}}} {
		now := time.Unix(1000, 0)
		s := New(Claim{Value: "v0", Until: Until(now, long), TTL: long, Fence: 3}, true, now)
		s.On(Event{Kind: Send, At: now, Claim: Claim{TTL: short}})
		believed := s.Until()
		end.At, end.Claim.Until = now.Add(2*short), believed
		if v := s.On(end); v != Over || s.Cause() != Lost {
			t.Errorf("event %d: verdict %d, cause %d", end.Kind, v, s.Cause())
		}
		if s.Until().After(believed) {
			t.Errorf("event %d: believed until %v, lost after %v, and until %v now", end.Kind, believed.Sub(now), 2*short, s.Until().Sub(now))
		}
	}
}

func invariants(t *testing.T, length int) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n, why := explore(v, length, (*State).On)
			if why != "" {
				t.Fatal(why)
			}
			t.Logf("figure: %s: %d states after %d events", v.name, n, length)
		})
	}
}

// Unanswered extensions with new values are sent maxUnresolved times only: each value that the key may hold costs a
// read. Unanswered extensions with the same value have no such limit.
func TestOpenOutcomes(t *testing.T) {
	for _, v := range variants {
		w := start(v, (*State).On)
		for range 2 * maxUnresolved {
			w.extend(v, long, "late", Done)
			w.check("after one more")
		}
		want := maxUnresolved
		if !v.rotates {
			want = 2 * maxUnresolved
		}
		if len(w.late) != want {
			t.Errorf("%s: %d extensions were sent, and none answered, want %d", v.name, len(w.late), want)
		}
	}
}

// A renewed lock outlives any number of lost replies, one after the other. A lock that can't change its value does
// too, although each of its requests may still arrive.
func TestOutlivesLostReplies(t *testing.T) {
	for _, v := range variants {
		w := start(v, (*State).On)
		for n := range 4 * maxUnresolved {
			ttl := long + time.Duration(n)*time.Second // each ttl differs, as in extensions to a deadline
			for _, fate := range []string{"late", "lost reply", "done"} {
				w.extend(v, ttl, fate, Done)
				w.check("after " + fate)
			}
			if until := w.s.Until(); w.s.Cause() != None || until.Before(Until(w.now, long)) {
				t.Fatalf("%s, after %d lost replies: believed for %v, cause %d", v.name, 2*n, until.Sub(w.now), w.s.Cause())
			}
			w.now = w.now.Add(short)
		}
	}
}

// Each mutant undoes one fix: the test must catch it.
var mutants = map[string]func(s *State, e Event) Verdict{
	"an extension of unknown outcome keeps the old end": func(s *State, e Event) Verdict {
		if e.Kind == Unknown {
			e.Kind = Refused
		}
		return s.On(e)
	},
	"the shorter end is believed only when its reply has come": func(s *State, e Event) Verdict {
		v := s.On(e)
		if e.Kind == Send && v == OK {
			s.sent = term{s.held.Until, s.held.TTL}
		}
		return v
	},
	"what may still arrive is forgotten": func(s *State, e Event) Verdict {
		e.Final = true
		return s.On(e)
	},
	"an extension that was resolved by reading has no fence": func(s *State, e Event) Verdict {
		was := s.held.Value
		v := s.On(e)
		if e.Kind == Found && s.held.Value != was {
			s.held.Fence = 0
		}
		return v
	},
	"the reply's fence is taken as it is": func(s *State, e Event) Verdict {
		v := s.On(e)
		if e.Kind == Unknown && s.cause == None {
			s.held.Fence = e.Claim.Fence - 1
		}
		return v
	},
	"a reply that comes late brings a lost lock back": func(s *State, e Event) Verdict {
		if e.Kind == Found && s.cause == Lost {
			s.cause = None
		}
		return s.On(e)
	},
	"a value that was shown is handed off": func(s *State, e Event) Verdict {
		if e.Kind == Handoff || e.Kind == Pass {
			s.undisclosed = true
		}
		return s.On(e)
	},
	"the predecessor remembers the value": func(s *State, e Event) Verdict {
		was := s.held.Value
		v := s.On(e)
		if e.Kind == Handoff && v == OK {
			s.held.Value = was
		}
		return v
	},
	"the fence is not drawn for a successor": func(s *State, e Event) Verdict {
		if e.Kind == Handoff {
			s.held.Fence = 0
		}
		return s.On(e)
	},
	"our own release of unknown outcome is a loss, asked for again": func(s *State, e Event) Verdict {
		if e.Kind == ReleaseUnknown {
			e.Kind = ReleaseNotSent
		}
		return s.On(e)
	},
	"a key that holds what an unknown extension asked for is lost": func(s *State, e Event) Verdict {
		if e.Kind == NotOurs {
			s.unresolved = nil
		}
		return s.On(e)
	},
	"what failed is not tried again": func(s *State, e Event) Verdict {
		v := s.On(e)
		if e.Kind == NotSent {
			s.renewAt = time.Time{}
		}
		return v
	},
	"a lock whose release has begun is off the schedule": func(s *State, e Event) Verdict {
		if e.Kind == Tick && s.leaving {
			return OK
		}
		return s.On(e)
	},
	"a detach that fails takes the lock off the schedule": func(s *State, e Event) Verdict {
		v := s.On(e)
		if e.Kind == Detach && v == Read {
			s.renews, s.renewAt = true, time.Time{}
		}
		return v
	},
}

func TestMutantsAreFound(t *testing.T) {
	for name, act := range mutants {
		t.Run(name, func(t *testing.T) {
			for _, v := range variants {
				if _, why := explore(v, 4, act); why != "" {
					t.Log(v.name + ": " + why)
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}
