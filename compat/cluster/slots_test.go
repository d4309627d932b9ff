package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

func node(host any, port int64, more ...any) []any { return append([]any{host, port}, more...) }

// What CLUSTER SLOTS answered, 3.0.0 to 7.0.
func TestParseSlots(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	for name, test := range map[string]struct {
		reply    any
		masters  string // by slot 0, 100 and 16383
		replicas []string
	}{
		"3.0.0": {[]any{
			[]any{int64(0), int64(99), node(b("10.0.0.1"), 1), node(b("10.0.0.2"), 2)},
			[]any{int64(100), int64(16383), node(b("10.0.0.3"), 3), node(b("10.0.0.2"), 2)},
		}, "10.0.0.1:1 10.0.0.3:3 10.0.0.3:3", []string{"10.0.0.2:2"}},
		"a name, and more about it (7.0)": {[]any{
			[]any{int64(0), int64(16383), node(b("host"), 1, b("id"), []any{b("ip"), b("10.0.0.1")})},
		}, "host:1 host:1 host:1", nil},
		"no host: the one that was asked": {[]any{
			[]any{int64(0), int64(16383), node(nil, 1, b("id")), node(b(""), 2, b("id"))},
		}, "asked:1 asked:1 asked:1", []string{"asked:2"}},
		"IPv6": {[]any{
			[]any{int64(0), int64(16383), node(b("::1"), 1)},
		}, "[::1]:1 [::1]:1 [::1]:1", nil},
		"some slots are nobody's": {[]any{
			[]any{int64(0), int64(99), node(b("10.0.0.1"), 1)},
			[]any{int64(100), int64(100), node(b("?"), 0)},
		}, "10.0.0.1:1  ", nil},
		"nothing known yet": {[]any{}, "  ", nil},
	} {
		m, err := parseSlots(test.reply, "asked:7000")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := m.owner(0) + " " + m.owner(100) + " " + m.owner(16383); got != test.masters || !slices.Equal(m.replicas, test.replicas) {
			t.Errorf("%s: masters %q, replicas %q", name, got, m.replicas)
		}
	}
	for name, reply := range map[string]any{
		"an error":           redis.Error("ERR This instance has cluster support disabled"),
		"no list":            int64(1),
		"a range of nobody":  []any{[]any{int64(0), int64(1)}},
		"too many slots":     []any{[]any{int64(0), int64(16384), node(b("h"), 1)}},
		"a negative slot":    []any{[]any{int64(-1), int64(5), node(b("h"), 1)}},
		"backwards":          []any{[]any{int64(9), int64(5), node(b("h"), 1)}},
		"a node of one word": []any{[]any{int64(0), int64(1), []any{b("h")}}},
		"no port":            []any{[]any{int64(0), int64(1), []any{b("h"), b("x")}}},
	} {
		if m, err := parseSlots(reply, "asked:7000"); err == nil {
			t.Errorf("%s: read as %v", name, m.masters)
		}
	}
}

// What CLUSTER NODES answered, 3.0.7 and 7.0.15.
func TestParseNodes(t *testing.T) {
	text := strings.Join([]string{
		"aa 127.0.0.1:30004 slave ee 0 1426238317239 4 connected",
		"bb 127.0.0.1:30002@31002,host2 master - 0 1426238316232 2 connected 5461-10922 16383",
		"cc :30001@31001 myself,master - 0 0 1 connected 0-5460 [5461->-bb]",
		"dd 127.0.0.1:30003@31003 master,fail - 1426238317741 0 3 disconnected 10923-16382",
		"ee :0 master,noaddr - 1426238317741 0 3 disconnected",
		"ff 127.0.0.1:30006@31006 handshake - 0 0 0 disconnected",
		"",
	}, "\n")
	m := must.Get(parseNodes([]byte(text), "asked:30001"))(t)
	for slot, want := range map[int]string{0: "asked:30001", 5460: "asked:30001", 5461: "127.0.0.1:30002", 16383: "127.0.0.1:30002", 12000: ""} {
		if got := m.owner(slot); got != want {
			t.Errorf("slot %d is %q's, want %q", slot, got, want)
		}
	}
	if want := []string{"127.0.0.1:30004", "127.0.0.1:30006"}; !slices.Equal(m.replicas, want) {
		t.Errorf("replicas %q, want %q", m.replicas, want)
	}
	for _, line := range []string{"words", "aa h:1 master - 0 0 1 connected x-5", "aa h:1 master - 0 0 1 connected 5-16384"} {
		if m, err := parseNodes([]byte(line+"\n"), "asked:1"); err == nil {
			t.Errorf("%q: read as %v", line, m.masters)
		}
	}
}

