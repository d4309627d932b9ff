package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
)

// A stranger is what a server other than Redis, or a proxy, was measured to answer.
type stranger struct {
	name    string
	version string // of the Redis that it is like. Default: 7.0
	refuse  string // commands that it lacks
	behind  func(client, nth int) int
	answers func() answering // for each connection

	identified bool // INFO has a run_id

	lock  string // that auto chooses; "": it must refuse, as unsafe
	says  []string
	never []string // what would be untrue
}

// answering is a connection's answer to a command, the at-th of its write: run is the Redis's. An error that is no
// server's ends the connection, and errSilent leaves the command unanswered.
type answering func(at int, cmd []string, run func(cmd ...any) any) any

var errSilent = errors.New("silent")

// instead answers commands of these names so.
func instead(reply func(run func(...any) any) any, names ...string) func() answering {
	return func() answering {
		return func(_ int, cmd []string, run func(...any) any) any {
			for _, name := range names {
				if strings.EqualFold(cmd[0], name) {
					return reply(run)
				}
			}
			return run()
		}
	}
}

func always(reply any) func(func(...any) any) any { return func(func(...any) any) any { return reply } }

// informed adds lines to INFO.
func informed(lines string, first ...string) func(func(...any) any) any {
	return func(run func(...any) any) any {
		info, _ := run().([]byte)
		s := string(info)
		for _, cut := range first {
			s = strings.ReplaceAll(s, cut, "")
		}
		return []byte(s + lines)
	}
}

// words replaces what every error says.
func words(change func(cmd, said string) string) func() answering {
	return func() answering {
		return func(_ int, cmd []string, run func(...any) any) any {
			reply := run()
			if e, refused := reply.(redis.Error); refused {
				return redis.Error(change(strings.ToLower(cmd[0]), string(e)))
			}
			return reply
		}
	}
}

// turns has each connection go to the next server.
func turns(n int) func(int, int) int { return func(_, nth int) int { return nth % n } }

// apiece has each client have a server of its own.
func apiece(client, _ int) int { return client }

