package probe

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Kept is how long a [Memory] believes an answer: what an administrator grants or configures is
// noticed after that time at the latest.
const Kept = 24 * time.Hour

// memoryFormat changes with the questions and with what Report holds: answers of another format
// are not used.
const memoryFormat = 2

// A Memory remembers what servers can do, so that a server is asked once. It is safe for concurrent
// use; the zero value is ready. As JSON it can be kept for the next process.
//
// It recognises a server by the run id in INFO. A server without one (before 2.4), one that refuses
// INFO, a proxy, and a server that refuses writes or where no lock is safe are asked each time. An answer no
// longer counts when the run id, the version, the role, the eviction policy or the user has changed, when it is
// older than [Kept], and after [Memory.Forget]: call that when the server contradicts an answer. It counts for
// every Options.Prefix: if an ACL forbids another one, the first step of a lock there says so.
type Memory struct {
	mu      sync.Mutex
	answers []asked
	changed bool
}

// asked is what one server answered one user.
type asked struct {
	Who    identity  `json:"who"`
	Where  string    `json:"where,omitempty"` // Options.Where
	Asked  time.Time `json:"asked"`
	Report Report    `json:"report"`
	Safe   []string  `json:"safe,omitempty"` // the locks whose own check found the server safe
}

// An identity is what an answer depends on, and what INFO and ACL WHOAMI tell.
type identity struct {
	RunID   string `json:"run_id"`
	Version string `json:"version"`
	Role    string `json:"role"`
	Policy  string `json:"policy,omitempty"`
	User    string `json:"user,omitempty"`
}

// Ask does as the function [Ask], unless the server is remembered: then it only sends three commands to recognise it.
// known says that it was remembered.
func (m *Memory) Ask(ctx context.Context, source compat.Source, o Options) (r Report, known bool, err error) {
	who, err := identify(ctx, source, o)
	if errors.Is(err, errUnnamed) {
		r, err = Ask(ctx, source, o)
		return r, false, err
	}
	if err != nil {
		return r, false, err
	}
	if r, known = m.recall(who, o); known {
		return r, true, nil
	}
	r, err = Ask(ctx, source, o)
	if err == nil && r.Writable && r.Kind != "proxy" && r.Unsafe() == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.who = who
		m.answers, m.changed = append(m.answers, asked{who, o.Where, time.Now(), r, nil}), true
	}
	return r, false, err
}

func (m *Memory) recall(who identity, o Options) (r Report, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.find(who, o)
	if a == nil {
		return r, false
	}
	return a.Report, true
}

// find returns the answer for who, if it is still believed. m.mu is held.
func (m *Memory) find(who identity, o Options) *asked {
	m.drop(func(a asked) bool {
		same := a.Where == o.Where
		age := time.Since(a.Asked)
		return age > Kept || age < 0 || same && a.Who.User == who.User && a.Who != who && (o.Where != "" || a.Who.RunID == who.RunID)
	})
	for i := range m.answers {
		if a := &m.answers[i]; a.Who == who && a.Where == o.Where && who.RunID != "" {
			a.Report.who = who
			return a
		}
	}
	return nil
}

// Forget forgets the server of r, because it has now answered something else.
func (m *Memory) Forget(r Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(func(a asked) bool { return a.Who.RunID == r.who.RunID })
}

// drop removes answers. m.mu is held.
func (m *Memory) drop(which func(asked) bool) {
	before := len(m.answers)
	m.answers = slices.DeleteFunc(m.answers, which)
	m.changed = m.changed || len(m.answers) != before
}

// Trust remembers a lock's own check of the server of r as passed. lock names the lock with its options.
func (m *Memory) Trust(r Report, o Options, lock string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.find(r.who, o); a != nil && !slices.Contains(a.Safe, lock) {
		a.Safe, m.changed = append(a.Safe, lock), true
	}
}

// Trusts reports whether [Memory.Trust] was called for the same server, options and lock.
func (m *Memory) Trusts(r Report, o Options, lock string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.find(r.who, o)
	return a != nil && slices.Contains(a.Safe, lock)
}

// Changed reports whether MarshalJSON has something new to write.
func (m *Memory) Changed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// A file is what is remembered, as JSON.
type file struct {
	Format  int             `json:"format"`
	Answers json.RawMessage `json:"answers"`
}

// MarshalJSON writes the memory.
func (m *Memory) MarshalJSON() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = false
	b, err := json.Marshal(m.answers)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{memoryFormat, b})
}

// UnmarshalJSON replaces the memory by the output of MarshalJSON, if it has the same format, or else by nothing.
func (m *Memory) UnmarshalJSON(b []byte) error {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers, m.changed = nil, false
	if f.Format != memoryFormat {
		return nil
	}
	return json.Unmarshal(f.Answers, &m.answers)
}

// Remembered reports whether a [Memory] has this report.
func (r Report) Remembered() bool { return r.who.RunID != "" }

// SameServer reports whether c leads to the server of r: one command.
func (r Report) SameServer(c *protocol.Conn) bool {
	info, err := c.Do("INFO")
	return err == nil && r.who.RunID != "" && runID(info) == r.who.RunID
}

// errUnnamed means that a server can't be recognised.
var errUnnamed = errors.New("setnxlock: the server can't be recognised")

// identify asks a server for its identity, and for ours there.
func identify(ctx context.Context, source compat.Source, o Options) (identity, error) {
	p := newProber(ctx, source, o)
	defer p.close()
	told, err := redis.String(p.ask(protocol.Cmd{"INFO"})[0], nil)
	if p.err != nil {
		return identity{}, p.err
	}
	info := parseInfo(told)
	who := identity{info["run_id"], info["redis_version"], info["role"], info["maxmemory_policy"], ""}
	if err != nil || who.RunID == "" {
		return who, errUnnamed
	}
	if !ability.Older(who.Version, "6") { // ACL
		reply := p.ask(protocol.Cmd{"ACL", "WHOAMI"})[0]
		if who.User, err = redis.String(reply, nil); err != nil {
			who.User = "refused: " + text(reply)
		}
	}
	return who, p.err
}

func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(name, "#") {
			info[name] = strings.TrimSpace(value)
		}
	}
	return info
}
