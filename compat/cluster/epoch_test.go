package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	slots "github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// shards are a cluster of embedded servers whose map is what a test says. Each half of the slots
// has a master.
type shards struct {
	mu      sync.Mutex
	servers map[string]*oldredis.Server
	masters [2]string // of the lower half of the slots, and of the upper
	lose    string    // a key: the connection breaks when its server has answered, and has it no more
	then    func()    // called before it breaks
	stale   string    // one that still serves what it had, though another is master by now

	oneByOne bool // the commands of a write are run one by one, and something may happen in between

	asked    func(cmds [][]any)  // called before commands run
	answered func(replies []any) // called before their replies are sent
}

func newShards(t *testing.T) (*shards, *cluster.Source) {
	s := &shards{masters: [2]string{"a:1", "b:1"}, servers: map[string]*oldredis.Server{}}
	for _, addr := range []string{"a:1", "b:1", "c:1"} {
		s.servers[addr] = oldredis.Run(t, "7.0")
	}
	return s, s.source(t)
}

// source returns a client's Source. Without seeds the client knows all servers.
func (s *shards) source(t *testing.T, seeds ...string) *cluster.Source {
	if len(seeds) == 0 {
		seeds = []string{"a:1", "b:1", "c:1"}
	}
	source := cluster.New(seeds, cluster.Options{Dial: func(_ context.Context, addr string) (redis.Conn, error) {
		return s.dial(addr), nil
	}})
	t.Cleanup(func() { source.Close() })
	return source
}

// set makes these the masters. s.mu is held, or nobody uses s.
func (s *shards) set(lower, upper string) { s.masters = [2]string{lower, upper} }

// id is of the server at addr, whatever its address.
func (s *shards) id(addr string) string {
	for _, first := range []string{"a:1", "b:1", "c:1"} {
		if s.servers[first] == s.servers[addr] {
			return "id of " + first
		}
	}
	return ""
}

func (s *shards) master(key string) string { return s.masters[slots.Of(key)*2/16384] }

// lost reports whether a connection to addr breaks now.
func (s *shards) lost(addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lose == "" || s.master(s.lose) != addr {
		return false
	}
	if n, err := redis.Int(s.servers[addr].Dial().Do("EXISTS", s.lose)); n != 0 || err != nil {
		return false
	}
	s.lose = ""
	s.then()
	return true
}

// learnt has source learn of a change: a connection of a user, for a key that is not there, breaks.
func (s *shards) learnt(t *testing.T, source *cluster.Source, key string, change func(*shards)) {
	c := must.Get(source.Get(t.Context(), key))(t)
	s.mu.Lock()
	s.lose, s.then = key, func() { change(s) }
	s.mu.Unlock()
	if _, err := c.Do("GET", key); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	c.Close()
	must.Get(source.Get(t.Context(), key))(t).Close()
}

