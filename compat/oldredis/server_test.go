package oldredis

import (
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestNewKnowsItsVersions(t *testing.T) {
	_, err := New("1.0", Options{})
	for _, name := range append(Versions(), Profiles()...) {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New(1.0): %v does not name %s", err, name)
		}
		if s, err := New(name, Options{}); err != nil {
			t.Error(err)
		} else if s.Close(); s.Version() != name {
			t.Errorf("%s calls itself %s", name, s.Version())
		}
	}
}

// TestHandlersExist finds misspelt names: every handled command must exist in some version, and miniredis must have
// those that have no handler.
func TestHandlersExist(t *testing.T) {
	s, handlers := Run(t, "7.0"), handlers()
	known := make(map[string]bool)
	for _, column := range columns() {
		for _, cmd := range column {
			known[cmd.name] = true
			if cmd.run != nil && handlers[cmd.name] == nil && !s.mini.Server().IsRegisteredCommand(cmd.name) {
				t.Errorf("%s is passed to miniredis, which does not have it", cmd.name)
			}
		}
	}
	for name := range handlers {
		if !known[name] {
			t.Errorf("handler %s is not a command", name)
		}
	}
}

func TestLostRequest(t *testing.T) {
	s := Run(t, "2.4")
	s.SetFault(func(_, n int, cmd []string) Fault {
		if n == 1 && cmd[0] == "EXPIRE" {
			return LoseRequest
		}
		return None
	})
	c := s.Dial()
	c.Send("SETNX", "lock", "A")
	c.Send("EXPIRE", "lock", 10)
	if err := c.Flush(); err != nil {
		t.Errorf("the cut is seen when a reply is read, not at Flush: %v", err)
	}
	if reply, err := c.Receive(); err == nil {
		t.Errorf("the reply of the command before the cut arrived: %v", reply)
	}
	s.SetFault(nil)
	talk(t, s, `
		GET lock -> "A"
		TTL lock -> (int) -1`)
}

// A refused command does not run; the effect on its transaction depends on the version.
func TestFaultRefuse(t *testing.T) {
	for _, v := range Versions() {
		t.Run(v, func(t *testing.T) {
			s := Run(t, v)
			c := s.Dial()
			refuse := func(name string) {
				s.SetFault(func(_, _ int, cmd []string) Fault {
					if cmd[0] == name {
						return Refuse
					}
					return None
				})
			}
			refuse("SET")
			if _, err := c.Do("SET", "k", "v"); err == nil || !strings.Contains(err.Error(), "maxmemory") {
				t.Errorf("SET: %v", err)
			}
			c.Do("MULTI")
			c.Do("SET", "k", "v")
			c.Do("INCR", "n")
			done, err := redis.Values(c.Do("EXEC"))
			if v < "2.6" && (err != nil || len(done) != 1 || done[0] != int64(1)) || v >= "2.6" && (err == nil || !strings.HasPrefix(err.Error(), "EXECABORT")) {
				t.Errorf("EXEC after SET was refused: %v, %v", done, err)
			}
			refuse("EXEC")
			c.Do("MULTI")
			c.Do("INCR", "n")
			if _, err := c.Do("EXEC"); err == nil {
				t.Error("EXEC was not refused")
			}
			s.SetFault(nil)
			reply, err := c.Do("GET", "k")
			if stays := s.has(execNeedsMemory); stays != (reply == "QUEUED") || !stays && reply != nil || err != nil {
				t.Errorf("after a refused EXEC: %v, %v", reply, err)
			}
		})
	}
}

func TestFaultsOverTCP(t *testing.T) {
	s := Run(t, "2.4")
	addr := must.Get(s.Listen("127.0.0.1:0"))(t)
	s.SetFault(func(_, n int, cmd []string) Fault {
		switch cmd[1] {
		case "unsent":
			return LoseRequest
		case "unheard":
			return LoseReply
		}
		return None
	})
	for _, key := range []string{"unsent", "unheard"} {
		c := must.Get(redis.Dial("tcp", addr.String()))(t)
		c.Send("INCR", "before")
		c.Send("INCR", key)
		if reply, err := c.Do(""); err == nil {
			t.Errorf("%s: %v", key, reply)
		}
		c.Close()
	}
	talk(t, s, `
		GET before -> "2"`)
	s.SetFault(nil)
	talk(t, s, `MGET unsent unheard -> [nil "1"]`)
}

