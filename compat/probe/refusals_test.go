package probe_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// What keeps a lock from being taken is told apart, by the lock itself and by auto, each with what was
// refused and what to do.
func TestRefusals(t *testing.T) {
	restricted := realredis.Start(t)
	said := map[string]string{}
	for _, test := range []struct {
		name string
		pool compat.Pool
		lock error    // of TryLock
		says []string // by TryLock
		auto []string // by auto: its error, or its warning
	}{
		{"NOPERM on a command", userPool(t, restricted, "commandless", "~*", "+@all", "-pexpire"), compat.ErrDenied,
			[]string{"refuses PEXPIRE: NOPERM", "lacks this command", "ACL SETUSER … +pexpire"}, []string{"instead of the better set:lua", "refuses PEXPIRE", "+pexpire"}},
		{"NOPERM on a key", userPool(t, restricted, "keyless", "~other:*", "+@all"), compat.ErrDenied,
			[]string{"refuses SET on \"app:k\": NOPERM", "ACL SETUSER … ~app:k*"}, []string{"refuses GET on \"app:setnxlock-probe-\": NOPERM", "does not cover keys that begin with \"app:\"", "~app:*"}},
		{"NOPERM in a script", userPool(t, restricted, "scriptless", "~*", "+@all", "-incr"), compat.ErrDenied,
			[]string{"refuses EVAL", "script", "docs/servers.md"}, []string{"refuses INCR: NOPERM", "+incr"}},
		{"a renamed command", poolOf(t, realredis.Start(t, "--rename-command", "EVALSHA", "")), compat.ErrUnsafeServer,
			[]string{"'EVALSHA'", "since 2.6", "renamed or disabled", "use setlock.Watched, or give the command back its name"}, []string{"set:watch is taken instead of the better set:lua", "renamed or disabled", "EVALSHA"}},
		{"a full server", poolOf(t, realredis.Start(t, "--maxmemory", "100kb", "--maxmemory-policy", "noeviction")), compat.ErrDenied,
			[]string{"refuses SET: OOM", "over its maxmemory"}, []string{"OOM", "over its maxmemory"}},
		{"a replica", poolOf(t, realredis.Start(t, "--replicaof", "127.0.0.1 1")), compat.ErrDenied,
			[]string{"refuses SET: READONLY", "this is a replica: connect to its master"}, []string{"it is a replica", "use its master, 127.0.0.1:1"}},
		{"a loading server", poolOf(t, loading(t)), compat.ErrDenied,
			[]string{"LOADING", "try again when it has"}, []string{"refuses GET: LOADING", "try again when it has"}},
		{"a proxy", oldredis.Run(t, "twemproxy"), compat.ErrUnanswered,
			[]string{"the connection broke each time", "closed the connection, twice, on SET SET"}, []string{"instead of the better set:lua", "closed the connection, four times, on SET"}},
	} {
		fence := test.name == "NOPERM in a script"
		_, err := compat.New(test.pool, setlock.Lua{Options: setlock.Options{Fence: fence}}, compat.Options{}).TryLock(t.Context(), "app:k", 10*time.Second)
		if !errors.Is(err, test.lock) {
			t.Errorf("%s: TryLock: %v, want %v", test.name, err, test.lock)
		}
		contains(t, test.name+", TryLock", fmt.Sprint(err), test.says)

		var seen []string
		_, c, err := probe.NewWith(t.Context(), compat.Pooled(test.pool), probe.Options{Fence: fence, Memory: new(probe.Memory)}, compat.Options{Prefix: "app:", Observer: func(e compat.Event) {
			if e.Kind == compat.EventWeaker {
				seen = append(seen, e.Err.Error())
			}
		}})
		text := strings.Join(append(seen, fmt.Sprint(err)), "; ")
		contains(t, test.name+", auto", text, test.auto)
		refused := slices.DeleteFunc(slices.Clone(c.Passed), func(p probe.Passed) bool { return !p.Refused })
		if err == nil && (len(refused) == 0 || refused[0].Name != "set:lua") {
			t.Errorf("%s: passed over: %+v", test.name, c.Passed)
		}
		for other, was := range said {
			if was == text {
				t.Errorf("%s and %s: both %q", test.name, other, was)
			}
		}
		said[test.name] = text
	}
}

func contains(t *testing.T, what, text string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s: %q does not say %q", what, text, w)
		}
	}
}

// loading starts a server that reads its data for a minute.
func loading(t *testing.T) string {
	dir := t.TempDir()
	full := realredis.Run(t, "--dir", dir, "--dbfilename", "big.rdb")
	c := must.Get(redis.Dial("tcp", full.Addr))(t)
	defer c.Close()
	value := strings.Repeat("x", 100)
	for i := range 20000 {
		c.Send("SET", i, value) //nolint:errcheck // SAVE tells
	}
	must.Get(c.Do("SAVE"))(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(realredis.Need(t, "redis-server", "redis-server"), "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--dbfilename", "big.rdb",
		"--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024")
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
		cmd.Wait()         //nolint:errcheck
	})
	for deadline := time.After(time.Minute); ; {
		if c, err := redis.Dial("tcp", addr); err == nil {
			_, err = c.Do("GET", "k")
			c.Close()
			if err != nil && strings.HasPrefix(err.Error(), "LOADING") {
				return addr
			}
		}
		select {
		case <-deadline:
			t.Fatal("no server that is loading")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
