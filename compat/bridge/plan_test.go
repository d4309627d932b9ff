package bridge_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// There is a plan from every client in the field, and from each of our own
// locks, to each target; or the reason why there is none.
func TestPlans(t *testing.T) {
	names := bridge.Ours()
	for _, f := range dialect.All() {
		names = append(names, f.Name)
	}
	var races []string
	for _, s := range catalogue.All() {
		races = append(races, s.Name)
	}
	name := regexp.MustCompile(`\b(?:any|compat|getset|tx|set|old)/[a-z-]+`)
	drained := []string{}
	for _, from := range names {
		for _, to := range bridge.Targets() {
			p, err := bridge.NewPlan(from, to)
			if err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
				continue
			}
			if p.Drain != "" {
				if to == "set" {
					drained = append(drained, from)
				}
				if len(p.Stages) > 0 {
					t.Errorf("%s: stages although it must be drained", from)
				}
				continue
			}
			stages := 2
			if f, err := dialect.Lookup(from); from == "getset" || err == nil && (f.Kind.Timed() || f.Kind == dialect.TwoKeys || from == "spring" || f.Signal != "") {
				stages = 3
			}
			if len(p.Stages) != stages || p.Stages[stages-1].Lock != to {
				t.Errorf("%s to %s: %d stages, want %d: %+v", from, to, len(p.Stages), stages, p.Stages)
				continue
			}
			for i, s := range p.Stages {
				if len(s.Locks()) == 0 {
					t.Errorf("%s to %s: nothing to run in stage %q", from, to, s.Name)
				}
				if i > 0 && (len(s.Mix) != 2 || s.Mix[0] != p.Stages[i-1].Lock || len(s.Done) < 1 || s.Back == "" || s.Go == "") {
					t.Errorf("%s to %s: stage %q lacks something: %+v", from, to, s.Name, s)
				}
				if i > 0 && i < stages-1 && s.Why == "" {
					t.Errorf("%s to %s: no reason for stage %q", from, to, s.Name)
				}
				for _, r := range append(s.Races, name.FindAllString(strings.Join(p.Risks, " "), -1)...) {
					if !slices.Contains(races, r) {
						t.Errorf("%s to %s names %s, which is not in the catalogue", from, to, r)
					}
				}
			}
		}
	}
	if want := []string{"node-resque", "celery-once-1"}; !slices.Equal(drained, want) {
		t.Errorf("drained: %q, want %q", drained, want)
	}
	for _, wrong := range [][2]string{{"redis-py-2.9", "redlock"}, {"redis-py", "set"}, {"set:published", "set"}, {"redis-py-2.9", ""}} {
		if _, err := bridge.NewPlan(wrong[0], wrong[1]); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("a plan from %s to %s: %v, want ErrInvalid", wrong[0], wrong[1], err)
		}
	}
}

// The commands of a plan lock the key that the old clients lock; only for two keys they can't.
func TestPlanLocksTheirKey(t *testing.T) {
	key := regexp.MustCompile(` (?:--prefix '([^']*)' )?'?([^ ']*NAME[^ ']*)'? -- \.\.\.$`)
	for _, f := range dialect.All() {
		p, err := bridge.NewPlan(f.Name, "set")
		if err != nil || p.Drain != "" {
			continue
		}
		for _, s := range p.Stages {
			if s.Command == "" {
				continue
			}
			if m := key.FindStringSubmatch(s.Command); m == nil || f.Kind != dialect.TwoKeys && m[1]+m[2] != f.KeyName {
				t.Errorf("%s locks %s, and stage %s runs %s", f.Name, f.KeyName, s.Name, s.Command)
			}
		}
	}
}

// A family's Go is that of a lock which more than the servers of today have.
func TestPlanGo(t *testing.T) {
	for to, want := range map[string]string{"set": "setlock.Lua{}", "set:ifeq": "setlock.IfEq{}", "tx": "txlock.Renamed{}"} {
		p, err := bridge.NewPlan("redis-py-2.9", to)
		if n := len(p.Stages); err != nil || n == 0 || p.Stages[n-1].Go != want {
			t.Errorf("to %s: %+v, %v, want %s at last", to, p.Stages, err, want)
		}
	}
}

// Redisson's locks are hashes: it is refused by name.
func TestPlanRedisson(t *testing.T) {
	p, err := bridge.NewPlan("redisson", "set")
	if err != nil || p.From != "Redisson" || !strings.Contains(p.Drain, "Redisson: its locks are hashes") || len(p.Stages) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// A fleet that no lock is safe beside is refused by name, and nothing is written.
func TestDrain(t *testing.T) {
	for _, name := range []string{"node-resque", "celery-once-1"} {
		if _, err := bridge.Named(name); !errors.Is(err, bridge.ErrDrain) || !strings.Contains(err.Error(), name) {
			t.Errorf("Named(%q): %v, want ErrDrain", name, err)
		}
		b := bridge.OneKey{}
		b.Dialect.Name = name
		s := oldredis.Run(t, "7.0")
		for _, a := range []protocol.Algorithm{b, bridge.TwoNames{Old: twoNames(name, name, nil).Old, New: format("redis-py-3")}} {
			_, err := compat.New(s, a, compat.Options{NoRenew: true}).TryLock(t.Context(), "k", ttl)
			if !errors.Is(err, bridge.ErrDrain) || !errors.Is(err, compat.ErrUnsafeServer) {
				t.Errorf("%T beside %s: %v, want ErrDrain", a, name, err)
			}
		}
		if n, _ := s.Dial().Do("DBSIZE"); n != int64(0) {
			t.Errorf("%v keys were written", n)
		}
	}
	for _, name := range []string{"redis-py-2.10", "mlanett-redis-lock", "redis-pie"} {
		if _, err := bridge.Named(name); !errors.Is(err, compat.ErrInvalid) || errors.Is(err, bridge.ErrDrain) {
			t.Errorf("Named(%q): %v, want ErrInvalid", name, err)
		}
	}
}

// Where no token is safe the remedy is the old fleet's lock; where only milliseconds
// are missing, it is whole seconds, which work.
func TestRemedy(t *testing.T) {
	both := func(millis bool) []protocol.Algorithm {
		old, token := twoNames("redis-py-2.9", "redis-py-2.9", nil).Old, format("redis-py-3")
		return []protocol.Algorithm{bridge.OneKey{Millis: millis}, bridge.TwoNames{Old: old, New: token, Millis: millis}}
	}
	for _, test := range []struct {
		server string
		millis bool
		old    bool // the old fleet's lock is the remedy
	}{{"1.2", false, true}, {"2.0", false, true}, {"2.0", true, true}, {"2.4", true, false}} {
		c := protocol.NewConn(oldredis.Run(t, test.server).Dial())
		for _, b := range both(test.millis) {
			err := b.Traits().Check(c, "k")
			var unsafe *compat.UnsafeServerError
			if !errors.As(err, &unsafe) || strings.HasPrefix(unsafe.Use, "the old fleet's lock") != test.old {
				t.Errorf("%T on %s, milliseconds %v: %v; wanted the old fleet's lock: %v", b, test.server, test.millis, err, test.old)
			}
		}
		if !test.old {
			for _, b := range both(false) {
				if err := b.Traits().Check(c, "k"); err != nil {
					t.Errorf("%T on %s with whole seconds: %v", b, test.server, err)
				}
			}
		}
	}
}
