package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A replica has the keys of its server after one of the server's commands. That command is not older than the last one
// that a WAIT has acknowledged. While the replica is cut off, no command reaches it.
type replica struct {
	follows bool
	cutOff  bool
	may     []past // the states that the replica may have, the oldest first
}

// A past has the keys of a server after a command.
type past struct {
	keys oldredis.Snapshot
	at   time.Time
}

// remembered is the most commands by which a replica may lag: older commands have reached it.
const remembered = 60

// ran records the state of the server after a command. The judge's mutex, under which each command runs, guards r.
func (r *replica) ran(s *oldredis.Server) {
	switch {
	case !r.follows || r.cutOff:
		return
	case len(r.may) == remembered:
		r.may = append(r.may[:0], r.may[1:]...)
	}
	r.may = append(r.may, past{s.Snapshot(), s.Now()})
}

// has returns the reply to a WAIT, and acknowledges all commands before it unless the replica is cut off.
func (r *replica) has(s *oldredis.Server) int64 {
	if r.cutOff {
		return 0
	}
	r.may = r.may[:0]
	r.ran(s)
	return 1
}

// promoted puts the replica in the place of its server: the server gets one of the states in r.may, aged to the present.
func (r *replica) promoted(s *oldredis.Server, random *rand.Rand) {
	if n := len(r.may); n > 0 {
		now, had := s.Now(), r.may[random.IntN(n)]
		s.Restore(had.keys)
		s.SetMaxMemoryReached(false)
		s.Advance(now.Sub(had.at))
	}
	r.may, r.cutOff = nil, false
	r.ran(s)
}
