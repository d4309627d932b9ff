package probe_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A server forbids its user one command that a lock sends, each in turn. Whatever it has and this user may not do is
// denied; the server itself neither lacks it, nor is another kind of server.
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
			for _, a := range ability.All() {
				if whole.Can(a) && !r.Can(a) && r.Answers[a].Verdict != ability.NotAsked && answer.Of(r.Answers[a].Reply) != answer.Permission {
					t.Errorf("%s, without %s: %v is not denied: %+v", version, command, a, r.Answers[a])
				}
			}
		}
	}
}
