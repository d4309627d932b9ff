package locks_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// made is what tests take as the lock of a row; nil: it is made of other rows.
func made(l locks.Lock, fence bool) protocol.Algorithm {
	switch {
	case l.Name == "bridge":
		return bridge.OneKey{Options: getsetlock.Options{Dialect: getsetlock.Float, Fence: fence}, Millis: true}
	case l.New == nil:
		return nil
	}
	return l.New(locks.Options{Fence: fence, Millis: true, ServerClock: fence, Lease: time.Minute})
}

// A user who may do what a lock's line says, and nothing else, can do with the lock whatever there
// is to do, through plain keys and a Prefix: nothing is refused, also not what the library would get
// over, and no command of the line is never sent.
func TestACL(t *testing.T) {
	r := restrict(t)
	for _, l := range locks.All() {
		switch {
		case made(l, false) == nil:
			if l.Commands() != nil {
				t.Errorf("%s has a line and is no lock of its own", l.Name)
			}
			continue
		case l.OneOf != nil: // see TestACLToday
			continue
		}
		clear(r.used)
		r.as(l, nil, func(source compat.Source) {
			if _, err := probe.Ask(t.Context(), source, probe.Options{Timeout: time.Minute, Prefix: "app:"}); err != nil {
				t.Errorf("%s: Probe: %v", l.Name, err)
			}
			r.begin() // it asks for what others need
			for _, fence := range []bool{false, true} {
				a := made(l, fence)
				if err := probe.Check(t.Context(), source, a, "app:k", probe.Options{Timeout: time.Minute}); err != nil {
					t.Errorf("%s: its check: %v", l.Name, err)
					continue
				}
				for _, prefix := range []string{"", "app:"} {
					o := compat.Options{Timeout: time.Minute, Prefix: prefix}
					everything(t, l, source, a, o, strings.TrimPrefix("app:k", prefix), r.do)
				}
			}
			r.do("ACL", "SETUSER", "locker", "+info") // what is pinned asks for the version
			everything(t, l, source, made(l, false), compat.Options{Timeout: time.Minute}, "app:k", r.do)
		})
		for _, c := range l.Commands() {
			if !r.used["+"+c] && !strings.HasPrefix(l.Name, "rw:") && c != "discard" && c != "eval" { // after an error; after a SCRIPT FLUSH
				t.Errorf("%s: the line grants %s, which is never sent; sent are %q", l.Name, c, slices.Sorted(maps.Keys(r.used)))
			}
		}
	}
}

// The same for a lock of the servers of today: they are embedded, and forbid what any lock sends and this one's line, as it
// is for that server, does not have, scripts among it.
func TestACLToday(t *testing.T) {
	for _, l := range locks.All() {
		if l.OneOf == nil {
			continue
		}
		for _, version := range []string{"8.6", "valkey-9.1"} {
			granted := strings.Fields(strings.ReplaceAll(l.ACL("app:"), "+", ""))
			if version == "valkey-9.1" {
				instead := strings.Fields(strings.ReplaceAll(l.OnValkey(), "+", ""))
				granted = append(slices.DeleteFunc(granted, func(c string) bool { return c == instead[len(instead)-1] }), instead[0])
			}
			forbidden, sent := []string{"delifeq", "delex"}, map[string]bool{}
			for _, other := range locks.All() {
				forbidden = append(forbidden, other.Commands()...)
			}
			forbidden = slices.DeleteFunc(forbidden, func(c string) bool { return slices.Contains(granted, c) })
			s := must.Get(oldredis.New(version, oldredis.Options{Forbid: forbidden}))(t)
			refused := ""
			s.SetTrace(func(_ int, cmd []string, reply any) {
				sent[strings.ToLower(cmd[0])] = true
				if e, ok := reply.(redis.Error); ok && !strings.Contains(string(e), "unknown command") {
					refused += fmt.Sprint(cmd, e, "; ")
				}
			})
			source := compat.Pooled(s.Pool())
			source.Listen = -1 // no release wakes anybody
			for _, fence := range []bool{false, true} {
				for _, prefix := range []string{"", "app:"} {
					everything(t, l, source, made(l, fence), compat.Options{Timeout: time.Minute, Prefix: prefix}, strings.TrimPrefix("app:k", prefix),
						func(...any) any { return nil })
				}
			}
			if refused != "" {
				t.Errorf("%s on %s: the line lacks something: %s", l.Name, version, refused)
			}
			for _, c := range granted[4:] {
				if !sent[c] && c != "discard" {
					t.Errorf("%s on %s: the line grants %s, which is never sent; sent are %q", l.Name, version, c, slices.Sorted(maps.Keys(sent)))
				}
			}
		}
	}
}

