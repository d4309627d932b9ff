package multilock

import (
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// draw are the commands that draw a number for each of keys.
func draw(keys []string) []protocol.Cmd {
	var cmds []protocol.Cmd
	for _, k := range keys {
		cmds = append(cmds, protocol.Cmd{"INCR", protocol.Aux(k, "fence")})
	}
	return cmds
}

// fence returns the one number that is the fence of all keys: the highest of those that were
// drawn. It raises the counters that are behind, while the keys are held: the next client that
// takes one of them draws a higher number. Neither the highest alone would do (the next holder
// of a key whose counter is behind would draw a lower one, and be refused) nor each key's own
// (a lease has one).
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

// raise returns the highest of numbers, and the commands that bring the other counters up to
// it. Numbers drawn in between by attempts that were refused only carry them further.
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

// fenced is what the replies to an extension become: of the last ones, which are the numbers
// drawn for keys, if any were, the set's fence is left.
func fenced(c *protocol.Conn, keys []string, replies []any, drew bool) ([]any, error) {
	if !drew {
		return replies, nil
	}
	at := len(replies) - len(keys)
	high, err := fence(c, keys, replies[at:])
	return append(replies[:at:at], high), err
}
