package ability_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A server that does not run every command as it should is
// refused, and nothing is left there.
func TestLists(t *testing.T) {
	ask := func(s *oldredis.Server) error {
		return ability.Check(protocol.NewConn(s.Dial()), "scratch", false, ability.Need{Ability: ability.Lists, Use: "another lock"})
	}
	check := func(t *testing.T, v string, o oldredis.Options) error {
		t.Helper()
		s := oldredis.MustNew(v, o)
		t.Cleanup(func() { s.Close() })
		err := ask(s)
		if left := s.Snapshot().Entries(s); len(left) > 0 && len(o.Refuse) == 0 {
			t.Errorf("left: %v", left)
		}
		return err
	}
	for _, v := range oldredis.Versions()[1:] {
		if err := check(t, v, oldredis.Options{}); err != nil {
			t.Errorf("the check on %s: %v", v, err)
		}
	}
	var unsafe *protocol.UnsafeServerError
	if err := check(t, "1.2", oldredis.Options{}); !errors.As(err, &unsafe) || !strings.Contains(unsafe.Why, "emptied list") || unsafe.Use != "another lock" {
		t.Errorf("the check on 1.2: %v", err)
	}
	for _, v := range []string{"2.0", "2.4", "2.6", "7.0"} {
		for _, name := range []string{"MULTI", "RPUSH", "SORT", "LREM", "RENAMENX", "RPOPLPUSH", "RENAME", "MSETNX", "DEL", "EXEC"} {
			if err := check(t, v, oldredis.Options{Refuse: []string{name}}); !errors.Is(err, protocol.ErrUnsafeServer) {
				t.Errorf("the check on %s without %s: %v", v, name, err)
			}
		}
	}
	s := oldredis.Run(t, "2.0")
	s.SetMaxMemoryReached(true)
	if err := ask(s); err == nil || errors.Is(err, protocol.ErrUnsafeServer) {
		t.Errorf("the check when memory is full: %v: it may be safe later", err)
	}
}
