//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// slotMoves moves the slot of one of the keys to another master, as redis-cli does. For d/4 in between, the old master
// redirects commands for keys that it does not have to the new one (ASK).
func (g *group) slotMoves(random *rand.Rand, d time.Duration) error {
	masters := g.masters()
	if len(masters) < 2 {
		return nil
	}
	slot, err := redis.Int(masters[0].do("CLUSTER", "KEYSLOT", g.keys[random.IntN(len(g.keys))]))
	if err != nil {
		return nil // a failover is under way
	}
	owner, _ := realredis.Owner(masters[0].addr, slot)
	i := slices.IndexFunc(masters, func(s *server) bool { return s.addr == owner })
	if i < 0 {
		return nil // the owner is unknown, or no longer a master
	}
	from := masters[i]
	others := slices.Delete(slices.Clone(masters), i, i+1)
	to := others[random.IntN(len(others))]
	ids := map[*server]string{}
	for _, s := range []*server{from, to} {
		if ids[s], err = redis.String(s.do("CLUSTER", "MYID")); err != nil {
			return nil
		}
	}
	if _, err := to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from]); err != nil {
		return nil
	}
	if _, err := from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to]); err != nil {
		to.do("CLUSTER", "SETSLOT", slot, "STABLE") //nolint:errcheck // no key has moved
		return nil
	}
	g.seen.add("slot moved")
	time.Sleep(d / 4)
	// A cluster that fails over is down for a while.
	return realredis.Within(time.Minute, fmt.Sprintf("slot %d moves from %s to %s", slot, from.addr, to.addr), func() error {
		if err := realredis.MoveKeys(slot, from.addr, to.addr); err != nil {
			return err
		}
		for _, s := range append([]*server{to, from}, others...) {
			if _, err := s.do("CLUSTER", "SETSLOT", slot, "NODE", ids[to]); err != nil {
				return err
			}
		}
		return nil
	})
}
