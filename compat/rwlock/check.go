package rwlock

import (
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// check returns ErrUnsafeServer if a sorted set with a TTL does not stand up to ZADD here, if EXEC runs although a
// watched key was touched, or if a command for the options is missing. It runs them on a scratch key, and the
// releases' commands with them: a lock that nobody may release is held to its end.
func (o Options) check(c *protocol.Conn, key string) error {
	const use = "getsetlock.Classic, which lets one reader in at a time"
	scratch := protocol.Aux(key, "check:"+protocol.NewToken())
	replies, err := c.Exec(protocol.Cmd{"ZADD", scratch, 1, "a"}, protocol.Cmd{"EXPIRE", scratch, 10}, protocol.Cmd{"ZADD", scratch, 2, "b"},
		protocol.Cmd{"ZCARD", scratch}, protocol.Cmd{"TTL", scratch}, protocol.Cmd{"ZREMRANGEBYSCORE", scratch, "-inf", 0},
		protocol.Cmd{"ZUNIONSTORE", scratch, 1, scratch}, protocol.Cmd{"ZSCORE", scratch, "a"}, protocol.Cmd{"ZREM", scratch, "a"}, protocol.Cmd{"DEL", scratch})
	switch {
	case err != nil:
		return c.Lacks(err, "it does not let us use MULTI and sorted sets", use)
	case replies == nil || replies[3] != int64(2):
		return c.Unsafe("ZADD deletes a sorted set that has a TTL, and the readers in it (mended in 2.2)", use)
	case replies[4] == int64(-1):
		return c.Unsafe("ZADD takes a sorted set's TTL away, so dead readers would stay for ever", use)
	}

	if _, _, err := c.Watch(scratch); err != nil {
		return c.Lacks(err, "it has no WATCH (it came with 2.2), so nobody can be let in safely", use)
	}
	if _, err := c.Do("SETEX", scratch, 10, "touched"); err != nil {
		c.Unwatch()
		return err
	}
	replies, err = c.Exec(protocol.Cmd{"DEL", scratch})
	switch {
	case err != nil:
		return err
	case replies != nil:
		return c.Unsafe("EXEC runs although a watched key was touched", use)
	}
	defer c.Do("DEL", scratch) //nolint:errcheck // if the connection is broken it ends by itself
	return o.checkOptions(c, key, scratch)
}

func (o Options) checkOptions(c *protocol.Conn, key, scratch string) error {
	if o.Millis {
		if _, err := c.Do("PEXPIRE", scratch, 10000); err != nil {
			return c.Lacks(err, "it counts in whole seconds (milliseconds came with 2.6)", "whole seconds: Options.Millis false")
		}
	}
	if o.ServerClock {
		need := ability.Need{Ability: ability.Time, Use: "the clients' clocks: Options.ServerClock false"}
		if err := ability.Check(c, key, false, need); err != nil {
			return err
		}
	}
	if o.Inner != nil {
		if check := o.Inner.Traits().Check; check != nil {
			return check(c, mutexOf(key))
		}
	}
	return nil
}
