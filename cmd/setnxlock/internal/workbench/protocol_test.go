package workbench

import (
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

// What a lock is said to send is what its clients send, with the branch that is taken over from another.
func TestProtocol(t *testing.T) {
	for schedule, want := range map[string][]string{
		"getset:classic 2.4 2x3 :":               {"acquire: SETNX TIME", "acquire: GET", "acquire: GETSET TIME", "release: GET", "release: DEL"},
		"set:published 7.0 2x1 :":                {"acquire: SET TOKEN NX PX 10000", "release: GET", "release: DEL"},
		"rw:read+rw:write 7.0 2x1 :":             nil,
		"tx:renamed+other/redis-mutex 2.4 2x1 :": nil,
	} {
		list := must.Get(Question{Schedule: schedule}.position())(t).protocols()
		if locks := strings.Split(strings.Fields(schedule)[0], "+"); len(list) != len(locks) {
			t.Errorf("%s: %d protocols", schedule, len(list))
		}
		var got []string
		for _, l := range list[0].Lines {
			got = append(got, l.Doing+": "+l.Line)
			if len(l.Replies) == 0 {
				t.Errorf("%s: no reply to %s", schedule, l.Line)
			}
		}
		if want != nil && !slices.Equal(got, want) {
			t.Errorf("%s sends %q, want %q", schedule, got, want)
		}
	}
}
