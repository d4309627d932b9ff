package locks_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/steps"
)

// Each row is complete, and what it says of itself agrees.
func TestRowsAreComplete(t *testing.T) {
	races := map[string]bool{}
	for _, s := range catalogue.All() {
		races[s.Name] = true
	}
	named := regexp.MustCompile(`[a-z]+/[a-z-]+`)
	seen := map[string]bool{}
	for _, l := range locks.All() {
		if seen[l.Name] {
			t.Errorf("%s is there twice", l.Name)
		}
		seen[l.Name] = true
		if l.Name == "" || l.About == "" || l.Go == "" || l.Since == "" || strings.HasSuffix(l.About, ".") {
			t.Errorf("%s lacks something: %+v", l.Name, l)
		}
		if _, err := os.Stat(filepath.Join("../..", l.Page)); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		for _, race := range named.FindAllString(l.Flaw, -1) {
			if !races[race] {
				t.Errorf("%s names %s, which is not in the catalogue", l.Name, race)
			}
		}
		for _, need := range l.Needs {
			if since := need.Since(); since == "" || newer(since, l.Since) {
				t.Errorf("%s works since %s and needs %s, which came with %q", l.Name, l.Since, need, since)
			}
		}
		if l.New == nil {
			continue
		}
		o := locks.Options{Lease: time.Minute}
		made := l.New(o)
		if name := strings.TrimPrefix(reflect.TypeOf(made).String(), "*"); name != strings.Split(l.Go, "{")[0] {
			t.Errorf("%s makes a %s, not a %s", l.Name, name, l.Go)
		}
		if made.Traits().Shared != l.Shared {
			t.Errorf("%s: shared %v", l.Name, l.Shared)
		}
	}
}

// A key that expires between the GET and the TTL of one look is free, whatever it held; since Redis 2.8 the server says so.
// It is neither held, nor a key without an end.
func TestExpiredWhileLookedAt(t *testing.T) {
	for _, l := range locks.All() {
		for ttl, millis := range map[string]bool{"TTL": false, "PTTL": true} {
			for _, value := range []string{"me", "w:me", "4795238718.058123456789012"} {
				if l.New == nil {
					continue
				}
				s := oldredis.Run(t, "2.8")
				s.Dial().Do("SETEX", "k", 1, value)                                                                         //nolint:errcheck
				c := steps.Instead(s.Dial(), ttl, func(run func(...any) any) any { s.Dial().Do("DEL", "k"); return run() }) //nolint:errcheck
				a := l.New(locks.Options{Millis: millis, Lease: time.Minute})
				st, err := a.Inspect(c, s.Now(), "k")
				if gone, _ := s.Dial().Do("EXISTS", "k"); gone != int64(0) {
					continue // it asks for no TTL, or for the other
				}
				if err != nil || st.Status != protocol.StatusFree || st.Value != "" {
					t.Errorf("%s, %s of %q: %+v, %v; want it free", l.Name, ttl, value, st, err)
				}
			}
		}
	}
}

func newer(a, b string) bool {
	order := []string{"1.0", "1.2", "2.0", "2.2", "2.4", "2.6", "2.6.12", "8.4"}
	return slices.Index(order, a) > slices.Index(order, b)
}

// A lock's own check and what the table says that it needs are one knowledge:
// on every server they agree, and there the lock works, with and without a fence.
func TestCheckAgreesWithNeeds(t *testing.T) {
	for _, version := range slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today()) {
		s := oldredis.Run(t, version)
		r := must.Get(probe.Ask(t.Context(), compat.Pooled(s), probe.Options{}))(t)
		for _, l := range locks.All() {
			if l.New == nil {
				continue
			}
			for _, fence := range []bool{false, true} {
				can := (!fence || r.Can(ability.Multi) || !l.Fences) && l.Lacks(r.Can) == ""
				o := locks.Options{Fence: fence, Millis: r.Can(ability.Milliseconds), ServerClock: r.Can(ability.Time), Lease: time.Minute}
				a := l.New(o)
				err := probe.Check(t.Context(), compat.Pooled(s), a, "k", probe.Options{})
				if err != nil && !errors.Is(err, compat.ErrUnsafeServer) && !(version == "twemproxy" && errors.Is(err, compat.ErrUnanswered)) {
					t.Errorf("%s on %s, fence %v: %v", l.Name, version, fence, err)
				}
				if (err == nil) != can {
					t.Errorf("%s on %s, fence %v: its check says %v, its needs %v", l.Name, version, fence, err, can)
				}
				if err == nil {
					works(t, s, l, a, fence)
				}
			}
		}
	}
}

