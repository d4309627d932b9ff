package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
)

// Mermaid writes the trace as a Mermaid sequence diagram, for documents with a renderer. A client's
// bar is active while its lease lasts, whether it runs or is paused; past its end there is none,
// whatever the client thinks. There is no column for beliefs and no axis of time: the timeline belongs
// into the same document. Steps have the timeline's numbers.
func Mermaid(t race.Trace) string {
	m := &mermaid{t: t, id: map[string]string{}, active: map[string]bool{}}
	m.line("sequenceDiagram")
	m.participants()
	before := t.Start
	for _, e := range t.Events {
		if e.Violation != nil {
			m.line("    rect rgba(214,40,40,.25)")
		}
		m.step(e, before)
		m.bars(e)
		if v := e.Violation; v != nil {
			m.over("✗ " + v.Invariant + ": " + v.Text)
			m.line("    end")
		}
		before = e.Server
	}
	for _, c := range t.Clients { // a bar that does not end is not drawn
		if m.active[c.Name] {
			m.line("    deactivate %s", m.id[c.Name])
		}
	}
	return m.b.String()
}

type mermaid struct {
	t      race.Trace
	b      strings.Builder
	id     map[string]string // of clients
	redis  string
	disk   string // of the storage; "" where a trace has none
	active map[string]bool
}

func (m *mermaid) line(format string, args ...any) {
	fmt.Fprintf(&m.b, format+"\n", args...)
}

func (m *mermaid) participants() {
	for i, c := range m.t.Clients {
		id := c.Name
		if !plain(id) {
			id = fmt.Sprintf("P%d", i+1)
		}
		m.id[c.Name] = id
		m.participant(id, c.Name)
	}
	m.redis = "R"
	m.participant(m.redis, ServerName(m.t.Server)+" "+m.t.Key)
	if slices.ContainsFunc(m.t.Events, func(e race.Event) bool { return e.Server.Storage != nil }) {
		m.disk = "S"
		m.participant(m.disk, "storage")
	}
}

func (m *mermaid) participant(id, name string) {
	if id == name {
		m.line("    participant %s", id)
		return
	}
	m.line("    participant %s as %s", id, escape(name))
}

// plain reports whether a client's name can stand for itself: C1, C2, …. Any
// other might be a word of Mermaid's, or the name of the server.
func plain(name string) bool {
	digits, ok := strings.CutPrefix(name, "C")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func (m *mermaid) step(e race.Event, before race.Server) {
	who, ok := m.id[e.Who]
	n := fmt.Sprintf("%d · ", e.N)
	why := ""
	if e.Why != "" {
		why = " (" + strings.TrimRight(e.Why, ".") + ")"
	}
	switch {
	case !ok:
		m.over(n + "t=" + race.Seconds(e.At) + " " + Said(e) + why)
	case e.Cmd == "" && m.writes(e, before):
		m.line("    %s->>%s: %s", who, m.disk, escape(n+e.Note+why))
	case e.Cmd == "" && e.Belief[e.Who].State == race.Acts && m.disk != "":
		m.line("    %s-x%s: %s", who, m.disk, escape(n+e.Note+why))
	case e.Cmd == "":
		m.line("    Note over %s: %s", who, escape(n+e.Note+why))
	case e.Lost == "request" || e.Lost == "late":
		m.line("    %s-x%s: %s", who, m.redis, escape(n+Said(e)+why))
	default:
		m.line("    %s->>%s: %s", who, m.redis, escape(n+e.Cmd))
		m.reply(who, e, why)
		if e.Note != "" {
			m.line("    Note over %s: %s", who, escape(e.Note))
		}
	}
}

func (m *mermaid) reply(who string, e race.Event, why string) {
	reply := e.Reply
	if reply == "" {
		reply = "-"
	}
	switch e.Lost {
	case "reply":
		if e.Reply != "" {
			reply += ", "
		} else {
			reply = ""
		}
		m.line("    %s--x%s: %s", m.redis, who, escape(reply+"reply lost"+why))
	case "cut":
		m.line("    %s--x%s: %s", m.redis, who, escape("cut"+why))
	default:
		m.line("    %s-->>%s: %s", m.redis, who, escape(reply+why))
	}
}

// writes reports whether e changed the lock's storage.
func (m *mermaid) writes(e race.Event, before race.Server) bool {
	is := e.Server.Storage
	return is != nil && (before.Storage == nil || *before.Storage != *is)
}

// bars starts and ends the bars of clients with a new belief.
func (m *mermaid) bars(e race.Event) {
	for _, c := range m.t.Clients {
		b := e.Belief[c.Name]
		holds := (b.State == race.Holds || b.State == race.Acts || b.State == race.Paused) && b.Until >= 0 && !over(b)
		if holds == m.active[c.Name] {
			continue
		}
		m.active[c.Name] = holds
		verb := "deactivate"
		if holds {
			verb = "activate"
		}
		m.line("    %s %s", verb, m.id[c.Name])
	}
}

// over writes a note over the clients and the server.
func (m *mermaid) over(s string) {
	m.line("    Note over %s,%s: %s", m.id[m.t.Clients[0].Name], m.redis, escape(s))
}

// escape makes s a text of Mermaid's: it writes the end of a statement, the begin of a comment, a
// directive or a formula, and HTML, by number. It is broken into lines, because Mermaid sets clients
// as far apart as the longest line between them is long.
func escape(s string) string {
	lines := wrap(Clean(strings.TrimSpace(s)), mermaidWidth)
	for i := range lines {
		lines[i] = byNumber(lines[i])
	}
	return strings.Join(lines, "<br/>")
}

const mermaidWidth = 48

func byNumber(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(";#<>&%$\"\\{}", r) {
			fmt.Fprintf(&b, "#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
