package ability

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A question is commands on the scratch keys a and b, and what the replies mean. "+ a x" makes a with a
// TTL and the value x, in the way that works here.
type question struct {
	how    manner
	cmds   string
	means  []meaning        // the first that fits; if none does, the server answers in no way of Redis's
	spares func(error) bool // which of the server's errors has a meaning; nil: none
	known  string           // the command to ask for without its value, where nothing can be asked as one

	by func(*Asker) (why string, err error) // asks what this can't say; nil: nothing
}

// A meaning is why the server lacks the ability if the replies look so, a word each: an integer, from..to,
// a status, "a text", nil, + for what a "+" is answered, ! for an error that is spared, * for all but errors,
// ? for all. "" stands for any.
type meaning struct{ look, why string }

// A manner is how a question is sent: each command for itself, as one, or as one in a transaction.
type manner int

const (
	piped manner = iota
	asOne
	inMulti
)

// inMillis translates a question, or the look of its replies, for locks that count in milliseconds.
func inMillis(s string) string {
	return strings.NewReplacer("; TTL", "; PTTL", "; EXPIRE a 120", "; PEXPIRE a 120000", " 61..120 ", " 60001..120000 ", " 1..60 ", " 1..60000 ").Replace(s)
}

// commands reads the commands of a text, on the scratch keys of q, in the unit of the lock.
func (q *Asker) commands(text string) (cmds []protocol.Cmd) {
	if q.millis {
		text = inMillis(text)
	}
	for line := range strings.SplitSeq(text, "; ") {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "+" {
			cmds = append(cmds, q.commands(strings.NewReplacer("$1", words[1], "$2", words[2]).Replace(q.made))...)
			continue
		}
		var cmd protocol.Cmd
		for _, word := range words {
			cmd = append(cmd, cmp.Or(map[string]string{"a": q.a, "b": q.b}[word], word))
		}
		if cmd != nil {
			cmds = append(cmds, cmd)
		}
	}
	return cmds
}

// pose asks a question. why is "" if the server has the ability.
func (q *Asker) pose(t question) (why string, err error) {
	if t.by != nil {
		return t.by(q)
	}
	if strings.Contains(t.cmds, "+") {
		if err := q.Prepare(); err != nil {
			return "", err
		}
	}
	cmds, run := q.commands(t.cmds), q.pipe
	switch {
	case t.how == asOne:
		run = q.atomic
	case t.how == inMulti:
		run = q.exec
	case strings.Contains(t.cmds, "+"):
		run = q.run
	}
	replies, err := run(cmds...)
	switch {
	case errors.Is(err, ErrNotAsked) && t.known != "":
		return q.hasCommand(t.known)
	case len(replies) != len(cmds):
		return "", err
	}
	said, names := make([]string, len(cmds)), []string{}
	for i, r := range replies {
		said[i] = word(r)
		if name := cmds[i][0].(string); name != "DEL" {
			names = append(names, name)
		}
	}
	for _, m := range t.means {
		if q.fits(m.look, said, err == nil || t.spares != nil && t.spares(err)) {
			return m.why, nil
		}
	}
	if err != nil {
		return "", err
	}
	return odd(strings.Join(names, ", "), said), nil
}

// fits reports whether the replies look as a meaning has it. spared: no error among them denies the ability.
func (q *Asker) fits(look string, said []string, spared bool) bool {
	if look == "" {
		return spared
	}
	for i, want := range q.words(look) {
		var low, high, n int64
		refused := said[i] == "!"
		switch read, _ := fmt.Sscanf(want+" "+said[i], "%d..%d %d", &low, &high, &n); {
		case want == "?", want == "*" && !refused, want == said[i] && (!refused || spared), read == 3 && low <= n && n <= high:
		default:
			return false
		}
	}
	return true
}

// words returns a meaning's words, one for each reply.
func (q *Asker) words(look string) []string {
	look = strings.ReplaceAll(look, "+", strings.Repeat("* ", strings.Count(q.made, ";")+1))
	if q.millis {
		look = inMillis(look)
	}
	return strings.Fields(look)
}

// word writes a reply as a meaning does.
func word(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case redis.Error:
		return "!"
	case []byte:
		return strconv.Quote(string(r))
	}
	return fmt.Sprint(reply)
}

// odd returns the words for a server with answers in no way of Redis's.
func odd(commands string, said []string) string {
	return fmt.Sprintf("%s are answered %.80s, not as Redis does", commands, fmt.Sprint(said))
}
