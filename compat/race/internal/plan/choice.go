package plan

import (
	"fmt"
	"strconv"
	"time"
)

// A Choice is one step of a schedule: who goes on, and what goes wrong.
type Choice struct {
	Verb   Verb
	Client int           // from 0, where the verb is a client's
	Server int           // from 1, of several, where the verb is a server's; 0: there is only one
	By     time.Duration // of Clock, Jump, Pass and PassUnreaped
	Nth    int           // of Refuse: which of the commands that run as one, from 0; MULTI counts
}

// A Verb says what a Choice does.
type Verb uint8

const (
	// Step: the client's next command runs, after it has read its clock if it
	// is about to; then it goes on to the next place where it can be stopped.
	Step Verb = iota
	// Run is Step to the end of the attempt.
	Run
	// Drop: the command runs and its reply is lost. All commands of a write
	// have run; to lose it in between is Cut.
	Drop
	// Sever: the write never arrives.
	Sever
	// Cut: the connection breaks before the command, and the earlier ones of
	// the same write have run.
	Cut
	// Refuse is Step with one command that the server answers with an error, as over
	// maxmemory, instead of running it. The other commands of its transaction run,
	// before 2.6.5; later none does.
	Refuse
	// Stall is Step up to where the client would read its clock to learn
	// whether what it was given still lasts. It goes on once time has passed.
	Stall
	// Look: the client reads its clock and does not send yet.
	Look
	// Crash: it does nothing ever more.
	Crash
	// Pause: it does nothing until Resume.
	Pause
	Resume
	// Clock sets the client's clock forward.
	Clock
	// Stale is Step of a read that a replica answers, which has not seen the last
	// write. It is replayed, not explored.
	Stale
	// Delay: the client gives its connection up, as for Sever, and its write is still on its way.
	Delay
	// Arrive: that write reaches the server now.
	Arrive

	// Pass: time passes; what has expired is reaped, as a server does within
	// 100 ms.
	Pass
	// PassUnreaped: time passes and what has expired is still in memory.
	PassUnreaped
	// Reap: the server removes what has expired.
	Reap
	// Restart: the server restarts empty, all connections are cut, and the
	// scripts that it knew are gone.
	Restart
	// Failover: as Restart, with what there was before the last write.
	Failover
	// Evict: the server drops the key.
	Evict
	// Down: one server of several answers no more.
	Down
	// Jump sets the server's clock, and no client's. It is replayed, not explored. On one server of several it
	// ends that server's keys earlier: what is explored in its place is Evict.
	Jump
)

var clientVerbs = map[string]Verb{
	"step": Step, "run": Run, "drop": Drop, "sever": Sever, "cut": Cut, "refuse": Refuse, "stall": Stall, "look": Look,
	"crash": Crash, "pause": Pause, "resume": Resume, "clock": Clock, "stale": Stale, "delay": Delay, "arrive": Arrive,
}

var serverVerbs = map[string]Verb{"reap": Reap, "restart": Restart, "failover": Failover, "evict": Evict, "down": Down}

// String returns the word of a schedule, in its one canonical form: "C1", "C1-" for a lost reply,
// "C1.cut", "C1.refuse3" for the third command of its transaction, "+9s", "+9s~" with nothing reaped,
// "redis.restart", and "S2.restart" of one server of several.
func (c Choice) String() string {
	who := fmt.Sprintf("C%d", c.Client+1)
	switch c.Verb {
	case Step:
		return who
	case Run:
		return who + "*"
	case Drop:
		return who + "-"
	case Clock:
		return who + ".clock" + signed(c.By)
	case Jump:
		if c.Server > 0 {
			return Nth(c.Server) + ".clock" + signed(c.By)
		}
		return "redis.clock" + signed(c.By)
	case Pass:
		return "+" + c.By.String()
	case PassUnreaped:
		return "+" + c.By.String() + "~"
	case Refuse:
		if c.Nth > 0 {
			return who + ".refuse" + strconv.Itoa(c.Nth+1)
		}
	}
	for name, v := range serverVerbs {
		if v == c.Verb && c.Server > 0 {
			return Nth(c.Server) + "." + name
		}
		if v == c.Verb {
			return "redis." + name
		}
	}
	for name, v := range clientVerbs {
		if v == c.Verb {
			return who + "." + name
		}
	}
	return "?"
}

func signed(d time.Duration) string {
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}