// refused are a cluster's replies to commands of which another server than the one at addr has a
// key; nil: it has them all.
func (s *shards) refused(addr string, cmds [][]any) []any {
	if s.asked != nil {
		s.asked(cmds)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var replies []any
	refused, multi := false, false
	for _, cmd := range cmds {
		key := keyOf(cmd)
		var reply any = "OK"
		switch name := cmd[0]; {
		case name == "MULTI":
			multi = true
		case name == "EXEC" && refused:
			reply = redis.Error("EXECABORT Transaction discarded because of previous errors.")
		case crosses(cmd):
			refused = true
			reply = redis.Error("CROSSSLOT Keys in request don't hash to the same slot")
		case key != "" && s.master(key) != addr && s.stale != addr:
			refused = true
			reply = redis.Error(fmt.Sprintf("MOVED %d %s", slots.Of(key), s.master(key)))
		case multi:
			reply = "QUEUED"
		}
		replies = append(replies, reply)
	}
	if !refused {
		return nil
	}
	return replies
}

// crosses reports whether a command names keys of several slots.
func crosses(cmd []any) bool {
	step := map[any]int{"WATCH": 1, "DEL": 1, "MSETNX": 2}[cmd[0]]
	for i := 1; step > 0 && i < len(cmd); i += step {
		if slots.Of(fmt.Sprint(cmd[i])) != slots.Of(keyOf(cmd)) {
			return true
		}
	}
	return false
}

// keyOf is the key that a command of a lock names first, "" for none.
func keyOf(cmd []any) string {
	at := 1
	switch cmd[0] {
	case "EVAL", "EVALSHA":
		at = 3
	case "MULTI", "EXEC", "UNWATCH", "DISCARD", "PING", "INFO", "TIME", "CONFIG", "SCRIPT", "ROLE", "COMMAND":
		return ""
	}
	if len(cmd) <= at {
		return ""
	}
	return fmt.Sprint(cmd[at])
}

// dial connects to the server at addr, which has a name too: a:1 is a.example:1.
func (s *shards) dial(addr string) redis.Conn {
	addr = strings.Replace(addr, ".example", "", 1)
	to := s.servers[addr].Dial()
	return faulty.Carried(func(_ context.Context, write [][]any) (replies []any, err error) {
		if write[0][0] == "CLUSTER" {
			return []any{s.ranges(addr)}, nil
		}
		for len(write) > 0 {
			n := len(write)
			exec := slices.IndexFunc(write, func(cmd []any) bool { return cmd[0] == "EXEC" })
			if s.oneByOne && write[0][0] == "MULTI" {
				n = 1 + max(0, exec)
			} else if s.oneByOne {
				n = 1
			}
			replies = append(replies, s.run(addr, to, write[:n])...)
			write = write[n:]
		}
		if s.lost(addr) {
			return nil, io.EOF
		}
		if s.answered != nil {
			s.answered(replies)
		}
		return replies, nil
	}, func(bool) { to.Close() })
}

// ranges are the replies to CLUSTER SLOTS of the server at from: one that is stale takes itself for a master.
func (s *shards) ranges(from string) (ranges []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	masters := s.masters
	if from == s.stale {
		masters[0] = from
	}
	for i, addr := range masters {
		host, _, _ := strings.Cut(addr, ":")
		node := []any{[]byte(host), int64(1), []byte(s.id(addr))}
		ranges = append(ranges, []any{int64(i * 8192), int64(i*8192 + 8191), node})
	}
	return ranges
}

// run runs commands, or none of them.
func (s *shards) run(addr string, to redis.Conn, cmds [][]any) []any {
	if refused := s.refused(addr, cmds); refused != nil {
		return refused
	}
	for _, cmd := range cmds {
		to.Send(cmd[0].(string), cmd[1:]...) //nolint:errcheck // of an embedded server
	}
	replies, err := redis.Values(to.Do(""))
	if err != nil {
		panic(err) // an embedded server is always there
	}
	return replies
}

// inBubble runs a test whose time is virtual: a server that is slow is not taken for one that is silent.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A release that is not answered and whose key is gone got through, unless the server that answers
// now may never have had the key: that another server of the cluster was replaced says nothing. Of a
// set, each key has a server of its own.
func TestReleaseUnansweredWhileServersChange(t *testing.T) {
	const low, high = "k", "l" // in the lower half of the slots, and in the upper
	if slots.Of(low) >= 8192 || slots.Of(high) < 8192 {
		t.Fatal("both keys are in one half")
	}
	kinds := map[string]func(compat.Source) (*compat.Locker, string){}
	for _, a := range algorithms() {
		kinds[a.name] = func(s compat.Source) (*compat.Locker, string) {
			return compat.NewOn(s, a.new(false), compat.Options{NoRenew: true}), low
		}
	}
	for name, a := range map[string]protocol.Algorithm{"set:lua": setlock.Lua{}, "tx:guarded": txlock.Guarded{}} {
		kinds["in turn "+name] = func(s compat.Source) (*compat.Locker, string) {
			return compat.NewLocker(multilock.New(s, a), compat.Options{NoRenew: true}), multilock.Join(low, high)
		}
	}
	for _, c := range []struct {
		name        string
		asked       func(*shards) // what happens while the lock is asked for,
		held, while func(*shards) // before the release, and while it is under way
		single      bool          // of a set another key is lost
		want        error
	}{
		{"nothing has changed", nil, nil, nil, false, nil},
		{"another's was replaced", nil, nil, func(s *shards) { s.set("a:1", "c:1") }, false, nil},
		{"another's was replaced before", nil, func(s *shards) { s.set("a:1", "c:1") }, nil, true, nil},
		{"it was replaced", nil, nil, func(s *shards) { s.set("c:1", "b:1") }, false, compat.ErrLost},
		{"it was replaced before", nil, func(s *shards) { s.set("c:1", "b:1") }, nil, false, compat.ErrLost},
		{"it has another address now", nil, nil, func(s *shards) { s.servers["c:1"] = s.servers["a:1"]; s.set("c:1", "b:1") }, false, nil},
		{"it has passed the slot on", nil, nil, func(s *shards) { s.set("b:1", "a:1") }, false, nil},
		{"it is replaced while it is asked", func(s *shards) { s.set("c:1", "b:1") }, nil, nil, false, nil},
		{"it is replaced while it is asked, and once more", func(s *shards) { s.set("c:1", "b:1") }, nil, func(s *shards) { s.set("a:1", "b:1") }, false, compat.ErrLost},
		{"it has passed the slot on to one that is new", nil, nil, func(s *shards) { s.set("c:1", "a:1") }, false, compat.ErrLost},
	} {
		for name, kind := range kinds {
			if c.single && strings.HasPrefix(name, "in turn") {
				continue
			}
			inBubble(t, c.name+"/"+name, func(t *testing.T) {
				s, source := newShards(t)
				k, key := kind(source.Source())
				asked := c.asked == nil
				s.asked = func(cmds [][]any) {
					if !asked && slices.ContainsFunc(cmds, func(cmd []any) bool { return slices.Contains(cmd, any(low)) }) {
						asked = true
						c.asked(s)
					}
				}
				lock := must.Get(k.TryLock(t.Context(), key, time.Minute))(t)
				if !asked {
					t.Error("nothing was asked about the key")
				}
				if c.held != nil {
					s.learnt(t, source, "other{"+low+"}", c.held)
				}
				s.lose, s.then = low, func() {}
				if c.while != nil {
					s.then = func() { c.while(s) }
				}
				if err := lock.Release(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("Release: %v, want %v", err, c.want)
				}
				if s.lose != "" {
					t.Error("nothing was lost")
				}
			})
		}
	}
}

// A set that is taken in one command or transaction, whose keys are in different slots, is refused with what to do.
func TestSetsAcrossSlots(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{
		"Tx": multilock.Tx{}, "GetSet": multilock.GetSet{}, "GetSetClassic": multilock.GetSetClassic{},
	} {
		inBubble(t, name, func(t *testing.T) {
			s, source := newShards(t)
			s.oneByOne = true // what one command is refused says nothing of the next
			k := compat.NewOn(source.Source(), a, compat.Options{NoRenew: true})
			for i := range 20 {
				key := multilock.Join(fmt.Sprint("a", i), fmt.Sprint("b", 7*i+1))
				_, err := k.TryLock(t.Context(), key, time.Minute)
				var unsafe *compat.UnsafeServerError
				if !errors.As(err, &unsafe) || unsafe.Use == "" {
					t.Errorf("%s: %v, want ErrUnsafeServer with a remedy", key, err)
				}
			}
		})
	}
}

// A server that is replaced in the middle of a check, by one that lacks what was written just now, was not found
// unsafe: what some of the commands did, the others saw on another server.
func TestReplacedWhileItIsChecked(t *testing.T) {
	const key = "k"
	replace := func(s *shards) { s.set("c:1", "b:1") }
	for _, test := range []struct {
		name  string
		first func(*testing.T, *shards, *cluster.Source) // what happens before the first command
		then  func(*shards)                              // and before a later one
	}{
		{"it says so", func(*testing.T, *shards, *cluster.Source) {}, replace},
		{"it hears of it last", func(t *testing.T, s *shards, source *cluster.Source) {
			s.stale = "a:1"
			s.learnt(t, source, "other{"+key+"}", replace)
		}, func(s *shards) { s.stale = "" }},
	} {
		for _, a := range algorithms() {
			inBubble(t, test.name+"/"+a.name, func(t *testing.T) {
				for moment := 1; ; moment++ {
					s, source := newShards(t)
					s.oneByOne = true
					k := compat.NewOn(source.Source(), a.new(false), compat.Options{NoRenew: true})
					var n atomic.Int32 // commands; a wake-up is sent beside the test
					var inside atomic.Bool
					s.asked = func(cmds [][]any) {
						if inside.Load() || !slices.ContainsFunc(cmds, func(cmd []any) bool { return keyOf(cmd) != "" }) {
							return
						}
						at := int(n.Add(1))
						if at == 1 {
							inside.Store(true)
							test.first(t, s, source)
							inside.Store(false)
						}
						if at == moment+1 {
							s.mu.Lock()
							test.then(s)
							s.mu.Unlock()
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					lock, err := k.Lock(ctx, key, time.Minute)
					if err != nil && !errors.Is(err, compat.ErrUnsafeServer) && !strings.Contains(err.Error(), "does not keep") {
						lock, err = k.Lock(ctx, key, time.Minute) // tx:renamed's own key was gone when it was to be renamed, and it says so
					}
					cancel()
					if err != nil {
						t.Fatalf("after %d commands: %v", moment, err)
					}
					if err := lock.Release(t.Context()); err != nil && !errors.Is(err, compat.ErrLost) {
						t.Errorf("after %d commands: Release: %v", moment, err)
					}
					if int(n.Load()) <= moment {
						return
					}
				}
			})
		}
	}
}