var strangers = []stranger{
	{name: "KeyDB with active-replica", behind: apiece,
		answers: instead(informed("role:active-replica\r\n", "role:master\r\n"), "INFO"), says: []string{"active-replica"}},
	{name: "a role that only ROLE tells", behind: apiece, refuse: "INFO",
		answers: instead(always([]any{[]byte("multi-master"), int64(0)}), "ROLE"), says: []string{"multi-master"}},
	{name: "two masters in turns", behind: turns(2), says: []string{"run_id"}, identified: true},
	{name: "two masters in turns, without INFO", behind: turns(2), refuse: "INFO ROLE",
		says: []string{"not read over another"}},
	{name: "three masters, the second now and then", says: []string{"more than one server"},
		behind: func(_, nth int) int { return []int{0, 0, 0, 1, 2}[nth%5] }},
	{name: "one master that names itself", lock: "set:lua", identified: true},
	{name: "two masters in turns, of 2.2", version: "2.2", behind: turns(2), says: []string{"not read over another"}},

	{name: "Envoy", lock: "set:lua", never: []string{"TIME"}, answers: func() answering {
		return func(_ int, cmd []string, run func(...any) any) any {
			switch cmd[0] {
			case "TIME":
				t, _ := redis.Strings(run(), nil)
				return []any{[]byte(t[0]), []byte(t[0] + "551470")}
			case "ROLE":
				return []any{[]any{"master", int64(0)}, []any{"master", int64(0)}}
			}
			return run()
		}
	}},
	{name: "a node of a cluster", says: []string{"MOVED", "a cluster", "package cluster"}, answers: func() answering {
		return func(_ int, cmd []string, run func(...any) any) any {
			switch cmd[0] {
			case "INFO", "MULTI", "EXEC", "DISCARD", "UNWATCH", "PING", "TIME", "CONFIG", "ROLE":
				return run()
			}
			key := cmd[min(1, len(cmd)-1)]
			if strings.HasPrefix(cmd[0], "EVAL") {
				key = cmd[3]
			}
			if slot := cluster.Slot(key); slot > 8191 {
				return redis.Error(fmt.Sprintf("MOVED %d 127.0.0.1:7111", slot))
			}
			return run()
		}
	}},
	{name: "SSDB", refuse: "MULTI EXEC WATCH UNWATCH RENAMENX EVAL EVALSHA PSETEX PEXPIRE PTTL CONFIG INFO ROLE TIME",
		lock: "getset:classic", says: []string{"SET … NX sets a key that is held"}, never: []string{"has no SET … NX PX"},
		answers: func() answering {
			return func(_ int, cmd []string, run func(...any) any) any {
				if cmd[0] == "SET" {
					return run("SET", cmd[1], cmd[2])
				}
				return run()
			}
		}},
	{name: "LedisDB", version: "2.4", refuse: "MULTI EXEC WATCH UNWATCH RENAMENX CONFIG ROLE",
		says: []string{"whether it has SETNX", "invalid command param"}, never: []string{"it lacks SETNX", "no SETNX"},
		answers: words(func(_, said string) string {
			if strings.Contains(said, "unknown command") {
				return "ERR command not found"
			}
			return "ERR invalid command param"
		})},
	{name: "Redka", refuse: "WATCH UNWATCH PTTL SORT EVAL EVALSHA CONFIG INFO ROLE TIME",
		lock: "getset:classic", says: []string{"PTTL"}, never: []string{"no SET … NX PX"},
		answers: func() answering {
			return func(_ int, cmd []string, run func(...any) any) any {
				reply := run()
				if e, refused := reply.(redis.Error); refused && strings.HasPrefix(string(e), "EXECABORT") {
					return errSilent
				}
				if list, ok := reply.([]any); ok && cmd[0] == "EXEC" {
					for _, r := range list {
						if _, refused := r.(redis.Error); refused {
							return errSilent
						}
					}
				}
				if _, refused := reply.(redis.Error); refused {
					return redis.Error("ERR unknown command (" + strings.ToLower(cmd[0]) + ")")
				}
				return reply
			}
		}},
	{name: "Godis", refuse: "RENAMENX SORT EVAL EVALSHA PTTL CONFIG ROLE",
		lock: "getset:classic", says: []string{"PTTL", "an empty list"}, never: []string{"no SET … NX PX", "EXEC runs"},
		answers: func() answering {
			multi, spoilt := false, false
			return func(_ int, cmd []string, run func(...any) any) any {
				reply := run()
				_, refused := reply.(redis.Error)
				spoilt = spoilt || multi && refused
				switch cmd[0] {
				case "MULTI":
					multi = true
				case "DISCARD":
					multi = false
				case "EXEC":
					multi = false
					if spoilt { // until the connection ends
						return redis.Error("EXECABORT Transaction discarded because of previous errors.")
					}
					if reply == nil {
						return []any{}
					}
				}
				return reply
			}
		}},
	{name: "SugarDB", says: []string{"five in one write"}, answers: func() answering {
		return func(at int, _ []string, run func(...any) any) any {
			if at > 0 {
				return errSilent
			}
			return run()
		}
	}},
	{name: "Infinispan", says: []string{"answers PING", "GET", "begins with '_'"}, answers: func() answering {
		return func(_ int, _ []string, run func(...any) any) any {
			if reply := run(); reply != nil {
				return reply
			}
			return errors.New("not a reply in RESP 2: it begins with '_'")
		}
	}},
	{name: "fakeredis", says: []string{"connection"}, lock: "set:watch", answers: func() answering {
		closed := false
		return func(_ int, _ []string, run func(...any) any) any {
			if closed {
				return io.EOF
			}
			reply := run()
			_, closed = reply.(redis.Error)
			return reply
		}
	}},
	{name: "statuses as strings", lock: "getset:guarded", says: []string{"SETEX, TTL are answered", "not as Redis does"},
		never: []string{"its TTL, so", "there is no SETEX"},
		answers: func() answering {
			return func(_ int, _ []string, run func(...any) any) any {
				reply := run()
				if status, ok := reply.(string); ok {
					return []byte(status)
				}
				return reply
			}
		}},
	{name: "an eviction policy that nobody knows", version: "2.0", lock: "getset:listed",
		says: []string{"\"eviction\"", "unsafe"}, answers: func() answering {
			return func(_ int, cmd []string, run func(...any) any) any {
				switch strings.Join(cmd, " ") {
				case "CONFIG GET maxmemory":
					return []any{[]byte("maxmemory"), []byte("100")}
				case "CONFIG GET maxmemory-policy":
					return []any{[]byte("maxmemory-policy"), []byte("eviction")}
				}
				return run()
			}
		}},
	untimely("1700000000", "1000000"), untimely("1700000000", "-1"), untimely("1", "2", "3"), untimely("-1700000000", "5"),
	untimely(int64(1700000000), int64(1000000)), untimely("1700000000", nil), untimely(),
}

