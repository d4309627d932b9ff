package rwlock

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Entries from a wrong clock: an end that no lease or ticket can have. Such an entry would stand first in its set, and
// hide the others, for as long as the clock was ahead.

// latest returns the latest end for a reader's lease, by clocks that agree to within a minute and the margin.
func (v view) latest() time.Time { return v.now.Add(setTTL + v.margin + time.Minute) }

// wrong returns the commands to remove entries from a clock too far ahead: they count for nobody.
func (v view) wrong(key string) (cmds []protocol.Cmd) {
	for _, set := range []struct {
		key    string
		all    []entry
		latest time.Time
	}{{readersOf(key), v.readers, v.latest()}, {waitingOf(key), v.waiting, v.now.Add(2 * life)}, {nextOf(key), v.next, v.now.Add(2 * life)}} {
		if len(set.all) > 0 && set.all[0].until.After(set.latest) {
			cmds = append(cmds, protocol.Cmd{"ZREMRANGEBYSCORE", set.key, fmt.Sprint("(", at(set.latest)), "+inf"})
		}
	}
	return cmds
}

// slow reports whether our clock is two seconds or more behind the server's, by the expiry of a key there. What is far
// ahead of such a clock is right, and stays: a writer that took live readers out would be in beside them.
func (o Options) slow(c *protocol.Conn, v view, key string) (bool, error) {
	if o.ServerClock {
		return false, nil
	}
	scratch := protocol.Aux(key, "clock:"+protocol.NewToken())
	replies, err := o.ask(c, &v, key, nil, protocol.Cmd{"SETEX", scratch, ticketsTTL, "x"},
		protocol.Cmd{"EXPIREAT", scratch, v.now.Add(2 * life).Unix()}, protocol.Cmd{"TTL", scratch}, protocol.Cmd{"DEL", scratch})
	if err != nil {
		return false, err
	}
	left, err := redis.Int64(replies[2], nil)
	return left <= 0, err
}

// clock goes over to the server's clock.
func (v *view) clock(reply any) error {
	server, told := answer.Time(reply)
	if refused, ok := reply.(redis.Error); ok {
		return refused
	}
	if !told {
		return fmt.Errorf("setnxlock: TIME answers %.80q, which is no time", fmt.Sprintf("%s", reply))
	}
	v.now, v.ahead = server, server.Sub(v.now)
	return nil
}

// asks returns cmds, and TIME if the server's clock counts.
func (o Options) asks(cmds []protocol.Cmd) []protocol.Cmd {
	if o.ServerClock {
		return append(cmds, protocol.Cmd{"TIME"})
	}
	return cmds
}

// answers returns the replies to asks, and gives v the time among them. An error of the server's for any of them is the
// error.
func (o Options) answers(v *view, key string, replies []any) ([]any, error) {
	var err error
	if o.ServerClock {
		err = v.clock(replies[len(replies)-1])
		replies = replies[:len(replies)-1]
	}
	for _, r := range replies {
		if e, refused := r.(redis.Error); refused {
			err = protocol.Foreign(key, e)
		}
	}
	return replies, err
}
