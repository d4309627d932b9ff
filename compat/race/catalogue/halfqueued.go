package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// halfQueued takes the key and draws its fence in one MULTI, and looks at EXEC's
// first reply only. A server that could not queue the SET answers with the fence.
type halfQueued struct{ tokened }

func (h halfQueued) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := h.lease(key, now, ttl)
	replies, err := c.Pipe(compat.Cmd{"MULTI"}, compat.Cmd{"SET", key, l.Value, "NX", "PX", ttl.Milliseconds()},
		compat.Cmd{"INCR", compat.Aux(key, "fence")}, compat.Cmd{"EXEC"})
	if err != nil {
		return l, err
	}
	done, err := redis.Values(replies[3], nil)
	if err == nil && done[0] == nil {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}
