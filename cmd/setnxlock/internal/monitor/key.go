package monitor

import (
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/race"
)

// onKey shows the key's value, TTL and writer.
func (r *run) onKey() race.Server {
	s := race.Server{TTL: -1}
	value := r.content()
	if value == "" {
		kind, err := redis.String(r.ask("TYPE"))
		if err != nil || kind == "none" || kind == "string" {
			r.writer = nil
			return s
		}
		value = "a " + kind
	}
	s.Value, s.Raw = r.readable(value), value
	if fields := r.fields(); fields != nil {
		s.Value = r.hashed(fields)
	}
	if ttl, err := redis.Int64(r.ask("PTTL")); err == nil && ttl >= 0 {
		s.TTL = ttl
	}
	if r.writer != nil {
		s.Writer = r.writer.name
	}
	return s
}

// ask asks about the key.
func (r *run) ask(name string) (any, error) {
	return r.send(line{db: max(r.db, 0), args: []string{name, r.key}})
}

// content returns the value on the key, of a hash its fields; "": there is none. A list counts as none: ListCAS
// puts it there in between.
func (r *run) content() string {
	if value, err := redis.String(r.ask("GET")); err == nil {
		return value
	}
	if kind, err := redis.String(r.ask("TYPE")); err == nil && kind == "hash" {
		return "a hash " + strings.Join(r.fields(), " ")
	}
	return ""
}

func changed(a, b race.Server) (list []string) {
	if a.Raw != b.Raw || a.Writer != b.Writer {
		list = append(list, "key")
	}
	if (a.TTL < 0) != (b.TTL < 0) || b.TTL > a.TTL {
		list = append(list, "ttl")
	}
	return list
}

// named names a written value for readers.
func (r *run) named(c *client, args []string) {
	key := r.key
	if len(args) > 1 && r.concerns(line{args: args}) {
		key = args[1] // or one beside it, of which the lock may come
	}
	value, ok := written(args, key)
	if !ok || r.names[value] != "" {
		return
	}
	if until, ok := deadline(r.key, value, r.now); ok {
		r.stamps = true
		r.names[value] = "t=" + race.Seconds(r.since(until))
		return
	}
	c.tokens++
	r.names[value] = "«" + c.name + "»"
	if c.tokens > 1 {
		r.names[value] = fmt.Sprintf("«%s.%d»", c.name, c.tokens)
	}
}

// written returns the value that a command puts on the key.
func written(args []string, key string) (string, bool) {
	name := strings.ToUpper(args[0])
	switch {
	case len(args) >= 3 && args[1] == key && (name == "SETNX" || name == "GETSET" || name == "SET"):
		return args[2], true
	case len(args) == 4 && args[1] == key && (name == "SETEX" || name == "PSETEX"):
		return args[3], true
	case len(args) >= 4 && args[1] == key && (name == "HSET" || name == "HSETNX" || name == "HINCRBY") && args[2] != mode:
		return args[2], true
	}
	return "", false
}

// deadline reads a value as a time, if it is one.
func deadline(key, value string, now time.Time) (time.Time, bool) {
	for _, f := range dialect.Recognise(key, value, -1, now) {
		if f.Kind.Timed() && !f.Until.IsZero() {
			return f.Until, true
		}
	}
	return time.Time{}, false
}

func (r *run) readable(s string) string {
	if name := r.names[strings.Trim(s, `"`)]; name != "" {
		return name
	}
	return s
}

func (r *run) command(args []string) string {
	var list []string
	for i, a := range args {
		if i > 0 && a == r.key {
			continue
		}
		if a == "" {
			a = `""`
		}
		list = append(list, r.readable(a))
	}
	return strings.Join(list, " ")
}
