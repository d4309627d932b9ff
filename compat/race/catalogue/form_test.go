package catalogue

import (
	"context"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

const setnxPage = Form + "SETNX,KEY,TIME;1=mine;GET,KEY;later=held;nil=held;GETSET,KEY,TIME;past=mine;nil=mine;else=held;release;DEL,KEY"

// A lock that is written out runs as the same lock in Go does: the published one is broken, one with a
// transaction is not.
func TestForm(t *testing.T) {
	for _, test := range []struct{ name, breaks string }{
		{setnxPage, "exclusion"},
		{Form + "SETNX,KEY,TOKEN;1=mine;else=held;release;DEL,KEY", ""}, // it lasts until it is released: progress is its trouble
		{Form + "SETNX,KEY,TOKEN;0=held;EXPIRE,KEY,TTL;1=mine;release;GET,KEY;own=next;else=lost;DEL,KEY", "exclusion"},
		{Form + "SETNX,KEY,TOKEN;0=held;EXPIRE,KEY,TTL;1=mine;release;WATCH,KEY;GET,KEY;own=next;else=lost;MULTI;DEL,KEY;EXEC;nil=lost", ""},
	} {
		locks := must.Get(With(nil, test.name))(t)
		r := must.Get(race.Explore(context.Background(), race.Config{Algorithm: test.name, Locks: locks, Server: "2.8", Clients: 2, Attempts: 3, Ticks: 2, Invariants: []string{"exclusion"}}))(t)
		got := ""
		if r.Trace != nil {
			got = r.Trace.Verdict.Violated
			again, err := race.ReplaySchedule(r.Trace.Schedule, locks)
			if err != nil || again.Verdict != r.Trace.Verdict {
				t.Errorf("%s: replayed %+v, %v", r.Trace.Schedule, again.Verdict, err)
			}
		}
		if got != test.breaks {
			t.Errorf("%s breaks %q, want %q", test.name, got, test.breaks)
		}
	}
	// The steps are those of the clients that have it in code.
	locks := must.Get(With(Locks(), setnxPage+"+other/naive-del"))(t)
	tr := must.Get(race.ReplaySchedule(setnxPage+`+other/naive-del 2.4 2x1 given="SET {key} t=-2s" : C1 C1 C1 C2`, locks))(t)
	var sent []string
	for _, e := range tr.Events {
		sent = append(sent, e.Cmd+" → "+e.Reply)
	}
	if got := strings.Join(sent, ", "); !strings.HasPrefix(got, "SETNX t=10s → 0, GET → t=-2s, GETSET t=10s → t=-2s, SETNX") {
		t.Error(got)
	}
}

func TestFormIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "begins with the command that takes it",
		"1=mine":                            "no command stands above it",
		"SETNX,KEY,TIME;1=yes":              `line 2 of the lock, "1=yes": want a reply, = and one of mine, held, lost, done, next`,
		"GET,KEY;release;GET,KEY;past=done": "a release is told no time",
		"SETNX,key,token":                   `line 1 of the lock, "SETNX key token": write KEY, TOKEN, TIME, TTL and TTLMS in capitals: "key" would be sent as it is`,
		"SET,KEY,TOKEN,NX,PX,ttlms":         `"ttlms" would be sent as it is`,
		"SETNX,lock,TOKEN":                  "write KEY for it, in capitals",
		"SETNX,KEY,TOKEN;Release;DEL,KEY":   `"release", in small letters`,
		"KEY,TOKEN":                         "a line begins with a command",
		"SETNX,KEY,TOKEN;release;COMPARE-AND-DELETE,KEY": "want COMPARE-AND-DELETE KEY TOKEN",
		"SETNX,KEY,TOKEN;0=held":                         "nobody would ever hold it",
		`EVAL,"return,1,1,KEY,TOKEN`:                     "a quote does not end",
	} {
		if _, err := With(Locks(), Form+text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Every template runs on its server, breaks as it says or not, and its schedule replays; a release that compares is no
// other lock's end.
func TestTemplates(t *testing.T) {
	breaks := map[string]string{
		"SETNX and EXPIRE": "exclusion", "GETSET": "exclusion", "SET NX PX and DEL": "exclusion", "SET NX PX, compare and DEL": "exclusion",
	}
	for _, x := range Templates() {
		locks := must.Get(With(nil, x.Lock))(t)
		c := race.Config{Algorithm: x.Lock, Locks: locks, Server: x.Server, Clients: 2, Attempts: 3, Ticks: 2, Invariants: []string{"exclusion"}}
		r := must.Get(race.Explore(context.Background(), c))(t)
		got := ""
		if r.Trace != nil {
			got = r.Trace.Verdict.Violated
			if again := must.Get(race.ReplaySchedule(r.Trace.Schedule, locks))(t); again.Verdict != r.Trace.Verdict {
				t.Errorf("%s: replayed %+v", x.Name, again.Verdict)
			}
		}
		if got != breaks[x.Name] {
			t.Errorf("%s breaks %q, want %q", x.Name, got, breaks[x.Name])
		}
		tr := must.Get(race.ReplaySchedule(x.Lock+" "+x.Server+" 2x1 : C1* C2*", locks))(t)
		last := tr.Events[len(tr.Events)-1]
		if last.Server.Value != "" || last.Belief["C2"].State != race.Idle || strings.Contains(last.Reply, "ERR") {
			t.Errorf("%s, one after the other: %+v", x.Name, last)
		}
	}
}

// A script of one's own stands in quotes, with whatever is in it.
func TestFormScript(t *testing.T) {
	name := FormName(`SET KEY TOKEN NX PX TTLMS
OK = mine
release
EVAL "local v = redis.call('get', KEYS[1]); if v == ARGV[1] then return redis.call('del', KEYS[1]) + 6 % 4 end return 0" 1 KEY TOKEN
0 = lost`)
	if strings.ContainsAny(name, " \t+") {
		t.Errorf("%s is no name", name)
	}
	locks := must.Get(With(nil, name))(t)
	tr := must.Get(race.ReplaySchedule(name+" 7.0 2x1 : C1 C1 C2", locks))(t)
	if e := tr.Events[1]; e.Reply != "3" || tr.Events[2].Reply != "OK" {
		t.Errorf("%+v", e)
	}
}

func FuzzForm(f *testing.F) {
	f.Add(strings.TrimPrefix(setnxPage, Form))
	f.Add("SET,KEY,TOKEN;OK=mine;;=;release;release")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseForm(text)
		if err == nil && len(p.take) == 0 {
			t.Error("nothing takes it")
		}
	})
}
