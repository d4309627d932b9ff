package interop

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A monitor records the commands that a server runs, in order.
type monitor struct {
	conn  redis.Conn
	addr  string
	lines chan []string
}

const enough = "interop:enough" // a read of this key ends the record

func watch(t testing.TB, addr string) *monitor {
	t.Helper()
	conn := must.Get(redis.Dial("tcp", addr))(t)
	must.Get(conn.Do("MONITOR"))(t)
	m := &monitor{conn: conn, addr: addr, lines: make(chan []string, 1)}
	t.Cleanup(func() { conn.Close() })
	go func() {
		var all []string
		for {
			line, err := redis.String(conn.Receive())
			if err != nil || strings.Contains(line, enough) {
				m.lines <- all
				return
			}
			all = append(all, line)
		}
	}()
	return m
}

// stop returns the record.
func (m *monitor) stop(t testing.TB) []string {
	t.Helper()
	conn := must.Get(redis.Dial("tcp", m.addr))(t)
	defer conn.Close()
	must.Get(conn.Do("EXISTS", enough))(t)
	select {
	case lines := <-m.lines:
		return lines
	case <-time.After(stepLimit):
		t.Fatal("MONITOR does not end")
		return nil
	}
}

// A verdict is what judge found.
type verdict struct {
	theirs, ours int // sections that ended
	alternations int
	overlaps     int // a client entered while another was inside
	blind        int // a SET that overwrote a held lock
}

var (
	from  = regexp.MustCompile(`^\S+ \[\d+ (\S+)\]`)
	words = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
)

// judge checks the recorded commands: their order is the history's time. Two clients in the critical section at once are
// an overlap. A plain SET of theirs on a held lock must explain it, directly or by its aftermath: each of the two
// holders deletes the key, and the second DEL removes the lock of a client that took it in between.
// The aftermath is over when every client has entered twice.
func judge(t testing.TB, lines []string, key string) (v verdict) {
	t.Helper()
	var (
		events  []history.Event
		inside  = map[string]string{} // the section of each client that is
		foreign = map[string]bool{}   // their connections
		since   = map[string]int{}    // how often each has entered since the last such SET
		owner   string                // the connection that took the key; "": the key is missing
		broken  = -1                  // since when it is broken; -1: it is not
		last    string
	)
	forgot := func(until int) {
		events = append(events, history.Event{Op: history.Forgot, Key: key, At: int64(broken), Until: int64(until)})
	}
	overrun := func(i int) {
		if broken < 0 {
			broken = i
		}
		for who := range since {
			since[who] = 0
		}
	}
	for i, line := range lines {
		at := from.FindStringSubmatch(line)
		var args []string
		for _, w := range words.FindAllStringSubmatch(line, -1) {
			args = append(args, w[1])
		}
		if at == nil || len(args) < 2 || args[1] != key && args[1] != "interop:log" {
			continue
		}
		switch conn, name := at[1], strings.ToUpper(args[0]); name {
		case "SETNX":
			if owner == "" {
				owner = conn
			}
		case "SET":
			switch asks := len(args) > 3; { // NX
			case owner == "":
				owner = conn
			case !asks:
				v.blind++
				overrun(i)
				owner = conn
			}
		case "DEL":
			if owner != "" && owner != conn && (foreign[conn] || foreign[owner]) {
				overrun(i)
			}
			owner = ""
		case "RPUSH":
			what, who, _ := strings.Cut(args[2], " ")
			side, _, _ := strings.Cut(who, "-")
			foreign[conn] = side == "theirs"
			e := history.Event{Op: history.Got, ID: fmt.Sprint(who, "#", i), Key: key, At: int64(i), Asked: int64(i)}
			e.Until = int64(len(lines)) // at least
			if what == "leave" {
				e.Op, e.ID = history.Ends, inside[who]
				events = append(events, e)
				delete(inside, who)
				if side == "ours" {
					v.ours++
				} else {
					v.theirs++
				}
				if side != last && last != "" {
					v.alternations++
				}
				last = side
				continue
			}
			events = append(events, e)
			inside[who] = e.ID
			since[who]++
			if broken >= 0 && !slices.ContainsFunc(slices.Collect(maps.Values(since)), func(n int) bool { return n < 2 }) {
				forgot(i)
				broken = -1
			}
		}
	}
	if broken >= 0 {
		forgot(len(lines))
	}
	entered := ""
	for _, f := range new(history.Judge).Judged(events) {
		if f.Who != entered { // two may be inside
			v.overlaps, entered = v.overlaps+1, f.Who
		}
		if !f.Excused {
			t.Errorf("%v, and no lock was overwritten:\n%s", f, strings.Join(lines[max(0, f.At-60):f.At+1], "\n"))
		}
	}
	if len(inside) > 0 {
		t.Errorf("%v never left", inside)
	}
	return v
}