func TestTrace(t *testing.T) {
	s := Run(t, "2.4")
	var seen []string
	s.SetTrace(func(conn int, cmd []string, reply any) {
		seen = append(seen, fmt.Sprintf("%d %s -> %s", conn, strings.Join(cmd, " "), show(reply)))
	})
	a, b := s.Dial(), s.Dial()
	do(t, a, "SETNX k v")
	do(t, b, "MULTI")
	do(t, b, "GET k")
	do(t, b, "EXEC")
	want := []string{"0 SETNX k v -> (int) 1", "1 MULTI -> OK", "1 GET k -> QUEUED", `1 EXEC -> ["v"]`}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("got %q", seen)
	}
}

func TestFullMemory(t *testing.T) {
	full := func(version string) *Server {
		s := Run(t, version)
		do(t, s.Dial(), "SET lock A")
		s.SetMaxMemoryReached(true)
		return s
	}
	talk(t, full("1.2"), `
		SET k v -> (error) ERR command not allowed when used memory > 'maxmemory'
		MULTI -> OK
		DEL lock -> QUEUED
		EXEC -> [(int) 1]`)
	for _, version := range []string{"2.0", "2.2", "2.4"} {
		talk(t, full(version), `
			SETNX k v -> (error) ERR command not allowed when used memory > 'maxmemory'
			MULTI -> OK
			SET k v -> (error) ERR command not allowed when used memory > 'maxmemory'
			DEL lock -> QUEUED
			EXEC -> (error) ERR command not allowed when used memory > 'maxmemory'
			GET lock -> QUEUED
			DISCARD -> OK
			DEL lock -> (int) 1`)
	}
	for _, version := range []string{"2.6", "2.8", "3.0"} {
		talk(t, full(version), `
			SETNX k v -> (error) OOM command not allowed when used memory > 'maxmemory'.
			MULTI -> OK
			DEL lock -> QUEUED
			EXEC -> [(int) 1]
			MULTI -> OK
			SET k v -> (error) OOM command not allowed when used memory > 'maxmemory'.
			EXEC -> (error) EXECABORT Transaction discarded because of previous errors.`)
	}
	talk(t, full("5.0"), `
		MULTI -> OK
		GET lock -> (error) OOM command not allowed when used memory > 'maxmemory'.
		DISCARD -> (error) OOM command not allowed when used memory > 'maxmemory'.
		EXEC -> (error) EXECABORT Transaction discarded because of previous errors.`)
	s := Run(t, "7.0")
	c := s.Dial()
	do(t, c, "MULTI")
	do(t, c, "SET k v")
	s.SetMaxMemoryReached(true)
	if got := do(t, c, "EXEC"); !strings.HasPrefix(got, "(error) EXECABORT") {
		t.Errorf("7.0: EXEC of a growing write -> %s", got)
	}
	if got := do(t, c, "DEL k"); got != "(int) 0" {
		t.Errorf("7.0: after EXECABORT -> %s", got)
	}
}

func TestProfiles(t *testing.T) {
	for _, cmd := range []string{
		"MULTI", "WATCH k", "RENAMENX a b", "PING", "INFO", "TIME", "SELECT 0", "CONFIG GET *", "SET k v NX PX 9", "EVAL x 0", "NOSUCH",
	} {
		if got := do(t, Run(t, "twemproxy").Dial(), cmd); got != "broken: EOF" {
			t.Errorf("twemproxy: %s -> %s", cmd, got)
		}
	}
	talk(t, Run(t, "twemproxy"), `
		SETNX k v -> (int) 1
		EXPIRE k 10 -> (int) 1
		TTL none -> (int) -2
		GETSET k w -> "v"`)
	if got := do(t, Run(t, "noscript").Dial(), "EVAL x 0"); !strings.HasPrefix(got, "(error) ERR unknown command 'EVAL'") {
		t.Errorf("noscript: EVAL -> %s", got)
	}
	talk(t, Run(t, "noscript"), `
		SET k v NX PX 1000 -> OK
		PTTL k -> (int) 1000`)

	s := must.Get(New("2.6", Options{Refuse: []string{"CONFIG"}, Forbid: []string{"keys"}}))(t)
	defer s.Close()
	talk(t, s, `
		config get save -> (error) ERR unknown command 'config'
		KEYS * -> (error) NOPERM this user has no permissions to run the 'keys' command`)
}

