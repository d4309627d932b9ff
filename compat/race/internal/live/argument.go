package live

import (
	"fmt"
	"slices"

	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// breachText describes a breach in a line.
func (s *narrator) breachText(b judge.Breach) string {
	return fmt.Sprintf(b.How.Says(), name(int(b.Who)), name(int(b.Other)), secondsOf(s.w.c.Within), s.w.c.Clients+1)
}

// argue writes the argument: each lock with its first step, and the cause of the violation.
func (s *narrator) argue() {
	t := &s.trace
	if t.Verdict.Violated == "" {
		return
	}
	at := t.Verdict.Step - 1
	e, d := t.Events[at], s.outcomes[at]
	for i := range s.w.Players {
		if since, until := s.heldSince(i, at); since > 0 {
			t.Argument.Let = append(t.Argument.Let, fmt.Sprintf("%s hold %s from step %d until t=%s by its own clock", name(i), t.Key, since, trace.Seconds(until)))
		} else if n := s.crashedAt(i, at); n > 0 {
			t.Argument.Let = append(t.Argument.Let, fmt.Sprintf("%s crash at step %d", name(i), n))
		}
	}
	t.Argument.Then = s.because(at, d)
	t.Argument.So = fmt.Sprintf("at step %d, t=%s, %s: %s is violated", e.N, trace.Seconds(e.At), e.Violation.Text, t.Verdict.Violated)
}

// heldSince returns the first step of a client's lock at event n, and its lease's end; 0 if it holds
// none, and held none just before.
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
		if c := s.outcomes[k].choice; c.Verb == plan.Crash && c.Client == i {
			return k + 1
		}
	}
	return 0
}

// because finds the last change of the key before the violation with an earlier read behind it.
func (s *narrator) because(at int, d *Outcome) []string {
	var list []string
	for n := at; n >= 0; n-- {
		e := s.trace.Events[n]
		was := s.trace.Start
		if n > 0 {
			was = s.trace.Events[n-1].Server
		}
		switch byItself := e.Cmd == "" && touches(e, "key"); {
		case byItself && e.Who == "redis":
			list = append([]string{fmt.Sprintf("at step %d the server %s: %s", e.N, e.Note, fate(was, e.Server))}, list...)
			continue
		case byItself && e.Who == "time":
			list = append([]string{fmt.Sprintf("at step %d time had passed: %s", e.N, fate(was, e.Server))}, list...)
			continue
		case e.Cmd == "" || !touches(e, "key") && !touches(e, "ttl"):
			continue
		}
		text := fmt.Sprintf("at step %d %s's %s %s", e.N, e.Who, e.Cmd, effect(was, e.Server))
		if decided := s.decided(n); decided > 0 && s.acted(e.Who, decided, n) {
			text += fmt.Sprintf("; it decided to at step %d, and since then others have acted", decided)
		}
		list = append([]string{text}, list...)
		if len(list) >= 3 {
			break
		}
	}
	for n := at; n >= 0; n-- {
		if l := s.trace.Events[n].Lost; l != "" {
			list = append(list, fmt.Sprintf("at step %d %s's connection broke (%s lost), so it could not know", n+1, s.trace.Events[n].Who, l))
			break
		}
	}
	if d.Breach.How == judge.Stuck {
		if is := s.trace.Events[at].Server; is.Value == "" {
			list = append(list, "the key is free, and still no client can take it")
		} else if is.TTL < 0 {
			list = append(list, fmt.Sprintf("%s stays on the key: it has no ttl", is.Value))
		} else {
			list = append(list, fmt.Sprintf("%s stays on the key for another %s", is.Value, trace.Seconds(is.TTL)))
		}
	}
	return list
}

// decided returns the client's own step before event n, with its knowledge when it sent.
func (s *narrator) decided(n int) int {
	who := s.trace.Events[n].Who
	for k := n - 1; k >= 0; k-- {
		if s.trace.Events[k].Who == who {
			return k + 1
		}
	}
	return 0
}

// acted reports whether another client acted after step from and before event n.
func (s *narrator) acted(who string, from, n int) bool {
	return slices.ContainsFunc(s.trace.Events[from:n], func(e trace.Event) bool {
		return e.Who != who && (e.Cmd != "" || e.Who == "redis")
	})
}

func touches(e trace.Event, what string) bool { return slices.Contains(e.Changed, what) }

// effect describes a command's change of the key.
func effect(was, is trace.Server) string {
	switch {
	case was.Value == "":
		return "put " + is.Value + " on the key"
	case is.Value == "":
		return "removed " + keyWords(was)
	case was.Value != is.Value || was.Raw != is.Raw:
		return fmt.Sprintf("put %s on the key in place of %s", is.Value, keyWords(was))
	case is.TTL < 0:
		return "took the ttl of " + keyWords(was) + " away"
	}
	return fmt.Sprintf("gave %s a ttl of %s", keyWords(was), trace.Seconds(is.TTL))
}

// fate describes a change of the key by no client.
func fate(was, is trace.Server) string {
	switch {
	case is.Dead && !was.Dead:
		return was.Value + " has expired"
	case is.Value == "" && was.Value != "":
		return was.Value + " is gone"
	case was.Value == "":
		return is.Value + " is there again"
	}
	return is.Value + " is there in place of " + was.Value
}

// keyWords describes the key in a sentence.
func keyWords(s trace.Server) string {
	if s.Dead {
		return s.Value + ", which had expired,"
	}
	return s.Value
}
