package semaphore

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Traits make the Locker check the server. Clients hold a key together, if N is more than one.
func (k Lock) Traits() protocol.Traits {
	return protocol.Traits{Shared: k.N > 1, Most: k.N, Rotates: true, Check: k.check}
}

// check returns ErrUnsafeServer if the slots' lock is not safe on the server, or limit could not be kept there.
func (k Lock) check(c *protocol.Conn, key string) error {
	const use = "getsetlock.Classic, which lets one client in"
	lock := k.of(1, func() string { return "t" })
	l := protocol.Lease{Key: key, Value: "1:s"}
	next, _, err := lock.Extend(time.Time{}, l, time.Minute, true)
	if err != nil || next.Value != "1:t" {
		return fmt.Errorf("%w: %T can't be the lock of a slot: it does not write the token that it is given (%v)", protocol.ErrInvalid, lock, err)
	}
	if check := lock.Traits().Check; check != nil {
		if err := check(c, key); err != nil {
			return err
		}
	}
	needs := []ability.Need{{Ability: ability.Multi, Use: use}, {Ability: ability.Watch, Use: use}, {Ability: ability.Setex, Use: use},
		{Ability: ability.SetnxOnTTL, Use: use}, {Ability: ability.ExpireAgain, Use: use}}
	return ability.Check(c, key, k.Millis, needs...)
}
