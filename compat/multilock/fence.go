package multilock

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// draw are the commands that draw a number for each of keys.
func draw(keys []string) []compat.Cmd {
	var cmds []compat.Cmd
	for _, k := range keys {
		cmds = append(cmds, compat.Cmd{"INCR", compat.FenceKey(k)})
	}
	return cmds
}

// fence returns the one number that is the fence of all keys: the highest of
// those that were drawn. It raises the counters that are behind, while the
// keys are held: whoever takes one of them next draws a higher number. Neither the
// highest alone would do (the next holder of a key whose counter is behind would
// draw a lower one, and be refused) nor each key's own (a lease has one).
func fence(c redis.Conn, keys []string, drawn []any) (int64, error) {
	numbers := make([]int64, len(drawn))
	for i, n := range drawn {
		numbers[i] = n.(int64)
	}
	high, behind := raise(keys, numbers)
	if len(behind) == 0 {
		return high, nil
	}
	_, err := compat.Exec(c, behind...)
	if err != nil {
		return 0, err // not drawn: an extension draws again
	}
	return high, nil
}

// raise returns the highest of numbers, and the commands that bring the other
// counters up to it. Numbers drawn in between by attempts that were refused only
// carry them further.
func raise(keys []string, numbers []int64) (int64, []compat.Cmd) {
	var high int64
	for _, n := range numbers {
		high = max(high, n)
	}
	var cmds []compat.Cmd
	for i, n := range numbers {
		if n < high {
			cmds = append(cmds, compat.Cmd{"INCRBY", compat.FenceKey(keys[i]), high - n})
		}
	}
	return high, cmds
}
