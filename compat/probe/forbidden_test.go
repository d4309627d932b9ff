package probe_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A server forbids its user one command that a lock sends, each in turn. Whatever it has and this user may not do is
// denied; the server itself neither lacks it, nor is another kind of server. The lock that is chosen works, and one is
// chosen if any works.
func TestOneCommandForbidden(t *testing.T) {
	commands := []string{"delifeq", "delex"}
	for _, l := range locks.All() {
		commands = append(commands, l.Commands()...)
	}
	slices.Sort(commands)
	for _, version := range []string{"7.0", "8.2", "8.6", "valkey-8.1", "valkey-9.1"} {
		ask := func(o oldredis.Options) (probe.Report, error) {
			s := oldredis.MustNew(version, o)
			defer s.Close()
			return probe.Ask(t.Context(), compat.Pooled(s), probe.Options{})
		}
		whole := must.Get(ask(oldredis.Options{}))(t)
		for _, command := range slices.Compact(commands) {
			r, err := ask(oldredis.Options{Forbid: []string{command}})
			if err != nil {
				if command != "get" || !errors.Is(err, compat.ErrDenied) { // the first question is a GET
					t.Errorf("%s, without %s: %v", version, command, err)
				}
				continue
			}
			if r.Kind != whole.Kind {
				t.Errorf("%s, without %s: kind %q, %q with it", version, command, r.Kind, whole.Kind)
			}
			for how, o := range map[string]oldredis.Options{
				"forbidden": {Forbid: []string{command}},
				"renamed":   {Refuse: []string{command}},
			} {
				for _, fence := range []bool{false, true} {
					if name, err := chosen(t, version, o, fence); err != nil {
						t.Errorf("%s, %s is %s, fence %v: %s: %v", version, command, how, fence, name, err)
					}
				}
			}
			for _, a := range ability.All() {
				if whole.Can(a) && !r.Can(a) && r.Answers[a].Verdict != ability.NotAsked && answer.Of(r.Answers[a].Reply) != answer.Permission {
					t.Errorf("%s, without %s: %v is not denied: %+v", version, command, a, r.Answers[a])
				}
			}
		}
	}
}

// chosen returns the lock that is chosen for a user of that server, and why that is the wrong one.
func chosen(t *testing.T, version string, o oldredis.Options, fence bool) (name string, err error) {
	s, whole := oldredis.MustNew(version, o), oldredis.MustNew(version, oldredis.Options{})
	defer s.Close()
	defer whole.Close()
	works := func(s *oldredis.Server, name string) bool {
		l, _ := locks.Get(name)
		return cycle(t, s, l.New(locks.Options{Fence: fence, Millis: true}), fence) == nil
	}
	_, c, err := probe.Find(t.Context(), compat.Pooled(s), probe.Options{Fence: fence, Memory: new(probe.Memory)})
	if err == nil {
		for _, p := range c.Passed {
			if o.Forbid != nil && !p.Refused && works(whole, p.Name) { // to other users
				return c.Name, fmt.Errorf("others get %s, and that it is refused is not said: %s", p.Name, p.Why)
			}
		}
		return c.Name, cycle(t, s, c.Algorithm, fence)
	}
	for _, l := range locks.Preferred() {
		if fence && slices.Contains(slices.Concat(o.Forbid, o.Refuse), "incr") {
			continue // the embedded server's scripts may run it, a real one's not
		}
		if works(s, l.Name) {
			return l.Name, fmt.Errorf("it works, and was not chosen: %w", err)
		}
	}
	return "", nil
}

// cycle takes a lock, extends it and releases it.
func cycle(t *testing.T, s *oldredis.Server, a protocol.Algorithm, fence bool) error {
	l, err := compat.New(s, a, compat.Options{NoRenew: true}).TryLock(t.Context(), "k", time.Minute)
	if err != nil {
		return err
	}
	if fence && l.Fence() == 0 {
		err = errors.New("no fence")
	}
	return errors.Join(err, l.Extend(t.Context(), 2*time.Minute), l.Release(t.Context()))
}
