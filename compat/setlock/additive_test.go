package setlock_test

import (
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

// set/extend-adds: three renewals, each after a third of the lease, and the key
// of a dead holder stands for three leases instead of one.
func TestAdditiveExtend(t *testing.T) {
	for _, c := range []struct {
		a    compat.Algorithm
		want time.Duration
	}{{setlock.Lua{}, 9 * time.Second}, {setlock.AdditiveExtend{}, 9*time.Second + 3*6*time.Second}} {
		s := oldredis.Run(t, "7.0")
		conn := compat.NewConn(s.Dial())
		l, err := c.a.Acquire(conn, s.Now(), "k", 9*time.Second)
		for range 3 {
			if err != nil {
				t.Fatalf("%T: %v", c.a, err)
			}
			s.Advance(3 * time.Second)
			l, err = extend(c.a, conn, s.Now(), l, 9*time.Second)
		}
		if err != nil || !l.Until.Equal(compat.Until(s.Now(), 9*time.Second)) {
			t.Errorf("%T: until %v, %v", c.a, l.Until, err)
		}
		st, err := c.a.Inspect(conn, s.Now(), "k")
		if err != nil || st.TTL != c.want {
			t.Errorf("%T: a TTL of %v, %v; want %v", c.a, st.TTL, err, c.want)
		}
		if err := release(c.a, conn, l); err != nil {
			t.Errorf("%T: %v", c.a, err)
		}
		if _, err := extend(c.a, conn, s.Now(), l, 9*time.Second); err != compat.ErrLost {
			t.Errorf("%T: extended after its release: %v", c.a, err)
		}
	}
}
