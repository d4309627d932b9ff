package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/race"
)

// mode is the field of a hash without a holder: Redisson's locks for readers and writers keep their mode
// there.
const mode = "mode"

// field returns the field of a hash by which a command, or its script, names the holder; "": none.
func (r *run) field(l line, script []line) string {
	for _, x := range append([]line{l}, script...) {
		name := strings.ToUpper(x.args[0])
		if len(x.args) > 2 && x.args[1] == r.key && x.args[2] != mode &&
			slices.Contains([]string{"HINCRBY", "HSET", "HSETNX", "HEXISTS", "HDEL"}, name) {
			return x.args[2]
		}
	}
	if scripted(strings.ToUpper(l.args[0])) && slices.Contains(l.args, r.key) {
		if i := slices.IndexFunc(l.args, forms().holder.MatchString); i >= 0 {
			return l.args[i]
		}
	}
	return ""
}

// fields returns the fields of the hash on the key with their values, in order; nil: there is no hash.
func (r *run) fields() []string {
	all, err := redis.StringMap(r.ask("HGETALL"))
	if err != nil || len(all) == 0 {
		return nil
	}
	var list []string
	for field, value := range all {
		list = append(list, field+"="+value)
	}
	slices.Sort(list)
	return list
}

// hashed writes a hash for readers: «C1» for one hold, «C1» ×2 for two.
func (r *run) hashed(fields []string) string {
	var list []string
	for _, f := range fields {
		at := strings.LastIndexByte(f, '=')
		field, value := f[:at], f[at+1:]
		switch name := r.names[field]; {
		case name == "":
			list = append(list, f)
		case value == "1":
			list = append(list, name)
		default:
			list = append(list, name+" ×"+value)
		}
	}
	return strings.Join(list, " ")
}

// readers reports a lock for several holders at once.
func (r *run) readers() bool { return slices.Contains(r.fields(), mode+"=read") }

// hash judges a command on a field of the hash on the key: the field is the holder.
func (r *run) hash(c *client, e executed) string {
	name := strings.ToUpper(e.args[0])
	if len(e.args) > 2 && e.args[2] == mode {
		return ""
	}
	mine := slices.ContainsFunc(r.fields(), func(f string) bool { return len(e.args) > 2 && strings.HasPrefix(f, e.args[2]+"=") })
	n, whole := e.answer.(int64)
	switch {
	case name == "HINCRBY" && len(e.args) > 3 && strings.HasPrefix(e.args[3], "-"):
		if n > 0 {
			return fmt.Sprintf("%s gives back one of its holds, and has %d left", c.name, n)
		}
		return c.name + " gives its hold back"
	case name == "HDEL":
		if r.content() != "" { // others are in it
			c.state, c.until = race.Idle, time.Time{}
			return c.name + " gives its hold back"
		}
		c.does(e.script, "releases it with HDEL")
		return r.removes(c, n > 0)
	case name == "HSETNX" && n == 0:
		return r.refused(c, e.held)
	case whole && !mine:
		return ""
	case c.holds(r.now):
		r.writer = c
		return c.name + " takes it once more"
	}
	c.does(e.script, "takes it with "+name)
	held := e.held
	r.take(c, "", 0)
	if held != nil && held != c {
		return fmt.Sprintf("%s takes the lock, which %s holds", c.name, held.name)
	}
	return c.name + " takes the lock"
}

// noteUnknown notes a command that the model doesn't have: its effect on the key is unknown.
func (r *run) noteUnknown(l line, answer any) {
	refused, is := answer.(redis.Error)
	if !is || r.unjudged != "" || !slices.Contains(l.args[1:], r.key) {
		return
	}
	says := strings.ToLower(refused.Error())
	if strings.Contains(says, "unknown command") || strings.Contains(says, "syntax error") || strings.Contains(says, "not supported") || strings.Contains(says, "no such command") {
		r.unjudged = fmt.Sprintf("the model has no %s: from step %d on nothing is judged, for what it did to the key is not known", r.command(l.args), len(r.trace.Events)+1)
	}
}

// ends returns the end of the key's TTL; zero: it has none.
func (r *run) ends() time.Time {
	if ms, err := redis.Int64(r.ask("PTTL")); err == nil && ms >= 0 {
		return r.now.Add(time.Duration(ms) * time.Millisecond)
	}
	return time.Time{}
}