// A lock that is taken without one of its commands is extended and released without it: its check asks for what only
// those need, or the lock would stay to its end.
func TestWhatIsTakenIsReleased(t *testing.T) {
	for _, l := range locks.All() {
		version := "7.0"
		if l.OneOf != nil {
			version = "8.6"
		}
		for _, command := range l.Commands() {
			if l.Name == "getset:classic" { // it asks a server for nothing
				continue
			}
			for _, fence := range []bool{false, true} {
				s := must.Get(oldredis.New(version, oldredis.Options{Forbid: []string{command}}))(t)
				lock, err := compat.New(s.Pool(), made(l, fence), compat.Options{Timeout: time.Minute}).TryLock(t.Context(), "k", time.Minute)
				if err == nil {
					if err := lock.Extend(t.Context(), time.Minute); err != nil && !errors.Is(err, errors.ErrUnsupported) {
						t.Errorf("%s without %s, fence %v: Extend: %v", l.Name, command, fence, err)
					}
					if err := lock.Release(t.Context()); err != nil {
						t.Errorf("%s without %s, fence %v: Release: %v", l.Name, command, fence, err)
					}
				}
				s.Close()
			}
		}
	}
}

// everything does with a lock what can be done with it.
func everything(t *testing.T, l locks.Lock, source compat.Source, a protocol.Algorithm, o compat.Options, key string, do func(...any) any) {
	t.Helper()
	prefix := o.Prefix
	must := func(what string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s, prefix %q, %q: %s: %v", l.Name, prefix, key, what, err)
		}
	}
	key += protocol.NewToken() // a reader's turn may last
	k := compat.NewOn(source, a, o)
	defer k.Close(t.Context())            //nolint:errcheck // nothing is held
	if strings.HasPrefix(l.Name, "rw:") { // a word of a wrong clock, which is removed
		do("ZADD", protocol.Aux(prefix+key, "waiting"), time.Now().Add(time.Hour).UnixMilli(), "dead")
	}
	lock, err := k.TryLock(t.Context(), key, time.Minute)
	if err != nil {
		must("TryLock", err)
		return
	}
	_, err = k.TryLock(t.Context(), key, time.Minute)
	if !l.Shared && !errors.Is(err, compat.ErrHeld) {
		must("a second TryLock", fmt.Errorf("want ErrHeld: %w", err))
	}
	if other, ok := locks.Get(map[string]string{"rw:read": "rw:write", "rw:write": "rw:read"}[l.Name]); ok {
		o := compat.Options{Timeout: time.Minute, Prefix: prefix}
		_, err := compat.NewOn(source, made(other, a.Traits().Rotates), o).TryLock(t.Context(), key, time.Minute)
		if !errors.Is(err, compat.ErrHeld) {
			must("a TryLock of "+other.Name, fmt.Errorf("want ErrHeld: %w", err))
		}
	}
	must("Extend", lock.Extend(t.Context(), time.Minute))
	_, err = k.Inspect(t.Context(), key)
	must("Inspect", err)
	handle, err := lock.Detach(t.Context())
	must("Detach", err)
	if err == nil {
		lock, err = k.AdoptHandle(t.Context(), handle, 10*time.Second)
		must("Adopt", err)
	}
	if err == nil {
		must("Release", lock.Release(t.Context()))
	}
	if a.Traits().Repair != nil && !l.Shared {
		do("SET", prefix+key, "0123456789abcdef0123456789abcdef")
		b := compat.NewBackend(source, a)
		s, err := b.Inspect(t.Context(), time.Now, prefix+key)
		must("Inspect of a key without a TTL", err)
		if err := b.Repair(t.Context(), time.Now, s, time.Second); err != nil && !errors.Is(err, compat.ErrHeld) {
			must("Repair", err)
		}
		do("DEL", prefix+key)
	}
}