// untimely is a Redis whose TIME is none.
func untimely(told ...any) stranger {
	for i, s := range told {
		if text, ok := s.(string); ok {
			told[i] = []byte(text)
		}
	}
	answers := instead(always(told), "TIME")
	return stranger{name: fmt.Sprintf("TIME is %s", told), lock: "set:lua", never: []string{"TIME"}, answers: answers}
}

// source is a client's way to a stranger.
func (s stranger) source(t *testing.T, servers []*oldredis.Server, client int, dials *atomic.Int32) compat.Source {
	return compat.Pooled(&redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) {
		n, nth := 0, int(dials.Add(1))-1
		if s.behind != nil {
			n = s.behind(client, nth)
		}
		to := servers[n].Dial()
		answer := answering(func(_ int, _ []string, run func(...any) any) any { return run() })
		switch {
		case s.identified:
			answer = instead(informed(fmt.Sprintf("run_id:%040d\r\n", n)), "INFO")()
		case s.answers != nil:
			answer = s.answers()
		}
		return faulty.Carried(func(ctx context.Context, write [][]any) (replies []any, err error) {
			for at, args := range write {
				cmd := make([]string, len(args))
				for i, a := range args {
					cmd[i] = fmt.Sprint(a)
				}
				run := func(instead ...any) any {
					if len(instead) == 0 {
						instead = args
					}
					reply, err := to.Do(instead[0].(string), instead[1:]...)
					if err != nil {
						return err
					}
					return reply
				}
				reply := answer(at, cmd, run)
				if reply == errSilent {
					<-ctx.Done()
					return nil, faulty.Cause(ctx)
				}
				if err, failed := reply.(error); failed {
					if _, refused := err.(redis.Error); !refused {
						return nil, err
					}
				}
				replies = append(replies, reply)
			}
			return replies, nil
		}, func(bool) { to.Close() }), nil
	}})
}

// On whatever answers in place of a Redis, of two clients that auto gives a lock one has it; what is refused is
// refused for a reason that is true; and what the report says that a server can do, it can.
func TestStrangers(t *testing.T) {
	for _, s := range strangers {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if s.version == "" {
					s.version = "7.0"
				}
				var servers []*oldredis.Server
				for range 3 {
					one := oldredis.MustNew(s.version, oldredis.Options{Refuse: strings.Fields(s.refuse), Clock: clock.New()})
					defer one.Close()
					servers = append(servers, one)
				}
				var dials atomic.Int32
				var chosen []*compat.Locker
				var said string
				for client := range 2 {
					source := s.source(t, servers, client, &dials)
					r, err := probe.Ask(t.Context(), source, probe.Options{})
					said = fmt.Sprint(err, r.Warnings)
					for _, a := range ability.All() {
						if r.Can(a) {
							said += " can " + string(a)
						}
					}
					k, c, err := probe.NewWith(t.Context(), source, probe.Options{Memory: new(probe.Memory)}, compat.Options{})
					said += fmt.Sprintf(" chose %s: %s (%v)", c.Name, c.Why, err)
					for _, p := range c.Passed {
						said += fmt.Sprintf("; not %s: %s", p.Name, p.Why)
					}
					if err == nil && !c.Safe {
						said += "; unsafe"
					}
					unfit := errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnanswered)
					if c.Name != s.lock || unfit != (s.lock == "") || s.lock != "" && err != nil {
						t.Errorf("auto chose %q: %v", c.Name, err)
					}
					if err == nil {
						defer k.Close(context.Background()) //nolint:errcheck // the server goes with it
						chosen = append(chosen, k)
					}
					offset, _, err := probe.Offset(t.Context(), source, nil, probe.Options{})
					if offset.Abs() > 2*time.Second {
						t.Errorf("the server's clock is off by %v, %v", offset, err)
					}
				}
				for _, want := range s.says {
					if !strings.Contains(said, want) {
						t.Errorf("does not say %q: %s", want, said)
					}
				}
				for _, untrue := range s.never {
					if strings.Contains(said, untrue) {
						t.Errorf("says %q: %s", untrue, said)
					}
				}
				for i := range 4 {
					key, holders := fmt.Sprint("k", i), 0
					for _, k := range chosen {
						_, err := k.TryLock(t.Context(), key, time.Minute)
						if err == nil {
							holders++
						} else if !errors.Is(err, compat.ErrHeld) {
							t.Errorf("TryLock: %v", err)
						}
					}
					if holders != 1 && len(chosen) > 0 {
						t.Errorf("%d clients hold %s", holders, key)
					}
				}
			})
		})
	}
}