func TestInfo(t *testing.T) {
	for version, lines := range map[string]string{
		"1.2": "redis_version:1.2.6 role:master db0:keys=2,expires=1",
		"2.4": "redis_version:2.4.18 role:master aof_enabled:0 db0:keys=2,expires=1",
		"7.0": "redis_version:7.0.15 role:master aof_enabled:0 maxmemory:0 maxmemory_policy:noeviction db0:keys=2,expires=1",
	} {
		s := Run(t, version)
		c := s.Dial()
		do(t, c, "MSET a 1 b 2")
		do(t, c, "EXPIRE a 9")
		text, err := redis.String(c.Do("INFO"))
		for _, line := range strings.Fields(lines) {
			if !strings.Contains(text, line+"\r\n") {
				t.Errorf("%s: INFO without %s (%v):\n%s", version, line, err, text)
			}
		}
	}
	talk(t, Run(t, "2.4"), `
		CONFIG GET maxmemory* -> ["maxmemory" "0" "maxmemory-policy" "volatile-lru"]
		CONFIG GET timeout -> ["timeout" "0"]`)
	if got := do(t, Run(t, "7.0").Dial(), "INFO memory"); strings.Contains(got, "role:") {
		t.Errorf("INFO memory -> %s", got)
	}
}

func TestWatch(t *testing.T) {
	talk(t, Run(t, "2.4"), `
		a: WATCH k -> OK
		b: SET k 1 -> OK
		a: WATCH k -> OK
		a: MULTI -> OK
		a: EXEC -> nil
		a: WATCH k none -> OK
		b: FLUSHALL -> OK
		a: MULTI -> OK
		a: EXEC -> nil
		a: WATCH k -> OK
		b: FLUSHALL -> OK
		a: MULTI -> OK
		a: EXEC -> []
		a: WATCH l -> OK
		b: LPUSH l x -> (int) 1
		a: MULTI -> OK
		a: EXEC -> nil
		a: WATCH l -> OK
		b: LLEN l -> (int) 1
		b: LREM l 0 none -> (int) 0
		b: ZADD z 1 m -> (int) 1
		a: WATCH z -> OK
		b: ZADD z 1 m -> (int) 0
		a: MULTI -> OK
		a: EXEC -> []`)
	talk(t, Run(t, "2.2"), `
		a: WATCH k -> OK
		b: SET k 1 -> OK
		a: MULTI -> OK
		a: DISCARD -> OK
		a: MULTI -> OK
		a: EXEC -> nil`)
	talk(t, Run(t, "2.6"), `
		a: WATCH k -> OK
		b: EVAL redis.call('set',KEYS[1],1) 1 k -> nil
		a: MULTI -> OK
		a: EXEC -> nil
		b: EVAL return{redis.call('pexpire',KEYS[1],500),redis.call('pttl',KEYS[1]),redis.call('pttl','none')} 1 k -> [(int) 1 (int) 500 (int) -1]
		b: PTTL k -> (int) 500`)
}

func TestEvents(t *testing.T) {
	s := Run(t, "2.4")
	c := s.Dial()
	do(t, c, "SET k v")
	do(t, c, "WATCH k")
	if !s.Evict("k") || s.Evict("k") {
		t.Error("Evict does not say whether the key was there")
	}
	do(t, c, "MULTI")
	if got := do(t, c, "EXEC"); got != "nil" {
		t.Errorf("EXEC after the eviction of a watched key -> %s", got)
	}
	do(t, c, "SET k v")
	s.Restart(Keeping)
	if got := do(t, c, "GET k"); got != "broken: EOF" {
		t.Errorf("after a restart -> %s", got)
	}
	talk(t, s, `GET k -> "v"`)
	s.Restart(Empty)
	talk(t, s, `GET k -> nil`)
	c = s.Dial()
	if !s.Cut(c.(*Conn).Number()) || do(t, c, "PING") != "broken: EOF" {
		t.Error("Cut does not cut")
	}
}

