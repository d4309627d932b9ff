package race

import (
	"fmt"
	"strings"
)

// breachText says in a line what was broken.
func (s *narrator) breachText(b breach) string {
	who, other := name(int(b.who)), name(int(b.other))
	switch b.how {
	case twoHold:
		return fmt.Sprintf("%s and %s both hold the lock", who, other)
	case staleWrite:
		return fmt.Sprintf("the storage accepts %s's write after a newer holder's", who)
	case removedAnothers:
		return fmt.Sprintf("%s removes the lock that %s holds", who, other)
	case changedAnothers:
		return fmt.Sprintf("%s changes the lock that %s holds", who, other)
	case falselyAcquired:
		return fmt.Sprintf("%s is told that it has the lock, but the key is not its own", who)
	case falselyExtended:
		return fmt.Sprintf("%s is told that its lease goes on, but the key is not its own", who)
	case removedSuccessors:
		return fmt.Sprintf("a handle that %s gave away before its hand-off releases the lock of the next holder", who)
	case stuck:
		return fmt.Sprintf("no client can take the lock within %s", secondsOf(s.w.c.Within))
	case revived:
		return fmt.Sprintf("%s revives a lock that had expired", who)
	case notLost:
		return fmt.Sprintf("%s is told that the lock was lost, but the key is its own", who)
	case removedNothing:
		return fmt.Sprintf("%s is told that it released the lock, but it removed nothing of its own", who)
	case heldByNobody:
		return fmt.Sprintf("%s is told that another holds the lock, but no client did", who)
	case unknownWithoutLoss:
		return fmt.Sprintf("%s is told that the outcome is unknown, but no message was lost", who)
	case fenceOrder:
		return fmt.Sprintf("%s's fence does not fit the order of acquisition", who)
	case passedOver:
		return fmt.Sprintf("%s waits and asks again and again, and %d times another client has come in before it", who, s.w.c.Clients+1)
	}
	return ""
}

// argue writes the argument: who held what since which step, and what made it break.
func (s *narrator) argue() {
	t := &s.trace
	if t.Verdict.Violated == "" {
		return
	}
	at := t.Verdict.Step - 1
	e, d := t.Events[at], s.deeds[at]
	for i := range s.w.players {
		if since, until := s.heldSince(i, at); since > 0 {
			t.Argument.Let = append(t.Argument.Let, fmt.Sprintf("%s hold %s from step %d until t=%s by its own clock", name(i), t.Key, since, Seconds(until)))
		} else if n := s.crashedAt(i, at); n > 0 {
			t.Argument.Let = append(t.Argument.Let, fmt.Sprintf("%s crash at step %d", name(i), n))
		}
	}
	t.Argument.Then = s.because(at, d)
	t.Argument.So = fmt.Sprintf("at step %d, t=%s, %s: %s is violated", e.N, Seconds(e.At), e.Violation.Text, t.Verdict.Violated)
	t.Argument.Fix = fixes[d.breach.how]
}

// heldSince is the step since which a client has held at event n, and its
// lease's end; 0 if it does not, and did not just before.
func (s *narrator) heldSince(i, n int) (since int, until int64) {
	held := func(n int) bool { b := s.trace.Events[n].Belief[name(i)]; return b.Until >= 0 }
	if !held(n) {
		if n == 0 || !held(n-1) {
			return 0, 0
		}
		n--
	}
	until = s.trace.Events[n].Belief[name(i)].Until
	for n > 0 && held(n-1) {
		n--
	}
	return n + 1, until
}

func (s *narrator) crashedAt(i, n int) int {
	for k := n; k >= 0; k-- {
		if c := s.deeds[k].choice; c.Verb == Crash && c.Client == i {
			return k + 1
		}
	}
	return 0
}

// because traces the last change of the key before the violation that was made
// on what had been read earlier.
func (s *narrator) because(at int, d *deed) []string {
	var list []string
	for n := at; n >= 0; n-- {
		e := s.trace.Events[n]
		if e.Cmd == "" || !touches(e, "key") && !touches(e, "ttl") {
			continue
		}
		was := s.trace.Start
		if n > 0 {
			was = s.trace.Events[n-1].Server
		}
		text := fmt.Sprintf("at step %d %s's %s made the key %s of %s", e.N, e.Who, e.Cmd, keyWords(e.Server), keyWords(was))
		if decided := s.decided(n); decided > 0 && decided < e.N-1 {
			text += fmt.Sprintf("; it decided to at step %d, and since then others have acted", decided)
		}
		list = append([]string{text}, list...)
		if len(list) == 3 {
			break
		}
	}
	for n := at; n >= 0; n-- {
		if l := s.trace.Events[n].Lost; l != "" {
			list = append(list, fmt.Sprintf("at step %d %s's connection broke (%s lost), so it could not know", n+1, s.trace.Events[n].Who, l))
			break
		}
	}
	if d.breach.how == stuck {
		list = append(list, fmt.Sprintf("the key %s does not expire in time: its ttl is %s", keyWords(s.trace.Events[at].Server), ttlText(s.trace.Events[at].Server.TTL)))
	}
	return list
}

// decided is the client's own step before event n: what it knew when it sent.
func (s *narrator) decided(n int) int {
	who := s.trace.Events[n].Who
	for k := n - 1; k >= 0; k-- {
		if s.trace.Events[k].Who == who {
			return k + 1
		}
	}
	return 0
}

func touches(e Event, what string) bool {
	for _, c := range e.Changed {
		if c == what {
			return true
		}
	}
	return false
}

func keyWords(s Server) string {
	switch {
	case s.Value == "":
		return "nothing"
	case s.Dead:
		return s.Value + " (expired)"
	}
	return strings.TrimSpace(s.Value)
}

func ttlText(ms int64) string {
	if ms < 0 {
		return "none"
	}
	return Seconds(ms)
}

// fixes are what helps against each way to break.
var fixes = map[breachKind]string{
	twoHold:            "make the change on the condition that the key still holds what was read: WATCH, MULTI, EXEC; and count a lease from before the request",
	staleWrite:         "a fence: the storage refuses a number older than it has seen",
	removedAnothers:    "compare and remove in one step: WATCH and GET the key, DEL it in MULTI/EXEC",
	changedAnothers:    "change the key only in a transaction that WATCHes it, after reading one's own value from it",
	falselyAcquired:    "read the key back before relying on it",
	falselyExtended:    "extend on the condition that the key holds one's own value",
	removedSuccessors:  "a hand-off puts a new value on the key: whoever knows the old one has nothing",
	stuck:              "create the key with its TTL in one command (SETEX under WATCH, or SETEX and RENAMENX), so that no key is left without a TTL",
	revived:            "set a TTL only under WATCH, on a value seen again: before 2.8, TTL answers -1 for a key that has just expired, too",
	notLost:            "read the key before calling it lost",
	removedNothing:     "read the replies to DEL and EXEC: 0 and nil do not mean \"released\"",
	heldByNobody:       "ask again before calling it held",
	unknownWithoutLoss: "an EXEC that aborted did nothing: read the key again",
	fenceOrder:         "draw the fence in the transaction that takes the key",
	passedOver:         "who waits says so, and those that come later wait for it",
}
