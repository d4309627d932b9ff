package multilock

import (
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// draw returns the commands for a new number of each of keys.
func draw(keys []string) []protocol.Cmd {
	var cmds []protocol.Cmd
	for _, k := range keys {
		cmds = append(cmds, protocol.Cmd{"INCR", protocol.Aux(k, "fence")})
	}
	return cmds
}

// fence returns the highest number drawn: the one fence of all keys. It raises the counters that are behind, while the
// keys are held: the next client that takes one of them draws a higher number. Neither the highest alone would do (the
// next holder of a key whose counter is behind would draw a lower one, and be refused) nor each key's own (a lease has
// one).
func fence(c *protocol.Conn, keys []string, drawn []any) (int64, error) {
	numbers := make([]int64, len(drawn))
	for i, n := range drawn {
		var err error
		if numbers[i], err = c.Fence(keys[i], n); err != nil {
			return 0, err
		}
	}
	high, behind := raise(keys, numbers)
	if len(behind) == 0 {
		return high, nil
	}
	if _, err := c.Exec(behind...); err != nil {
		return 0, err // not drawn: an extension draws again
	}
	return high, nil
}

// raise returns the highest of numbers, and the commands to bring the other counters up to it. Numbers drawn in between
// by refused attempts only carry them further.
func raise(keys []string, numbers []int64) (int64, []protocol.Cmd) {
	var high int64
	for _, n := range numbers {
		high = max(high, n)
	}
	var cmds []protocol.Cmd
	for i, n := range numbers {
		if n < high {
			cmds = append(cmds, protocol.Cmd{"INCRBY", protocol.Aux(keys[i], "fence"), high - n})
		}
	}
	return high, cmds
}

// fenced puts the set's fence in the place of the numbers drawn for its keys: the last replies to an extension, if drew
// is set.
func fenced(c *protocol.Conn, keys []string, replies []any, drew bool) ([]any, error) {
	if !drew {
		return replies, nil
	}
	at := len(replies) - len(keys)
	high, err := fence(c, keys, replies[at:])
	return append(replies[:at:at], high), err
}