func TestReadRedirection(t *testing.T) {
	for text, want := range map[string]redirection{
		"MOVED 3999 127.0.0.1:6381": {false, 3999, "127.0.0.1:6381"},
		"ASK 0 host:1":              {true, 0, "host:1"},
		"MOVED 16383 ::1:6381":      {false, 16383, "[::1]:6381"},
		"MOVED 1 :6381":             {false, 1, "asked:6381"},
		"MOVED 16384 host:1":        {},
		"MOVED -1 host:1":           {},
		"MOVED x host:1":            {},
		"MOVED 1 host":              {},
		"MOVED 1 host:":             {},
		"MOVED 1 host:port":         {},
		"MOVED 1 ?:1":               {},
		"MOVED":                     {},
		"ERR MOVED 1":               {},
		"TRYAGAIN Multiple keys request during rehashing slot": {},
	} {
		got, ok := read(redis.Error(text), "asked:7000")
		if got != want || ok != (want.addr != "") {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	if _, ok := read([]byte("MOVED 3999 127.0.0.1:6381"), ""); ok {
		t.Error("a value is not a redirection")
	}
}

// A map that lacks a master of the last one has it replaced; one in which slots
// have only moved has not.
func TestMapReplaced(t *testing.T) {
	parse := func(owners ...string) *slotMap {
		m := new(slotMap)
		for i, addr := range owners {
			must.Do(t, m.give(i, i, addr))
		}
		return m
	}
	old := parse("a:1", "b:1", "a:1")
	for want, next := range map[bool]*slotMap{false: parse("b:1", "b:1", "a:1"), true: parse("c:1", "b:1", "c:1")} {
		if got := old.replaced(next); got != want {
			t.Errorf("%v after %v: %v", next.masters, old.masters, got)
		}
	}
}

func TestOfOneKey(t *testing.T) {
	for text, want := range map[string]bool{
		"SET k v":                     true,
		"SET k v|EXPIRE k 1|DEL k":    true,
		"SETNX k v|INCR k:fence:{k}":  false,
		"EVAL script 2 k l":           true, // by itself the server checks it
		"EVAL script 1 k|SET k v":     false,
		"eval s 1 k|eval s 1 l":       false,
		"FCALL f 1 k|SET k v":         false,
		"TIME|SET k v":                true,
		"RENAMENX k:tmp:{k} k|GET k ": false,
	} {
		u := unit{multi: true, cmds: []protocol.Cmd{{"MULTI"}}}
		for _, c := range strings.Split(text, "|") {
			var m protocol.Cmd
			for _, w := range strings.Fields(c) {
				m = append(m, w)
			}
			u.cmds = append(u.cmds, m)
		}
		u.cmds = append(u.cmds, protocol.Cmd{"EXEC"})
		if got := ofOneKey(u, nil); got != want {
			t.Errorf("%s: %v", text, got)
		}
		if got := ofOneKey(u, []any{[]byte("k")}); got != (want && !strings.HasPrefix(text, "EVAL")) {
			t.Errorf("%s, under WATCH k: %v", text, got)
		}
		if ofOneKey(u, []any{"other"}) {
			t.Errorf("%s, under WATCH other: of one key", text)
		}
	}
}
