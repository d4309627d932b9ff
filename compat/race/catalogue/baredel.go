package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// bareDel releases whatever lock there is (Laravel up to 5.7, jedis-lock, most
// timestamp clients).
type bareDel struct{ tokened }

func (bareDel) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	_, err := c.Do("DEL", l.Key)
	return err
}