// Wherever the connection is cut for good while a lock tries the server out, no key is left that nothing ends.
func TestChecksCutForGood(t *testing.T) {
	for _, version := range []string{"1.2", "2.0", "2.2", "2.4", "7.0", "8.6", "valkey-9.1"} {
		for _, l := range locks.All() {
			if l.New == nil {
				continue
			}
			o := locks.Options{Fence: true, Millis: !strings.HasPrefix(version, "1.") && !strings.HasPrefix(version, "2."), Lease: time.Minute}
			all := []protocol.Algorithm{l.New(o)}
			if l.Several != nil {
				all = append(all, l.Several(o))
			}
			for _, a := range all {
				for nth := 1; a.Traits().Check != nil; nth++ {
					s := oldredis.MustNew(version, oldredis.Options{})
					n := 0
					s.SetFault(func(int, int, []string) oldredis.Fault {
						if n++; n >= nth {
							return oldredis.LoseReply
						}
						return oldredis.None
					})
					a.Traits().Check(protocol.NewConn(s.Dial()), "k") //nolint:errcheck // what it leaves behind counts
					s.SetFault(nil)
					c := s.Dial()
					keys, err := redis.Strings(c.Do("KEYS", "*"))
					for _, key := range keys {
						if ttl, err := redis.Int(c.Do("TTL", key)); err != nil || ttl < 0 {
							t.Errorf("%s on %s (%T), cut after command %d: %q has no end: %d, %v", l.Name, version, a, nth, key, ttl, err)
						}
					}
					c.Close()
					s.Close()
					if err != nil {
						t.Fatal(err)
					}
					if n < nth {
						break
					}
				}
			}
		}
	}
}

func works(t *testing.T, pool compat.Pool, l locks.Lock, a protocol.Algorithm, fence bool) {
	t.Helper()
	locks := compat.New(pool, a, compat.Options{Prefix: "{" + protocol.NewToken() + "}"})
	lock, err := locks.TryLock(t.Context(), "k", 10*time.Second)
	if err != nil {
		t.Errorf("%s: %v", l.Name, err)
		return
	}
	if want := fence && l.Fences; (lock.Fence() > 0) != want {
		t.Errorf("%s: fence %d, wanted one: %v", l.Name, lock.Fence(), want)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("%s: %v", l.Name, err)
	}
}

func TestNamed(t *testing.T) {
	for name, want := range map[string]string{
		"set": "set:ifeq set:lua set:watch set:script", "tx": "tx:renamed tx:guarded",
		"getset": "getset:guarded getset:listed getset:classic", "tx:classic": "tx:classic", "no": "", "rw": "",
	} {
		var got []string
		for _, l := range locks.Named(name) {
			got = append(got, l.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestInCommandWords(t *testing.T) {
	const says = "use getsetlock.ListCAS, or where that is refused too getsetlock.Classic"
	if got := locks.InCommandWords(says); got != "use --algorithm getset:listed, or where that is refused too --algorithm getset:classic" {
		t.Error(got)
	}
}

// A lock of tokens says who its owner is, at each acquisition and with each new token; a lock of
// times does not, and is what it was.
func TestTokensNameTheirOwner(t *testing.T) {
	for _, version := range []string{"2.6.12", "7.0"} {
		for _, l := range locks.All() {
			if l.New == nil || l.Instead != "" {
				continue
			}
			s := oldredis.Run(t, version)
			a := l.New(locks.Options{Owner: "web1:47/x", Millis: true})
			c := protocol.NewConn(s.Dial())
			got, err := a.Acquire(c, s.Now(), "k", 10*time.Second)
			if err != nil {
				t.Errorf("%s on %s: %v", l.Name, version, err)
				continue
			}
			named := func(value string) bool { return strings.Contains(value, "setnxlock:web1:47/x:") }
			if want := l.Family() != "getset"; named(got.Value) != want {
				t.Errorf("%s: %q names its owner: %v, want %v", l.Name, got.Value, !want, want)
			}
			if !a.Traits().Rotates {
				continue
			}
			if next, _, err := a.Extend(s.Now(), got, 10*time.Second, true); err != nil || next.Value == got.Value || named(next.Value) != named(got.Value) {
				t.Errorf("%s: %q becomes %q, %v", l.Name, got.Value, next.Value, err)
			}
		}
	}
}
