package catalogue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/broken"
)

// Form begins the name of a lock whose commands are in the name itself, so that a schedule needs
// nothing else to be replayed. A line is a command, or what its reply means; in the name, ";" ends
// a line and "," is a space:
//
//	SETNX KEY TIME     form/SETNX,KEY,TIME;1=mine;GET,KEY;later=held;GETSET,KEY,TIME;past=mine;else=held;release;DEL,KEY
//	1 = mine
//	GET KEY
//	later = held
//	GETSET KEY TIME
//	past = mine
//	else = held
//	release
//	DEL KEY
//
// KEY is the lock's key, TIME the end of the lease in milliseconds, TOKEN the client's token, TTL
// and TTLMS the lease in seconds and milliseconds. The lines above "release" take the lock, those
// below it release it. The lines after a command say what its reply means; the first that fits
// counts. Left is the reply itself (1, OK, nil, [1 1]), "own" for the value that this client wrote,
// "past" or "later" for a timestamp, or "else". Right is "mine", "held" by another, "lost", "done",
// or "next" for the next command. A reply that no line fits leads to the next command; after the
// last command, an attempt counts as held, and a release as done.
const Form = "form/"

// With adds to locks those whose commands are in the names of an algorithm ([Form]).
func With(locks race.Locks, algorithm string) (race.Locks, error) {
	all := locks
	for _, name := range strings.Split(algorithm, "+") {
		text, ok := strings.CutPrefix(name, Form)
		if !ok {
			continue
		}
		p, err := parseForm(text)
		if err != nil {
			return nil, err
		}
		if all = maps.Clone(all); all == nil {
			all = race.Locks{}
		}
		all[name] = race.Lock{Says: "a lock of your own", Bare: true, New: func(token func() string, _ bool) protocol.Algorithm {
			p := p
			p.token = token
			return p
		}}
	}
	return all, nil
}

// A formed lock is a list of commands to take it, and one to release it.
type formed struct {
	stamped
	take, free []formStep
	token      func() string
}

type formStep struct {
	cmd   []string
	means []meaning
}

type meaning struct{ reply, outcome string }

var outcomes = []string{"mine", "held", "lost", "done", "next"}

func parseForm(text string) (formed, error) {
	var f formed
	list := &f.take
	for n, line := range strings.Split(text, ";") {
		bad := func(says string) error {
			return fmt.Errorf("race: line %d of the lock, %q: %s", n+1, strings.ReplaceAll(line, ",", " "), says)
		}
		fields := strings.FieldsFunc(line, func(r rune) bool { return r == ',' })
		reply, outcome, means := strings.Cut(line, "=")
		switch {
		case len(fields) == 0:
		case line == "release" && list == &f.take:
			list = &f.free
		case means && len(*list) == 0:
			return f, bad("no command stands above it")
		case means:
			reply, outcome = strings.Trim(strings.ReplaceAll(reply, ",", " "), " "), strings.Trim(outcome, ",")
			if !slices.Contains(outcomes, outcome) || reply == "" {
				return f, bad("want a reply, = and one of " + strings.Join(outcomes, ", "))
			}
			if (reply == "past" || reply == "later") && list == &f.free {
				return f, bad("a release is told no time")
			}
			step := &(*list)[len(*list)-1]
			step.means = append(step.means, meaning{reply, outcome})
		default:
			*list = append(*list, formStep{cmd: fields})
		}
	}
	if len(f.take) == 0 {
		return f, errors.New("race: a lock of your own begins with the command that takes it")
	}
	return f, nil
}

func (f formed) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Until: now.Add(ttl), Value: f.value(now.Add(ttl))}
	how, err := f.run(c, f.take, now, l, ttl)
	switch {
	case err != nil:
		return l, err
	case how != "mine" && how != "done":
		return l, &protocol.HeldError{Key: key}
	}
	return l, nil
}

// value is what the lock writes that is its client's own.
func (f formed) value(until time.Time) string {
	for _, s := range f.take {
		if slices.Contains(s.cmd, "TIME") {
			return millis(until)
		}
	}
	return f.token()
}

func (f formed) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error {
		how, err := f.run(c, f.free, time.Time{}, l, 0)
		if err == nil && (how == "lost" || how == "held") {
			return protocol.ErrLost
		}
		return err
	})
}

// run sends the commands, one after another, up to one whose reply settles it; "": none does.
func (f formed) run(c *protocol.Conn, steps []formStep, now time.Time, l protocol.Lease, ttl time.Duration) (string, error) {
	for _, s := range steps {
		args := make([]any, 0, len(s.cmd)-1)
		for _, w := range s.cmd[1:] {
			switch w {
			case "KEY":
				w = l.Key
			case "TIME", "TOKEN":
				w = l.Value
			case "TTL":
				w = strconv.FormatInt(int64(ttl/time.Second), 10)
			case "TTLMS":
				w = strconv.FormatInt(ttl.Milliseconds(), 10)
			}
			args = append(args, w)
		}
		reply, err := c.Do(s.cmd[0], args...)
		if err != nil && !errors.Is(err, redis.ErrNil) {
			return "", err
		}
		text := oldredis.Readable(reply)
		for _, m := range s.means {
			if !m.fits(text, l.Value, now) {
				continue
			}
			if m.outcome == "next" {
				break
			}
			return m.outcome, nil
		}
	}
	return "", nil
}

func (m meaning) fits(reply, own string, now time.Time) bool {
	ms, err := strconv.ParseInt(reply, 10, 64)
	stamp := err == nil && ms > 1e11 // a number that is no time has fewer digits
	switch m.reply {
	case "own":
		return reply == own
	case "past":
		return stamp && ms < now.UnixMilli()
	case "later":
		return stamp && ms >= now.UnixMilli()
	case "else":
		return true
	}
	return reply == m.reply
}
