// Command driver takes and gives up locks of Go's other libraries (redsync, bsm/redislock, rueidislock) for
// compat/dialect/internal/interop. Its words are those of interop's drivers/protocol.py.
//
//	driver CLIENT HOST PORT NAME TTL POLL
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type arguments struct {
	addr, name string
	ttl, poll  time.Duration
}

// A lock is a client's.
type lock struct{ acquire, release func() error }

func main() {
	a := arguments{net.JoinHostPort(os.Args[2], os.Args[3]), os.Args[4], ms(os.Args[5]), ms(os.Args[6])}
	l := map[string]func(arguments) lock{"redsync": redsyncs, "bsm-redislock": bsm, "rueidislock": rueidisLock}[os.Args[1]](a)
	conn, err := redis.Dial("tcp", a.addr)
	check(err)
	who := fmt.Sprint("theirs-", rand.IntN(1e9))
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer, err := do(strings.Fields(in.Text()), l, conn, who, a)
		if err != nil {
			answer = fmt.Sprintf("threw %T: %v", err, err)
		}
		fmt.Println(strings.ReplaceAll(answer, "\n", " "))
	}
}

func ms(text string) time.Duration {
	n, err := strconv.Atoi(text)
	check(err)
	return time.Duration(n) * time.Millisecond
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func do(words []string, l lock, conn redis.Conn, who string, a arguments) (string, error) {
	switch words[0] {
	case "acquire":
		return "held", l.acquire()
	case "release":
		return "released", l.release()
	}
	n, lost := int(ms(words[1])/time.Millisecond), 0
	for range n {
		if err := l.acquire(); err != nil {
			return "", err
		}
		if err := section(conn, who); err != nil {
			return "", err
		}
		if l.release() != nil {
			lost++
		}
		time.Sleep(rand.N(2 * a.poll))
	}
	return fmt.Sprintf("worked %d lost %d", n, lost), nil
}

func section(c redis.Conn, who string) error {
	if _, err := c.Do("RPUSH", "interop:log", "enter "+who); err != nil {
		return err
	}
	n, err := redis.Int(c.Do("GET", "interop:count"))
	if err != nil && err != redis.ErrNil {
		return err
	}
	if _, err := c.Do("SET", "interop:count", n+1); err != nil {
		return err
	}
	_, err = c.Do("RPUSH", "interop:log", "leave "+who)
	return err
}

// redsyncs makes the lock of redsync 4, with one server.
func redsyncs(a arguments) lock {
	p := &redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", a.addr) }}
	m := redsync.New(pool.NewPool(p)).NewMutex(a.name, redsync.WithExpiry(a.ttl), redsync.WithTries(1e9), redsync.WithRetryDelay(a.poll))
	return lock{m.Lock, func() error {
		if ok, err := m.Unlock(); !ok || err != nil {
			return fmt.Errorf("unlocked %v: %w", ok, err)
		}
		return nil
	}}
}

// bsm makes the lock of bsm/redislock.
func bsm(a arguments) lock {
	ctx := context.Background()
	locks := redislock.New(goredis.NewClient(&goredis.Options{Addr: a.addr}))
	var held *redislock.Lock
	return lock{func() (err error) {
		waits, done := context.WithTimeout(ctx, time.Hour) // otherwise it waits for as long as the lease
		defer done()
		held, err = locks.Obtain(waits, a.name, a.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(a.poll)})
		return err
	}, func() error { return held.Release(ctx) }}
}

// rueidisLock makes the lock of rueidislock, with one key for each lock. It does not extend its locks here. A
// waiter waits for the server to tell it that the key has changed (CLIENT TRACKING), and sometimes waits for
// ever, because rueidislock has dropped the channel over which it would hear of it (docs/interop.md). So a
// wait longer than stall is ended, counted if the key is free, and begun again.
func rueidisLock(a arguments) lock {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{a.addr}},
		KeyMajority:  1, KeyValidity: a.ttl, ExtendInterval: time.Hour,
	})
	check(err)
	var release context.CancelFunc
	return lock{func() error {
		for {
			ctx, end := context.WithCancel(context.Background()) // with a deadline its lock would end then
			watchdog := time.AfterFunc(stall, func() { countStall(a); end() })
			_, cancel, err := locks.WithContext(ctx, a.name)
			if watchdog.Stop() && err == nil {
				release = func() { cancel(); end() }
				return nil
			}
			if err == nil { // it was taken as the wait ended: its context has ended too
				cancel()
			}
		}
	}, func() error { release(); return nil }}
}

// stall is much longer than a wake-up takes, and shorter than the tests' patience.
const stall = 2 * time.Second

func countStall(a arguments) {
	c, err := redis.Dial("tcp", a.addr)
	check(err)
	defer c.Close()
	if held, err := redis.Bool(c.Do("EXISTS", "rueidislock:0:"+a.name)); !held && err == nil {
		c.Do("INCR", "interop:stalls") //nolint:errcheck // the count is told, not relied on
	}
}
