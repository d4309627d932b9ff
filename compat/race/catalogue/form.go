package catalogue

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
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
// last command, an attempt counts as held by another, and a release as done.
//
// COMPARE-AND-DELETE KEY TOKEN is the script that deletes the key if it holds the token. Of its replies 0 is "lost",
// unless a line says otherwise. A script of your own stands in
// quotes behind EVAL, where a comma is a comma: [FormName] writes the name of a lock's lines. WATCH, MULTI and EXEC are
// commands like others, and a client has one connection.
const Form = "form/"

// compareAndDelete is the word for the script that most locks are released with.
const compareAndDelete = "COMPARE-AND-DELETE"

const compareScript = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

// inQuotes escapes the characters with another meaning in a form's name. A space is a comma, so a
// comma is none.
func inQuotes() *strings.Replacer {
	return strings.NewReplacer("%", "%25", ",", "%2C", ";", "%3B", "=", "%3D", "+", "%2B", " ", ",", "\t", ",", "\n", ",")
}

// FormName writes lines of text as the name of a lock ([Form]).
func FormName(text string) string {
	var b strings.Builder
	b.WriteString(Form)
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if n > 0 {
			b.WriteByte(';')
		}
		for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
			switch {
			case i%2 == 1:
				b.WriteString(`"` + inQuotes().Replace(part) + `"`)
			default:
				b.WriteString(strings.ReplaceAll(strings.Join(strings.Fields(part), ","), ",=,", "="))
				if strings.HasSuffix(part, " ") && part != "" {
					b.WriteByte(',')
				}
			}
		}
	}
	return b.String()
}

// With adds to locks the forms among the names of an algorithm ([Form]).
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
		fields, err := formFields(line)
		if err != nil {
			return f, bad(err.Error())
		}
		reply, outcome, means := strings.Cut(line, "=")
		means = means && !strings.Contains(line, `"`) // a script
		switch {
		case len(fields) == 0:
		case line == "release" && list == &f.take:
			list = &f.free
		case strings.EqualFold(line, "release"):
			return f, bad(`"release", in small letters, stands once, between the commands that take the lock and those that release it`)
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
			if err := capitals(fields); err != nil {
				return f, bad(err.Error())
			}
			*list = append(*list, formStep{cmd: fields})
		}
	}
	if len(f.take) == 0 {
		return f, errors.New("race: a lock of your own begins with the command that takes it")
	}
	if !slices.ContainsFunc(f.take, func(s formStep) bool { return slices.Contains(s.cmd, "KEY") }) {
		return f, errors.New("race: no command that takes the lock names its key: write KEY for it, in capitals")
	}
	if !slices.ContainsFunc(f.take, func(s formStep) bool {
		return slices.ContainsFunc(s.means, func(m meaning) bool { return m.outcome == "mine" || m.outcome == "done" })
	}) {
		return f, errors.New("race: no line says by which reply the lock is taken, as OK = mine does: nobody would ever hold it")
	}
	return f, nil
}

// formWords are what a lock's lines are filled in with.
var formWords = []string{"KEY", "TOKEN", "TIME", "TTL", "TTLMS"}

// capitals checks a command's words.
func capitals(cmd []string) error {
	for _, w := range cmd[1:] {
		if up := strings.ToUpper(w); up != w && slices.Contains(formWords, up) {
			return fmt.Errorf("write KEY, TOKEN, TIME, TTL and TTLMS in capitals: %q would be sent as it is", w)
		}
	}
	if strings.EqualFold(cmd[0], compareAndDelete) {
		if len(cmd) != 3 {
			return fmt.Errorf("want %s KEY TOKEN", compareAndDelete)
		}
		cmd[0] = compareAndDelete
	}
	if slices.Contains(formWords, cmd[0]) {
		return fmt.Errorf("a line begins with a command, and %s is none", cmd[0])
	}
	return nil
}

// formFields splits a line into its words. What stands in quotes is one.
func formFields(line string) ([]string, error) {
	var list []string
	parts := strings.Split(line, `"`)
	if len(parts)%2 == 0 {
		return nil, errors.New("a quote does not end")
	}
	for i, part := range parts {
		if i%2 == 0 {
			list = append(list, strings.FieldsFunc(part, func(r rune) bool { return r == ',' })...)
			continue
		}
		text, err := url.PathUnescape(strings.ReplaceAll(part, ",", " "))
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
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

// value returns the client's own value.
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

// run sends the commands, one after another, up to a decisive reply; "": none decides.
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
		name := s.cmd[0]
		if name == compareAndDelete {
			name, args = "EVAL", slices.Concat([]any{compareScript, 1}, args)
		}
		reply, err := c.Do(name, args...)
		if err != nil && !errors.Is(err, redis.ErrNil) {
			return "", err
		}
		text, outcome := oldredis.Readable(reply), "next"
		if s.cmd[0] == compareAndDelete && text == "0" {
			outcome = "lost"
		}
		for _, m := range s.means {
			if m.fits(text, l.Value, now) {
				outcome = m.outcome
				break
			}
		}
		if outcome != "next" {
			return outcome, nil
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
