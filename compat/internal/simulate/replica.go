package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A replica has what its server had at some moment: after one of its commands, no earlier than the last of which it
// has said to a WAIT that it has it. While it is cut off nothing reaches it.
type replica struct {
	follows bool
	cutOff  bool
	may     []past // what it may have, the oldest first; none: nothing was said yet
}

// A past is what a server had after a command.
type past struct {
	keys oldredis.Snapshot
	at   time.Time
}

// remembered is how many commands a replica may be late by: what is older has reached it.
const remembered = 60

// ran is told that its server has run a command. The judge's mutex, which each command is run under, guards it.
func (r *replica) ran(s *oldredis.Server) {
	switch {
	case !r.follows || r.cutOff:
		return
	case len(r.may) == remembered:
		r.may = append(r.may[:0], r.may[1:]...)
	}
	r.may = append(r.may, past{s.Snapshot(), s.Now()})
}

// has is the answer to a WAIT: how many replicas have all that was sent before.
func (r *replica) has(s *oldredis.Server) int64 {
	if r.cutOff {
		return 0
	}
	r.may = r.may[:0]
	r.ran(s)
	return 1
}

// promoted puts it in its server's place: there is what had reached it, at the time that it is now.
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
