package listcas

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func aux(key, name string) string { return key + ":" + name }

// A release and a replacement send the commands of the package's comment.
func TestCommands(t *testing.T) {
	lines := func(cmds [][]any) string {
		var all []string
		for _, m := range cmds {
			all = append(all, strings.TrimSuffix(fmt.Sprintln(m...), "\n"))
		}
		return strings.Join(all, "\n")
	}
	release := `MULTI
RPUSH k:v:s k
SORT k:v:s BY nosort GET * STORE k:v:s
SORT k:v:s BY nosort GET # GET # STORE k:v:sa
LREM k:v:s 0 v
RENAMENX k:v:sa k:v:s
SORT k:v:s BY nosort LIMIT 1 1 STORE k:v:sat
RPOPLPUSH k:v:sat k:v:satu
RENAME k:v:satu k
LREM k 0 v
DEL k:v:s k:v:sa k:v:sat k:v:satu
EXEC`
	if got := lines(Commands(func(k, n string) string { return aux(k, n) + ":" }, "k", "v", "", nil)); got != release {
		t.Errorf("a release:\n%s", got)
	}
	replace := lines(Commands(aux, "k", "v", "next", [][]any{{"INCR", "n"}}))
	if !strings.Contains(replace, "LREM k 0 v\nMSETNX k next k:nextwb \nINCR n\nDEL") {
		t.Errorf("a replacement:\n%s", replace)
	}
}

// Read tells a removal, a list left on the key, another value and a refusal apart.
func TestRead(t *testing.T) {
	replies := func(renamed, emptied any) []any {
		return []any{int64(1), int64(1), int64(2), int64(1), int64(1), int64(1), nil, renamed, emptied, int64(1)}
	}
	for _, test := range []struct {
		replies    []any
		held, list bool
		refused    bool
	}{
		{replies("OK", int64(1)), true, false, false},
		{replies("OK", redis.Error("ERR wrong kind of value")), false, true, false},
		{replies(redis.Error("ERR no such key"), int64(0)), false, false, false},
		{replies(redis.Error("OOM"), int64(0)), false, false, true},
		{append([]any{redis.Error("OOM")}, replies(redis.Error("ERR no such key"), int64(0))[1:]...), false, false, true},
	} {
		held, list, err := Read(test.replies)
		var e redis.Error
		if held != test.held || list != test.list || errors.As(err, &e) != test.refused {
			t.Errorf("%v: held %v, list %v, %v", test.replies, held, list, err)
		}
	}
}
