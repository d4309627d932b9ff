package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/semaphore"
)

// limited builds the semaphore with slots of the picked lock.
func (a *app) limited(ctx context.Context, n node, key string, c candidate) (protocol.Algorithm, error) {
	l, ok := locks.Get(c.name)
	if l.Name == "semaphore" {
		l, ok = locks.Get("tx:guarded")
	}
	if !ok || l.Slots == nil {
		return nil, exit.Because(statusUnavailable, fmt.Errorf("--limit needs a lock of tokens with a TTL, and %s is none", c.name), "Redis 2.2 and later have tx:guarded")
	}
	var list []candidate
	for _, o := range l.Fallbacks(locks.Options{Fence: a.fence, Millis: true, Owner: a.owner.text(), Once: true, Limit: a.holders}) {
		list = append(list, candidate{name: l.Name, Algorithm: l.Slots(o)})
	}
	c, err := a.firstFit(ctx, n, key, list)
	return c.Algorithm, err
}

// limitBeside reads the limit beside key; 0: there is none, or it can't be read.
func limitBeside(ctx context.Context, n node, key string) int {
	c, err := n.source.Get(ctx, key)
	if err != nil {
		return 0
	}
	defer c.Close()
	limit, _ := redis.Int(c.Do("GET", protocol.Aux(key, "limit")))
	return limit
}

// otherLimit explains the wait of a client with another --limit than the holders'.
func (a *app) otherLimit(ctx context.Context, n node, key string) string {
	if theirs := limitBeside(ctx, n, key); a.holders != 0 && theirs != 0 && theirs != a.holders {
		return fmt.Sprintf("; it is held with --limit %d, and not %d, as long as anybody holds it", theirs, a.holders)
	}
	return ""
}

// ofSlot reports a semaphore's token: the slot, then our own token or a random one.
func ofSlot(token string) bool {
	_, rest, _ := strings.Cut(token, ":")
	_, owned := dialect.OwnerOf(token)
	return semaphore.Slot(token) > 0 && (owned || len(rest) == 32 && strings.Trim(rest, "0123456789abcdef") == "")
}

// limitWanted refuses --limit with locks that have none, and a semaphore without it.
func (a *app) limitWanted(keys []string) error {
	switch {
	case a.holders == 0 && a.algorithm == "semaphore":
		return exit.Misuse("a semaphore needs --limit N", "")
	case a.holders == 0:
		return nil
	case len(keys) > 1, a.algorithm == "redlock", a.algorithm == "bridge", strings.HasPrefix(a.algorithm, "rw:"), a.dialect != "":
		return exit.Misuse("--limit is for one KEY, and a lock of tokens on one server", "")
	}
	return nil
}
