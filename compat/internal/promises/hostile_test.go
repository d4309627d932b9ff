package promises_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A liar is a server that does what it is told, and now and then answers anything: replies of wrong
// types, shapes and lengths, errors, nothing, its client's own words.
type liar struct {
	data    []byte // what decides
	replies int
	last    string // the last text that it was told
}

// next is the next byte of what decides; then it begins anew, shifted, so that it never ends in
// the same answer for ever.
func (l *liar) next() byte {
	l.replies++
	if len(l.data) == 0 {
		return byte(l.replies * 37)
	}
	return l.data[l.replies%len(l.data)] + byte(l.replies/len(l.data))
}

var lies = []string{"OK", "QUEUED", "PONG", "", "0", "-1", "1", "99999999999999999999", "-9223372036854775808", "\x00\xff", "NaN", "1e309",
	strings.Repeat("9", 400), "redis_version:banana\r\n", "redis_version:2.4.18\r\nrun_id:x\r\n", "1700000000.123456789012345", "r:x", "w:x"}

var refusals = []string{"ERR unknown command 'X'", "ERR wrong number of arguments for 'x' command", "NOPERM this user has no permissions to run the 'x' command",
	"OOM command not allowed when used memory > 'maxmemory'.", "LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only slave.",
	"WRONGTYPE Operation against a key holding the wrong kind of value", "EXECABORT Transaction discarded", "NOSCRIPT No matching script.", "MOVED 1 127.0.0.1:1",
	"ASK 1 x", "CLUSTERDOWN", "BUSY", "NOAUTH", "ERR ACL failure in script: No permissions to access a key script: 1, on @user_script:8.", "MASTERDOWN", "TRYAGAIN", "", "MOVED", "-"}

func (l *liar) reply(depth int) any {
	b := l.next()
	switch b % 11 {
	case 0:
		return nil
	case 1, 2:
		return []byte("OK")
	case 3:
		return []int64{0, 1, -1, -2, 2, math.MaxInt64, math.MinInt64, 1 << 40, 1700000000}[int(l.next())%9]
	case 4:
		return "OK"
	case 5:
		return "QUEUED"
	case 6:
		return []byte(l.last)
	case 7:
		return []byte(lies[int(l.next())%len(lies)])
	case 8:
		return redis.Error(refusals[int(l.next())%len(refusals)])
	case 9:
		return int64(1)
	}
	n := int(l.next() % 6)
	if depth > 3 {
		n = 0
	}
	list := make([]any, n)
	for i := range list {
		list[i] = l.reply(depth + 1)
	}
	return list
}

// fate is what becomes of a message to it.
func (l *liar) fate(m faulty.Message) faulty.Fate {
	for _, a := range m.Args {
		if s, ok := a.(string); ok && len(s) > 8 {
			l.last = s
		}
	}
	if m.Name == "BLPOP" {
		f := faulty.Answer(nil)
		f.Before = time.Second
		return f
	}
	f := faulty.Fate{Before: time.Millisecond}
	switch b := l.next(); {
	case b == 7:
		f.Loss = faulty.LostReply
	case b < 30:
		f.Serve = func(run func(...any) any) any { run(); return l.reply(0) }
	}
	return f
}

// hostile has every call of the API made to servers that lie, and wants every one to return.
func hostile(t *testing.T, k kind, data []byte) (got bool) {
	synctest.Test(t, func(t *testing.T) {
		sources := make([]compat.Source, len(k.versions))
		for i := range sources {
			s := must.Get(oldredis.New(k.versions[i], oldredis.Options{Clock: clock.New()}))(t)
			t.Cleanup(func() { s.Close() })
			sources[i] = compat.Source{Get: func(ctx context.Context, key string) (redis.Conn, error) {
				return faulty.Over(s.Dial(), (&liar{data: data}).fate), nil
			}}
		}
		o := compat.Options{Rand: func() float64 { return 0 }, NoRenew: len(data)%2 != 0}
		locker := k.make(sources, o)
		limit := func() context.Context {
			ctx, cancel := context.WithTimeout(background, 20*time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		began := time.Now()
		l, err := locker.TryLock(limit(), k.key, 5*time.Second)
		if err != nil {
			l, err = locker.Lock(limit(), k.key, 5*time.Second)
		}
		if got = err == nil; got {
			l.Extend(limit(), 2*time.Second) //nolint:errcheck // that it returns is what is asked
			if next, err := l.Handoff(limit(), 3*time.Second); err == nil {
				l = next
			}
			time.Sleep(4 * time.Second)
			l.Release(limit()) //nolint:errcheck // likewise
			l.Release(limit()) //nolint:errcheck // likewise
		}
		if l, err := locker.TryLock(limit(), k.key, 5*time.Second); err == nil {
			if h, err := l.Detach(limit()); err == nil {
				locker.AdoptHandle(limit(), h, time.Second) //nolint:errcheck // likewise
			}
		}
		locker.Inspect(limit(), k.key)                                                     //nolint:errcheck // likewise
		locker.ReleaseToken(limit(), k.key, protocol.NewToken())                           //nolint:errcheck // likewise
		locker.Do(limit(), k.key, time.Second, func(context.Context) error { return nil }) //nolint:errcheck // likewise
		locker.Close(limit())                                                              //nolint:errcheck // likewise
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("%s: it took %v", k.name, took)
		}
	})
	return got
}

// TestHostileServer runs every kind of lock against servers that answer anything: a call may fail,
// and does not panic, hang or spin.
func TestHostileServer(t *testing.T) {
	runs := uint64(40)
	switch {
	case whole:
		runs = 150
	case realredis.UnderRace():
		runs = 15
	}
	eachKind(t, all(true), func(t *testing.T, k kind) {
		got := 0
		for seed := range runs {
			r := rand.New(rand.NewPCG(seed, 5))
			data := make([]byte, 1+r.IntN(60))
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			if hostile(t, k, data) {
				got++
			}
		}
		t.Logf("obtained in %d of %d runs", got, runs)
	})
}

// FuzzHostileServer lets the fuzzer choose the answers.
func FuzzHostileServer(f *testing.F) {
	kinds := all(true)
	for i := range kinds {
		f.Add(append(binary.BigEndian.AppendUint16(nil, uint16(i)), 4, 9, 6, 1, 3, 0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 3 || len(data) > 200 {
			return
		}
		hostile(t, kinds[int(binary.BigEndian.Uint16(data))%len(kinds)], data[2:])
	})
}
