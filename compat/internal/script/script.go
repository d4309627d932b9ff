// Package script makes Lua of commands that are to run only if a key holds a value: one script
// for each sequence of commands, of which there are a handful. Each compares, stops at a first
// command that answers 0, and returns all replies, or nil and what it holds if the key does not hold the value.
// It guarantees that the source depends on the commands' names, numbers of arguments and keys
// alone: whatever the values, a server that knows the script by its hash needs it once.
package script

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// A Script carries out the changes of one shape.
type Script struct {
	Source    string
	text, sha any // strings, boxed once
	keys      any // how many
}

var (
	mu     sync.RWMutex
	shapes = map[string]*Script{}
)

// For is the script that runs cmds, each on the key that is its first argument (nil: key), if
// key holds a value.
func For[C ~[]any](key string, cmds []C) *Script {
	var room [64]byte
	shape := room[:0]
	for _, m := range cmds {
		shape = append(append(shape, m[0].(string)...), byte('0'+len(m)))
		if !is(m[1], key) {
			shape = append(shape, '+') // another key
		}
	}
	mu.RLock()
	known := shapes[string(shape)]
	mu.RUnlock()
	if known == nil {
		known = compile(key, cmds)
		mu.Lock()
		shapes[string(shape)] = known
		mu.Unlock()
	}
	return known
}

// counts reports whether the command answers with a number of any size: a Lua number, a double, may not hold it,
// so a script reads it as a string.
func counts(name string) bool {
	switch strings.ToUpper(name) {
	case "INCR", "INCRBY", "DECR", "DECRBY":
		return true
	}
	return false
}

// Numbers turns the replies to cmds in a script into the replies that the commands have outside
// of one.
func Numbers[C ~[]any](cmds []C, replies []any) {
	for i, m := range cmds {
		if text, ok := replies[i].([]byte); ok && counts(m[0].(string)) {
			if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
				replies[i] = n
			}
		}
	}
}

func is(arg any, key string) bool {
	s, ok := arg.(string)
	return arg == nil || ok && s == key
}

func compile[C ~[]any](key string, cmds []C) *Script {
	var b strings.Builder
	b.WriteString("local held = redis.call('GET', KEYS[1])\nif held ~= ARGV[1] then\n\treturn {false, held}\nend\n")
	keys, arg := 1, 1
	var replies []string
	for i, m := range cmds {
		at := 1
		if !is(m[1], key) {
			keys++
			at = keys
		}
		reply := fmt.Sprintf("r%d", i+1)
		replies = append(replies, reply)
		call, draws := "call", counts(m[0].(string))
		if draws {
			call = "pcall" // the refusal is the INCR's reply: what came before it is done
		}
		fmt.Fprintf(&b, "local %s = redis.%s('%s', KEYS[%d]", reply, call, m[0], at)
		for range m[2:] {
			arg++
			fmt.Fprintf(&b, ", ARGV[%d]", arg)
		}
		b.WriteString(")\n")
		if i == 0 {
			b.WriteString("if r1 == 0 then\n\treturn false\nend\n") // before 2.8 a key can expire while a script runs
		}
		if draws {
			fmt.Fprintf(&b, "if type(%s) == 'number' and math.abs(%[1]s) >= 2^53 then\n\t%[1]s = redis.call('GET', KEYS[%[2]d])\nend\n", reply, at)
		}
	}
	if len(cmds) == 1 {
		b.WriteString("return r1\n")
	} else {
		b.WriteString("return {" + strings.Join(replies, ", ") + "}\n")
	}
	source := b.String()
	return &Script{Source: source, text: source, sha: redis.NewScript(-1, source).Hash(), keys: keys}
}

// Append appends to args those of EVALSHA, or of EVAL with the source.
func Append[C ~[]any](args []any, s *Script, source bool, key, value string, cmds []C) []any {
	text := s.sha
	if source {
		text = s.text
	}
	args = append(args, text, s.keys, key)
	for _, m := range cmds {
		if !is(m[1], key) {
			args = append(args, m[1])
		}
	}
	args = append(args, value)
	for _, m := range cmds {
		args = append(args, m[2:]...)
	}
	return args
}
