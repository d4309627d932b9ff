package live

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// told are the choices that are no command: what is noted of them, and why it is so.
var told = map[plan.Verb]struct{ note, why string }{
	plan.Pass:         {"time +", "No client acts"},
	plan.PassUnreaped: {"time +", "No client acts"},
	plan.Reap:         {"reaps what has expired", "The server removes what has expired."},
	plan.Restart:      {"restarts empty", "The server had saved nothing: every key is gone, and every connection is cut."},
	plan.Failover: {"a replica takes over", "The master is gone before its last write has reached the replica: " +
		"that write is lost, and every connection is cut."},
	plan.Evict:  {"evicts the key", "Memory is full, and the server drops the key like any other."},
	plan.Down:   {"is gone", "It answers no more."},
	plan.Jump:   {"its clock is set ", "Its clock is set, and no client's"},
	plan.Stale:  {note: "a replica answers"},
	plan.Arrive: {"arrives late", "The write that it had given up reaches the server only now, and nobody hears of the answer."},
	plan.Crash:  {"crashes", "It does nothing any more, and what it holds stays behind."},
	plan.Pause:  {"stops (garbage collection)", "It is stopped, and does not know it."},
	plan.Resume: {"resumes", "It goes on where it was stopped, as if no time had passed."},
	plan.Clock:  {"its clock is set ", "Its clock now differs from the server's."},
	plan.Look:   {"reads its clock: ", "It takes the time now and will send only later."},
}

// note describes an event without a command, in few words.
func (s *narrator) note(d *Outcome) string {
	note := told[d.choice.Verb].note
	switch d.choice.Verb {
	case plan.Pass, plan.PassUnreaped:
		return note + secondsOf(d.choice.By)
	case plan.Jump, plan.Clock:
		if d.choice.Server > 0 {
			return plan.Nth(d.choice.Server) + "'s clock is set " + set(d.choice.By)
		}
		return note + set(d.choice.By)
	case plan.Look:
		return note + s.clock(d)
	case plan.Restart, plan.Evict, plan.Down:
		if d.choice.Server > 0 {
			note = plan.Nth(d.choice.Server) + " " + note
		}
	}
	if note != "" {
		return note
	}
	switch {
	case d.write && d.taken:
		return "writes to the storage" + s.fenceText(d)
	case d.write:
		return "writes to the storage" + s.fenceText(d) + ": refused"
	case len(d.Cmds) == 0:
		return told[plan.Look].note + s.clock(d)
	}
	return ""
}

// clock reads the client's clock.
func (s *narrator) clock(d *Outcome) string {
	return trace.Seconds(s.w.Now + s.w.Judge.Skew[d.choice.Client])
}

func (s *narrator) fenceText(d *Outcome) string {
	if !s.w.c.Fence {
		return ""
	}
	return fmt.Sprintf(", fence %d", s.w.Players[d.choice.Client].Fence)
}

// why writes one sentence: the client's reason, or the event's meaning.
func (s *narrator) why(d *Outcome) string {
	why := told[d.choice.Verb].why
	switch c := d.choice; {
	case c.Verb == plan.Pass || c.Verb == plan.Jump && c.Server == 0:
		return why + s.expired() + "."
	case c.Verb == plan.PassUnreaped:
		return why + s.expired() + ", and nothing that has expired is removed yet."
	case c.Verb == plan.Jump && c.Server > 0:
		return "Its clock is set, and nobody else's: its keys end that much earlier."
	case c.Verb == plan.Restart && c.Server > 0:
		return "It had saved nothing: all its keys are gone."
	case why != "":
		return why
	}
	list := []string{s.reason(d)}
	if l := losses[d.lost]; l != "" {
		list = append(list, l)
	}
	if d.choice.Verb == plan.Refuse {
		list = append(list, "the server refuses "+strings.ToUpper(d.Cmds[d.choice.Nth][0]))
	}
	for _, r := range d.results {
		if said := outcomeText(r); !slices.Contains(list, said) { // an extension and the release may both learn of one loss
			list = append(list, said)
		}
	}
	if d.choice.Verb == plan.Stall {
		list = append(list, "the answer is slow to reach it")
	}
	return sentence(list)
}

