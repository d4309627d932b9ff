package probe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// FuzzInfo: whatever a server says in INFO and TIME is read without a panic.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n", "1795238718", "5")
	f.Add("redis_version", "", "-1")
	f.Add(":\n::\n#:\nrole:master:slave", "9223372036854775807", "9223372036854775807")
	f.Fuzz(func(t *testing.T, info, s, us string) {
		for name, value := range parseInfo(info) {
			if strings.ContainsAny(name, ":\n") || strings.Contains(value, "\n") || strings.HasPrefix(name, "#") {
				t.Errorf("%q: %q is %q", info, name, value)
			}
		}
		for _, reply := range []any{[]any{[]byte(s), []byte(us)}, []any{[]byte(s)}, []any{nil, nil}, nil, []byte(s), int64(1), []any{[]any{}, int64(1)}} {
			at, ok := answer.Time(reply)
			if ok && at.Unix() != 0 && fmt.Sprint(at.Unix()) != strings.TrimLeft(s, "0") {
				t.Errorf("%v of %q, %q", at, s, us)
			}
		}
	})
}
