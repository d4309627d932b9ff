package oldredis_test

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// Before 2.2, SETNX with EXPIRE does not exclude other clients.
func Example() {
	for _, version := range []string{"2.0", "2.2"} {
		s := oldredis.MustNew(version, oldredis.Options{})
		a, b := s.Dial(), s.Dial()

		a.Do("SETNX", "lock", "A")
		a.Do("EXPIRE", "lock", 10)
		s.Advance(time.Second)
		won, err := redis.Bool(b.Do("SETNX", "lock", "B"))
		holder, _ := redis.String(b.Do("GET", "lock"))
		fmt.Println(version, won, err, holder)
		s.Close()
	}
	// Output:
	// 2.0 true <nil> B
	// 2.2 false <nil> A
}

// An expired key stays in memory until a client reads it or active expiry runs. On 2.4 an EXPIRE in
// between brings it back to life.
func ExampleServer_AdvanceLazy() {
	s := oldredis.MustNew("2.4", oldredis.Options{})
	defer s.Close()
	c := s.Dial()

	c.Do("SETEX", "lock", 1, "dead")
	s.AdvanceLazy(2 * time.Second)
	ttl, _ := redis.Int(c.Do("TTL", "lock"))
	revived, _ := redis.Int(c.Do("EXPIRE", "lock", 60))
	holder, _ := redis.String(c.Do("GET", "lock"))
	fmt.Println(ttl, revived, holder)
	// Output: -1 1 dead
}

// The reply to SETNX is lost: the client cannot know that it holds the lock.
func ExampleServer_SetFault() {
	s := oldredis.MustNew("2.4", oldredis.Options{})
	defer s.Close()
	s.SetFault(func(conn, n int, cmd []string) oldredis.Fault {
		if conn == 0 && cmd[0] == "SETNX" {
			return oldredis.LoseReply
		}
		return oldredis.None
	})

	c := s.Dial()
	_, err := c.Do("SETNX", "lock", "A")
	holder, _ := redis.String(s.Dial().Do("GET", "lock"))
	fmt.Println(err, c.Err() != nil, holder)
	// Output: EOF true A
}

// A Transcript shows a protocol as text.
func ExampleServer_Record() {
	s := oldredis.MustNew("2.0", oldredis.Options{})
	defer s.Close()
	t := s.Record()
	c := s.Dial()
	c.Do("SETEX", "job", 30, "alice")
	c.Do("SETNX", "job", "bob")
	fmt.Print(t)
	// Output:
	// SETEX job 30 alice → OK
	// SETNX job bob → 1
}
