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
// TTL and the value x, in the way that works here. If locks count in milliseconds, so do EXPIRE and TTL.
type question struct {
	how    manner
	cmds   string
	means  []meaning        // the first that fits; if none does, the server answers in no way of Redis's
	spares func(error) bool // which of the server's errors has a meaning; nil: none
	known  string           // the command to ask for without its value, where nothing can be asked as one
}

// A meaning is why the server lacks the ability if the replies look so, a word each: an integer, from..to,
// a status, "a text", - for nil, ! for an error that is spared, * for all but errors, ? for all. "" stands for any.
type meaning struct{ look, why string }

// A manner is how a question is sent: each command for itself, as one, or as one in a transaction.
type manner int

const (
	piped manner = iota
	asOne
	inMulti
)

func (t question) ask(q *Asker) (why string, err error) {
	var cmds []protocol.Cmd
	var at []int // where the reply to each command of the text is
	texts := strings.Split(t.cmds, "; ")
	for _, text := range texts {
		words := strings.Fields(text)
		at = append(at, len(cmds))
		if words[0] == "+" {
			if err := q.Prepare(); err != nil {
				return "", err
			}
			cmds = append(cmds, q.made(q.key(words[1]), words[2])...)
			continue
		}
		cmds = append(cmds, q.command(words))
	}
	run := q.pipe
	switch {
	case t.how == asOne:
		run = q.atomic
	case t.how == inMulti, len(cmds) != len(at): // a key that takes two commands
		run = q.exec
	}
	all, err := run(cmds...)
	switch {
	case errors.Is(err, ErrNotAsked) && t.known != "":
		return q.hasCommand(t.known)
	case len(all) != len(cmds):
		return "", err
	}
	replies := make([]any, len(at))
	var names []string
	for i, n := range at {
		replies[i] = all[n]
		if left, ok := all[n].(int64); ok && q.millis && strings.HasPrefix(texts[i], "TTL") {
			replies[i] = (left + 999) / 1000 // the question is in seconds
		}
		if name := cmds[n][0].(string); name != "DEL" {
			names = append(names, name)
		}
	}
	for _, m := range t.means {
		if t.fits(m.look, replies, err) {
			return m.why, nil
		}
	}
	if err != nil {
		return "", err
	}
	return odd(strings.Join(names, ", "), replies), nil
}

// fits reports that replies look as a meaning says. err is the first error among them.
func (t question) fits(look string, replies []any, err error) bool {
	spared := err == nil || t.spares != nil && t.spares(err)
	if look == "" {
		return spared
	}
	for i, want := range strings.Fields(look) {
		said := word(replies[i])
		refused := said == "!"
		var low, high int64
		n, counts := replies[i].(int64)
		_, notRange := fmt.Sscanf(want, "%d..%d", &low, &high)
		switch {
		case want == "?", want == "*" && !refused, want == said && (!refused || spared):
		case notRange == nil && counts && low <= n && n <= high:
		default:
			return false
		}
	}
	return true
}

// word is a reply as a meaning has it.
func word(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "-"
	case redis.Error:
		return "!"
	case []byte:
		return strconv.Quote(string(r))
	}
	return fmt.Sprint(reply)
}

// command is a command of a question for the scratch keys of q.
func (q *Asker) command(words []string) protocol.Cmd {
	cmd := make(protocol.Cmd, len(words))
	for i, w := range words {
		cmd[i] = q.key(w)
	}
	switch {
	case !q.millis:
	case words[0] == "TTL":
		cmd[0] = "PTTL"
	case words[0] == "EXPIRE":
		cmd[0], cmd[2] = "PEXPIRE", words[2]+"000"
	}
	return cmd
}

// key is the scratch key that a word names, or the word if it names none.
func (q *Asker) key(word string) string {
	return cmp.Or(map[string]string{"a": q.a, "b": q.b}[word], word)
}

// odd is the answer of a server that answers commands in no way of Redis's.
func odd(commands string, replies []any) string {
	said := make([]string, len(replies))
	for i, r := range replies {
		said[i] = fmt.Sprint(r)
		if bulk, ok := r.([]byte); ok {
			said[i] = strconv.Quote(string(bulk))
		}
	}
	return fmt.Sprintf("%s are answered %.80s, not as Redis does", commands, fmt.Sprint(said))
}