func TestClock(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Date(2012, 3, 4, 5, 6, 7, 0, time.UTC))
	s := must.Get(New("2.6", Options{Clock: mock}))(t)
	defer s.Close()
	c := s.Dial()
	do(t, c, "PSETEX k 1050 v")
	mock.Add(1060 * time.Millisecond)
	if got := do(t, c, "PEXPIRE k 90"); got != "(int) 1" {
		t.Errorf("EXPIRE of an unreaped key -> %s", got)
	}
	mock.Add(200 * time.Millisecond)
	if got := do(t, c, "PEXPIRE k 90"); got != "(int) 0" {
		t.Errorf("EXPIRE of a reaped key -> %s", got)
	}
	if got, want := do(t, c, "TIME"), `["1330837568" "260000"]`; got != want {
		t.Errorf("TIME -> %s, want %s", got, want)
	}
	s.Advance(time.Hour)
	if got := s.Now().Sub(mock.Now()); got != time.Hour {
		t.Errorf("ahead of its clock by %v", got)
	}
}

func TestBlocking(t *testing.T) {
	s := Run(t, "2.4")
	c := s.Dial()
	c.Send("BLPOP", "none", "l", 0)
	c.Send("PING")
	c.Flush()
	talk(t, s, `
		RPUSH l a b -> (int) 2
		LRANGE l 0 -1 -> ["b"]`)
	for _, want := range []string{`["l" "a"]`, "PONG"} {
		if got, err := c.Receive(); err != nil || show(got) != want {
			t.Errorf("got %s, %v, want %s", show(got), err, want)
		}
	}
	talk(t, s, `
		BRPOP none l 1 -> ["l" "b"]
		MULTI -> OK
		BLPOP l 0 -> QUEUED
		EXEC -> [nil]`)
	c.Send("BRPOPLPUSH", "l", "m", 5)
	c.Flush()
	s.Advance(5 * time.Second)
	if got, err := c.Receive(); got != nil || err != nil {
		t.Errorf("after the timeout: %v, %v", got, err)
	}
}

func TestBlockingWakesAnotherGoroutine(t *testing.T) {
	s := Run(t, "2.4")
	addr := must.Get(s.Listen("127.0.0.1:0"))(t)
	over := must.Get(redis.Dial("tcp", addr.String()))(t)
	defer over.Close()
	var served sync.WaitGroup
	for _, c := range []redis.Conn{s.Dial(), over} {
		c.Send("BLPOP", "wake", 0)
		c.Flush()
		served.Go(func() {
			if got, err := c.Receive(); err != nil || show(got) != `["wake" "1"]` {
				t.Errorf("%s, %v", show(got), err)
			}
		})
	}
	talk(t, s, `
		LPUSH wake 1 -> (int) 1`)
	do(t, s.Dial(), "LPUSH wake 1")
	served.Wait()
}

func TestPublish(t *testing.T) {
	s := Run(t, "2.4")
	sub := redis.PubSubConn{Conn: s.Dial()}
	must.Do(t, sub.Subscribe("released"))
	if got := sub.Receive(); !reflect.DeepEqual(got, redis.Subscription{Kind: "subscribe", Channel: "released", Count: 1}) {
		t.Errorf("%#v", got)
	}
	go do(t, s.Dial(), "PUBLISH released k")
	if got := sub.Receive(); !reflect.DeepEqual(got, redis.Message{Channel: "released", Data: []byte("k")}) {
		t.Errorf("%#v", got)
	}
	sub.Unsubscribe("released")
	sub.Receive()
	talk(t, s, `PUBLISH released k -> (int) 0`)
}
