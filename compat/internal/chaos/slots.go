//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// slotMoves moves the slot of one of the keys to another master. For d/4 in between, the old master redirects commands
// for keys that it does not have to the new one (ASK).
func (g *group) slotMoves(random *rand.Rand, d time.Duration) error {
	var masters []string
	for _, s := range g.masters() {
		masters = append(masters, s.addr)
	}
	if len(masters) < 2 {
		return nil
	}
	slot := cluster.Slot(g.keys[random.IntN(len(g.keys))])
	from, _ := realredis.Owner(masters[0], slot)
	i := slices.Index(masters, from)
	if i < 0 {
		return nil // the owner is unknown, or no longer a master
	}
	others := slices.Delete(masters, i, i+1)
	begun, err := realredis.Move(slot, from, others[random.IntN(len(others))], others, func() {
		g.seen.add("slot moved")
		time.Sleep(d / 4)
	})
	if !begun {
		return nil // a failover is under way
	}
	return err
}
