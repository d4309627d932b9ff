package interop

import (
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// nodeSemaphore is no client of ours: it locks sorted sets.
var nodeSemaphore = client{
	name: "npm-redis-semaphore", what: "redis-semaphore 5.6.2, Semaphore", registry: "npm", driver: "npm_redis_semaphore_set.js", lease: long, poll: time.Millisecond,
}

// A semaphore of redis-semaphore's is a sorted set, which is recognised: each holder, and the end.
func TestInteropSemaphore(t *testing.T) {
	t.Parallel()
	nodeSemaphore.needs(t)
	s := realredis.Run(t)
	nodeSemaphore.start(t, s.Addr, long).acquire()
	nodeSemaphore.start(t, s.Addr, long).acquire()
	conn := must.Get(redis.Dial("tcp", s.Addr))(t)
	defer conn.Close()

	const key = "semaphore:report"
	members := map[string]float64{}
	for member, score := range must.Get(redis.StringMap(conn.Do("ZRANGE", key, 0, -1, "WITHSCORES")))(t) {
		members[member] = must.Get(strconv.ParseFloat(score, 64))(t)
	}
	left := must.Get(redis.Int64(conn.Do("PTTL", key)))(t)
	found := dialect.RecogniseSet(key, members, time.Duration(left)*time.Millisecond, time.Now())
	if len(members) != 2 || len(found) != 1 || found[0].Formats()[0] != dialect.NodeSemaphore || found[0].Status != dialect.Alive || found[0].Wrong != nil {
		t.Errorf("%v with a TTL of %d ms is recognised as %+v, want a semaphore, alive", members, left, found)
	}
}