// What a lock writes beside its key begins with the key and lies in its slot.
func TestAuxiliaryKeysShareTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range locks.All() {
			for _, fence := range []bool{false, true} {
				a := made(l, fence)
				if a == nil || l.Name == "getset:two-keys" { // its names are the fleet's
					continue
				}
				lists := slices.Contains(l.Commands(), "sort") // not on a cluster: SORT has no GET there
				for _, key := range []string{"app:k", "{app}:k", "app:k{", "app:k}", "{}app:k"} {
					version := "7.0"
					if l.OneOf != nil {
						version = "8.6"
					}
					s := oldredis.MustNew(version, oldredis.Options{})
					s.SetTrace(func(_ int, cmd []string, _ any) {
						for i, word := range cmd[1:] {
							beside := strings.Contains(word, key) && !strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") || i == 0 && written[strings.ToUpper(cmd[0])]
							if beside && (!strings.HasPrefix(word, key) || slot.Of(word) != slot.Of(key) && !lists) {
								t.Errorf("%s on %q: %q", l.Name, key, cmd)
							}
						}
					})
					k := compat.New(s, a, compat.Options{})
					lock, err := k.TryLock(t.Context(), key, time.Minute)
					if err == nil {
						err = lock.Extend(t.Context(), time.Minute)
					}
					if errors.Is(err, errors.ErrUnsupported) {
						err = nil
					}
					if err == nil {
						err = lock.Release(t.Context())
					}
					if err != nil && !errors.Is(err, compat.ErrInvalid) {
						t.Errorf("%s on %q: %v", l.Name, key, err)
					}
					s.SetTrace(nil)
					s.Close()
				}
			}
		}
	})
}

// written are commands whose first argument is a key.
var written = map[string]bool{"GET": true, "SET": true, "SETNX": true, "SETEX": true, "PSETEX": true, "GETSET": true, "DEL": true, "EXPIRE": true, "PEXPIRE": true,
	"INCR": true, "RENAMENX": true, "RENAME": true, "ZADD": true, "ZREM": true, "RPUSH": true, "LPUSH": true, "LREM": true, "SORT": true, "RPOPLPUSH": true, "WATCH": true, "MSETNX": true, "EXISTS": true, "DELIFEQ": true, "DELEX": true}

// docs/servers.md has each lock's line.
func TestServersPage(t *testing.T) {
	const page = "../../docs/servers.md"
	b := must.Get(os.ReadFile(page))(t)
	const all = "resetkeys ~app:* resetchannels -@all"
	var lines []string // each once
	names := map[string][]string{}
	for _, l := range locks.All() {
		if l.Commands() == nil {
			continue
		}
		name := l.Name
		if other := l.OnValkey(); other != "" {
			name += " (on Valkey " + other + ")"
		}
		line := strings.TrimPrefix(l.ACL("app:"), all+" ")
		if names[line] == nil {
			lines = append(lines, line)
		}
		names[line] = append(names[line], name)
	}
	var list strings.Builder
	list.WriteString("\n```\nACL SETUSER locker on >PASSWORD " + all + " …\n\n")
	for _, line := range lines {
		fmt.Fprintf(&list, "%s: %s\n", strings.Join(names[line], ", "), line)
	}
	list.WriteString("```\n\n")
	const begin, end = "<!-- ACL lines: go test ./compat/locks -update -->\n", "<!-- end of ACL lines -->"
	before, rest, ok := strings.Cut(string(b), begin)
	says, after, ends := strings.Cut(rest, end)
	switch {
	case !ok || !ends:
		t.Errorf("%s has no ACL lines", page)
	case says != list.String() && !*update:
		t.Errorf("%s says\n%s\nwant\n%s", page, says, list.String())
	case says != list.String():
		must.Do(t, os.WriteFile(page, []byte(before+begin+list.String()+end+after), 0o644))
	}
}