func sentence(list []string) string {
	text := strings.Join(list, "; ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

func (s *narrator) expired() string {
	b := s.server()
	switch {
	case s.prev.Value != "" && b.Value == "", b.Dead && !s.prev.Dead:
		return ", and the key expires"
	}
	for i, p := range s.w.Players {
		if p.Holds && s.w.Now+s.w.Judge.Skew[i] >= p.Until && s.lastBelief(name(i)) == trace.Holds {
			return fmt.Sprintf(", and %s's lease runs out", name(i))
		}
	}
	return ""
}

func (s *narrator) lastBelief(client string) string {
	if n := len(s.trace.Events); n > 0 {
		return s.trace.Events[n-1].Belief[client].State
	}
	return trace.Idle
}

// losses are what the network did.
var losses = map[string]string{
	"reply":   "the server has run it, but the reply never arrives",
	"request": "the connection breaks, and the server never sees it",
	"late":    "it gives the connection up, and what it has sent is still on its way",
	"cut":     "the connection breaks before this command, after the earlier ones of the same write",
}

func outcomeText(r client.Result) string {
	switch {
	case r.Op == client.OpAcquire && r.How == client.Done:
		return "the lock is its own"
	case r.Op == client.OpAcquire && r.How == client.Held:
		return "it gives up this attempt: another holds it"
	case r.Op == client.OpAcquire && r.How == client.Lost:
		return "it was taken, and is lost already"
	case r.Op == client.OpAcquire && r.How == client.Unknown:
		return "it can't know whether it has the lock"
	case r.Op == client.OpAcquire:
		return "this attempt has failed"
	case r.Op == client.OpExtend && r.How == client.Done:
		return "the lease goes on"
	case r.Op == client.OpStale && r.How == client.Lost:
		return "the handle from before the hand-off releases nothing"
	case r.Op == client.OpRelease && r.How == client.Done:
		return "the lock is released"
	case r.How == client.Lost:
		return "it learns that the lock was lost"
	case r.How == client.Unknown:
		return "it can't know whether the server has done it"
	}
	return "it fails"
}

// reason explains a client's command by its phase.
func (s *narrator) reason(d *Outcome) string {
	switch {
	case d.write && !d.taken:
		return "the storage has seen a newer fence, and refuses"
	case d.write:
		return "it does what it took the lock for"
	case len(d.Cmds) == 0:
		return "it reads its clock"
	}
	name := func(i int) string { return strings.ToUpper(d.Cmds[i][0]) }
	first := name(0)
	inExec := ""
	if first == "MULTI" && len(d.Cmds) > 1 {
		inExec = name(1)
	}
	aborted := len(d.replies) > 0 && inExec != "" && d.replies[len(d.replies)-1] == nil
	text := setReason(d.Cmds)
	if text == "" {
		text = commandReasons()[reasonKey{d.phase, first, inExec}]
	}
	if text == "" {
		text = commandReasons()[reasonKey{anyPhase, first, inExec}]
	}
	if text == "" {
		text = "it asks the server"
	}
	if said := inVain(d, first, text); said != "" {
		text = said
	}
	if aborted && d.lost == "" {
		text += ", on the condition that the key has not changed; it has, and nothing is done"
	}
	return text
}

// inVain returns text, the reason for a single command, if the reply says: nothing done.
func inVain(d *Outcome, first, text string) string {
	if len(d.Cmds) != 1 || len(d.replies) != 1 || d.lost != "" {
		return ""
	}
	refused, isError := d.replies[0].(error)
	switch {
	case isError && strings.HasPrefix(refused.Error(), "NOSCRIPT"):
		return "the server does not know the script, and does nothing"
	case isError:
		return "the server refuses the command, and does nothing"
	case first == "DEL" && d.replies[0] == int64(0):
		return strings.Replace(strings.Replace(text, "removes a key", "would remove a key", 1), "removes it", "would remove it", 1) + ", but there is none"
	case first == "SET" && d.replies[0] == nil && strings.HasSuffix(text, "its own"):
		return text + "; it is not"
	case first == "SET" && d.replies[0] == nil:
		return text + "; there is one"
	}
	return ""
}

// setReason explains a SET, alone or first in a transaction, by its options; "" for another command.
func setReason(cmds [][]string) string {
	fenced := ""
	if strings.EqualFold(cmds[0][0], "MULTI") && len(cmds) > 1 {
		cmds = cmds[1:]
		for _, c := range cmds {
			if strings.EqualFold(c[0], "INCR") {
				fenced = ", and draws a fence"
			}
		}
	}
	if !strings.EqualFold(cmds[0][0], "SET") || len(cmds[0]) < 3 {
		return ""
	}
	options := " " + strings.ToUpper(strings.Join(cmds[0][3:], " ")) + " "
	text := "it creates the key without a TTL"
	if strings.Contains(options, " PX ") || strings.Contains(options, " EX ") {
		text = "it creates the key with a TTL"
	}
	switch {
	case strings.Contains(options, " IFEQ "):
		return "it sets a new TTL if the key is its own" + fenced
	case strings.Contains(options, " NX "):
		return text + ", if there is no key" + fenced
	}
	return strings.Replace(text, "creates", "writes", 1) + ", whatever is there" + fenced
}

type reasonKey struct {
	phase       client.Phase
	cmd, inExec string
}

const anyPhase = client.Phase(255)

var commandReasons = sync.OnceValue(func() map[reasonKey]string {
	return map[reasonKey]string{
		{client.Acquiring, "SETNX", ""}:         "it tries to create the key: only one client can",
		{client.Acquiring, "MULTI", "SETNX"}:    "it tries to create the key, and draws a fence or sets a TTL in the same transaction",
		{client.Acquiring, "EXPIRE", ""}:        "it gives the key a TTL",
		{client.Acquiring, "PEXPIRE", ""}:       "it gives the key a TTL",
		{client.Acquiring, "GETSET", ""}:        "it has read an expired timestamp: it takes the lock over, and the old value will tell whether it was the first",
		{client.Acquiring, "MULTI", "GETSET"}:   "it has read an expired timestamp: it takes the lock over",
		{client.Acquiring, "MULTI", "SETEX"}:    "it saw no key: it creates it with a TTL",
		{client.Acquiring, "MULTI", "PSETEX"}:   "it saw no key: it creates it with a TTL",
		{client.Acquiring, "SETEX", ""}:         "it creates another key, with a TTL",
		{client.Acquiring, "PSETEX", ""}:        "it creates another key, with a TTL",
		{client.Acquiring, "RENAMENX", ""}:      "it renames that key to the lock's name, if there is no lock",
		{client.Acquiring, "MULTI", "RENAMENX"}: "it renames that key to the lock's name, if there is no lock, and draws a fence",
		{client.Acquiring, "DEL", ""}:           "it removes a key",
		{client.Acquiring, "MULTI", "EXPIRE"}:   "the key has its value: it sets the TTL anew, which proves that it still has",
		{client.Extending, "GET", ""}:           "it checks that the key is still its own",
		{client.Extending, "MULTI", "EXPIRE"}:   "the key is its own: it sets a new TTL",
		{client.Extending, "GETSET", ""}:        "it writes a later timestamp",
		{client.Extending, "MULTI", "GETSET"}:   "the key is its own: it writes a later timestamp",
		{client.Releasing, "WATCH", ""}:         "it is done; from here on, a change of the key aborts its transaction",
		{client.Releasing, "GET", ""}:           "it checks that the key is still its own",
		{client.Releasing, "DEL", ""}:           "it takes the key for its own, and removes it",
		{client.Releasing, "MULTI", "DEL"}:      "the key is its own: it removes it",
		{client.Releasing, "EVAL", ""}:          "the server runs the script: it removes the key if it is its own",
		{client.Releasing, "EVALSHA", ""}:       "it removes the key if it is its own: a script compares and deletes in one",
		{client.Extending, "EVAL", ""}:          "the server runs the script: it sets a new TTL if the key is its own",
		{client.Extending, "EVALSHA", ""}:       "it sets a new TTL if the key is its own: a script compares and does it in one",
		{client.Acquiring, "EVAL", ""}:          "the server runs the script: it creates the key with a TTL, if there is no key",
		{client.Acquiring, "EVALSHA", ""}:       "a script creates the key with a TTL, if there is no key",
		{client.Releasing, "DELIFEQ", ""}:       "it removes the key if it is its own: the server compares and deletes in one",
		{client.Releasing, "DELEX", ""}:         "it removes the key if it is its own: the server compares and deletes in one",
		{client.Extending, "MULTI", "PEXPIRE"}:  "the key is its own: it sets a new TTL",
		{client.Extending, "PEXPIRE", ""}:       "it takes the key for its own, and sets a new TTL",
		{anyPhase, "ZADD", ""}:                  "it writes a name into a set, with the time at which it goes out of date",
		{anyPhase, "ZREM", ""}:                  "it takes a name out of a set",
		{anyPhase, "ZREMRANGEBYSCORE", ""}:      "it takes out of a set what is out of date",
		{anyPhase, "ZREVRANGE", ""}:             "it reads a set of names",
		{anyPhase, "ZSCORE", ""}:                "it asks whether a name is in a set",
		{anyPhase, "ZCARD", ""}:                 "it asks how many names are in a set",
		{anyPhase, "MULTI", "ZADD"}:             "it writes a name into a set, in a transaction",
		{anyPhase, "MULTI", "ZREMRANGEBYSCORE"}: "in one transaction it takes out of a set what is out of date, and changes what it has read",
		{anyPhase, "TIME", ""}:                  "it asks for the server's time",
		{anyPhase, "TTL", ""}:                   "it asks whether the key has a TTL",
		{anyPhase, "UNWATCH", ""}:               "it stops watching",
		{anyPhase, "MULTI", ""}:                 "it begins a transaction",
		{anyPhase, "WATCH", ""}:                 "from here on, a change of the key aborts its transaction",
		{anyPhase, "GET", ""}:                   "it reads the key",
	}
})

// set writes a clock's jump, with its direction.
func set(by time.Duration) string {
	if by < 0 {
		return "back by " + (-by).String()
	}
	return "forward by " + by.String()
}
