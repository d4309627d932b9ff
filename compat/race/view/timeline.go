package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/setnxlock/setnxlock/compat/race"
)

// TimelineOptions say how a timeline is printed. The zero value is the whole
// trace in 80 columns without colour.
type TimelineOptions struct {
	Step  int  // stop after this step and say what is pending; 0: all steps, and the argument
	Color bool // ANSI colours too. Everything they say is said without them
	Width int  // of the terminal, in columns; 0: 80
}

// Timeline writes the trace as text: a row for each step, a column for each client, the key last. The
// left edge of a client's column is what it believes:
//
//	#  time  C1                  C2                  lock.report
//	6    0s  DEL → 1                                 -
//	7    0s # SETNX t=10s → 1                        t=10s
//	8    0s #                    DEL → 1             -
//	9    0s #                  # SETNX t=10s → 1     t=10s
//	        ^^^ exclusion: C1 and C2 both hold the lock
//
// Below the steps stand the argument and the line that replays the run.
func Timeline(t race.Trace, o TimelineOptions) string {
	if o.Width <= 0 {
		o.Width = 80
	}
	p := &timeline{t: t, o: o, n: len(t.Events)}
	if o.Step > 0 && o.Step < p.n {
		p.n = o.Step
	}
	p.heading()
	p.table()
	if p.n < len(t.Events) {
		fmt.Fprintf(&p.b, "\nstep %d of %d\n", p.n, len(t.Events))
		return p.b.String()
	}
	p.argument()
	return p.b.String()
}

// A timeline is one being printed.
type timeline struct {
	t race.Trace
	o TimelineOptions
	n int // steps to show
	b strings.Builder
}

func (p *timeline) heading() {
	name := p.t.Scenario
	if name != "" && p.t.Title != "" {
		name += ": "
	}
	p.text("", name+p.t.Title, "1")
	if p.t.Objective != "" {
		p.text("", "Objective: "+p.t.Objective, "")
	}
	p.text("", Setting(p.t), "2")
	for _, c := range p.t.Clients {
		if s := Peculiar(c); s != "" {
			p.text("", s, "2")
		}
	}
	p.b.WriteByte('\n')
}

// Setting writes a run's lock, server and key in a line.
func Setting(t race.Trace) string {
	s := []string{t.Algorithm, ServerName(t.Server), "key " + t.Key}
	if t.TTL > 0 {
		s = append(s, "lease "+race.Seconds(t.TTL))
	}
	return strings.Join(s, " · ")
}

// ServerName names a server; a bare number means a version of Redis.
func ServerName(s string) string {
	if s != "" && unicode.IsDigit(rune(s[0])) {
		return "Redis " + s
	}
	return s
}

// Peculiar describes a client's own clock, lock and note; "" if it has none.
func Peculiar(c race.Client) string {
	var s []string
	if c.Runs != "" {
		s = append(s, "runs "+c.Runs)
	}
	if c.Note != "" {
		s = append(s, c.Note)
	}
	switch {
	case c.Skew > 0:
		s = append(s, "its clock is "+race.Seconds(c.Skew)+" fast")
	case c.Skew < 0:
		s = append(s, "its clock is "+race.Seconds(-c.Skew)+" slow")
	}
	if s == nil {
		return ""
	}
	return c.Name + ": " + strings.Join(s, ", ")
}

// A tableRow is one step before it is laid out. Its cells are the clients' and,
// last, the key's. Each is a list of paragraphs.
type tableRow struct {
	n, at  string
	marks  []string
	cells  [][]string
	bold   bool // the key changed
	broken *race.Violation
}

func (p *timeline) table() {
	rows := p.rows()
	nw, tw := 3, 5
	widths := make([]int, len(p.t.Clients)+1)
	for i, c := range p.t.Clients {
		widths[i] = width(Clean(c.Name))
	}
	widths[len(p.t.Clients)] = width(Clean(p.t.Key))
	for _, r := range rows {
		nw, tw = max(nw, width(r.n)), max(tw, width(r.at))
		for i, cell := range r.cells {
			for _, s := range cell {
				widths[i] = max(widths[i], width(s))
			}
		}
	}
	indent := nw + 1 + tw + 2
	// Two columns for a mark, two between columns.
	fit(widths, p.o.Width-indent-4*len(p.t.Clients))

	head := tableRow{n: "#", at: "time", marks: make([]string, len(p.t.Clients))}
	for _, c := range p.t.Clients {
		head.cells = append(head.cells, []string{Clean(c.Name)})
	}
	head.cells = append(head.cells, []string{Clean(p.t.Key)})
	for _, r := range slices.Insert(rows, 0, head) {
		p.row(r, nw, tw, widths)
		if r.broken != nil {
			p.text(strings.Repeat(" ", indent)+"^^^ ", r.broken.Invariant+": "+r.broken.Text, "1;31")
		}
	}
}

// rows makes the table's rows: the start if there is something to see, the steps, and the pending
// commands if there are more.
func (p *timeline) rows() []tableRow {
	var rows []tableRow
	marks := func(belief map[string]race.Belief) (m []string) {
		for _, c := range p.t.Clients {
			m = append(m, beliefMark(belief[c.Name].State))
		}
		return m
	}
	blank := func() [][]string { return make([][]string, len(p.t.Clients)+1) }
	before := p.t.Start
	if first := p.t.Events; before.Value != "" && (len(first) == 0 || first[0].Cmd != "" || KeyCell(first[0].Server) != KeyCell(before)) {
		r := tableRow{n: "0", at: "0s", marks: marks(nil), cells: blank()}
		r.cells[0] = []string{"— at the start"}
		r.cells[len(r.cells)-1] = []string{Clean(KeyCell(before))}
		rows = append(rows, r)
	}
	for _, e := range p.t.Events[:p.n] {
		r := tableRow{n: strconv.Itoa(e.N), at: race.Seconds(e.At), marks: marks(e.Belief), cells: blank(), broken: e.Violation}
		at, text := p.column(e.Who), Said(e)
		if at < 0 {
			at, text = 0, "— "+text
		}
		r.cells[at] = []string{Clean(text)}
		key := []string{Clean(KeyCell(e.Server))}
		for _, s := range changes(before, e.Server) {
			key = append(key, Clean(s))
		}
		r.cells[len(r.cells)-1] = key
		r.bold = KeyCell(before) != KeyCell(e.Server) || len(key) > 1
		rows, before = append(rows, r), e.Server
	}
	if p.n < len(p.t.Events) {
		r := tableRow{n: "next", marks: make([]string, len(p.t.Clients)), cells: blank()}
		for c, client := range p.t.Clients {
			if s := p.t.Events[p.n-1].Belief[client.Name].Next; s != "" {
				r.cells[c] = []string{Clean(s + " …")}
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func (p *timeline) column(client string) int {
	return slices.IndexFunc(p.t.Clients, func(c race.Client) bool { return c.Name == client })
}

func (p *timeline) row(r tableRow, nw, tw int, widths []int) {
	lines, high := make([][]string, len(r.cells)), 1
	for i, cell := range r.cells {
		for _, s := range cell {
			lines[i] = append(lines[i], wrap(s, widths[i])...)
		}
		high = max(high, len(lines[i]))
	}
	for l := range high {
		n, at := "", ""
		if l == 0 {
			n, at = r.n, r.at
		}
		var b strings.Builder
		b.WriteString(p.paint(padLeft(n, nw)+" "+padLeft(at, tw), "2") + "  ")
		for i := range lines {
			text := ""
			if l < len(lines[i]) {
				text = lines[i][l]
			}
			if i == len(r.marks) {
				if r.bold {
					text = p.paint(text, "1")
				}
				b.WriteString(text)
				break
			}
			// The mark is on every line of a step: the edge is a lifeline.
			b.WriteString(p.paint(pad(r.marks[i], 1), markColor[r.marks[i]]) + " " + pad(text, widths[i]) + "  ")
		}
		p.b.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
}

func (p *timeline) argument() {
	p.b.WriteByte('\n')
	if s := p.legend(); s != "" {
		p.text("", s, "2")
		p.b.WriteByte('\n')
	}
	a := p.t.Argument
	p.list("Let", a.Let)
	p.list("Then", a.Then)
	p.list("So", []string{a.So})
	p.list("Fix", []string{a.Fix})
	p.list("Ours", []string{p.t.Instead})
	if p.t.Verdict.Violated == "" && a.So == "" {
		p.list("holds", []string{fmt.Sprintf("no invariant is broken in these %d steps", len(p.t.Events))})
	}
	p.sources()
	if p.t.Schedule != "" {
		p.b.WriteString(pad("replay", labelWidth) + Clean(p.t.ReplayLine()) + "\n") // in one line: it is there to be copied
	}
}

// sources names them. An address is never broken, so that it can be followed.
func (p *timeline) sources() {
	label := "see"
	for _, s := range p.t.Sources {
		name, url := Clean(s.Name), Clean(s.URL)
		if labelWidth+width(name)+1+width(url) <= p.o.Width {
			fmt.Fprintln(&p.b, strings.TrimRight(pad(label, labelWidth)+name+" "+url, " "))
		} else {
			p.text(pad(label, labelWidth), s.Name, "")
			fmt.Fprintln(&p.b, strings.Repeat(" ", labelWidth)+url)
		}
		label = ""
	}
}

// legend explains the marks in use.
func (p *timeline) legend() string {
	var s []string
	for _, m := range []struct{ state, text string }{
		{race.Holds, "holds"}, {race.Paused, "paused"}, {race.Unknown, "unknown"}, {race.Acts, "acts"}, {race.RunOut, "run out"}, {race.Dead, "dead"},
	} {
		if slices.ContainsFunc(p.t.Events, func(e race.Event) bool {
			for _, b := range e.Belief {
				if b.State == m.state {
					return true
				}
			}
			return false
		}) {
			s = append(s, beliefMark(m.state)+" "+m.text)
		}
	}
	return strings.Join(s, "   ")
}

const labelWidth = 7

func (p *timeline) list(label string, items []string) {
	for _, s := range items {
		if s == "" {
			continue
		}
		p.text(pad(label, labelWidth), s, "")
		label = ""
	}
}

// text prints a paragraph under a label, as wide as the terminal.
func (p *timeline) text(label, s, color string) {
	if label+s == "" {
		return
	}
	for i, line := range wrap(Clean(s), max(20, p.o.Width-width(label))) {
		if i > 0 {
			label = strings.Repeat(" ", width(label))
		}
		p.b.WriteString(strings.TrimRight(p.paint(label+line, color), " ") + "\n")
	}
}

func (p *timeline) paint(s, color string) string {
	if !p.o.Color || color == "" || strings.TrimSpace(s) == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// The words of a step, which are the same in every form.

// beliefMark marks the left edge of a column: a client's belief in one letter.
func beliefMark(state string) string {
	switch state {
	case race.Holds:
		return "#"
	case race.RunOut:
		return "."
	case race.Paused:
		return ":"
	case race.Acts:
		return "!"
	case race.Unknown:
		return "?"
	case race.Dead:
		return "x"
	}
	return ""
}

var markColor = map[string]string{"#": "32", ".": "33", ":": "33", "!": "35", "?": "33", "x": "31"}

// Said writes a step's command and reply, or its event.
func Said(e race.Event) string {
	s := e.Cmd
	switch {
	case e.Cmd == "":
		return e.Note
	case e.Lost == "reply":
		s += " ⇢ reply lost"
	case e.Lost == "request":
		s += " ⇢ never arrived"
	case e.Lost == "late":
		s += " ⇢ on its way"
	case e.Reply != "":
		s += " → " + e.Reply
	}
	if e.Lost == "cut" {
		s += " ⇢ cut"
	}
	if e.Note != "" {
		s += " (" + e.Note + ")"
	}
	return s
}

// Believes writes a belief in words. since is when its state began.
func Believes(b race.Belief, since int64) string {
	s := b.State
	switch b.State {
	case race.Holds:
		s = until("holds", " until ", b)
	case race.RunOut:
		s = until("holds, but it ran out", " at ", b)
	case race.Paused:
		s = until("paused since "+race.Seconds(since), lease(b), b)
	case race.Acts:
		s = until("acts", lease(b), b)
	case race.Unknown:
		s += " since " + race.Seconds(since)
	case race.Lost:
		s = "lost, and it knows"
	}
	if b.Fence != 0 {
		s += ", fence " + strconv.FormatInt(b.Fence, 10)
	}
	return s
}

// lease writes the end of a lease if its client does not look at it.
func lease(b race.Belief) string {
	if over(b) {
		return ", its lease ended at "
	}
	return ", lease until "
}

// over reports whether a client's lease has ended by its own clock.
func over(b race.Belief) bool { return b.Until >= 0 && b.Now >= b.Until }

func until(s, word string, b race.Belief) string {
	if b.Until < 0 {
		return s
	}
	return s + word + race.Seconds(b.Until)
}

// KeyCell writes the key for a reader of the server.
func KeyCell(s race.Server) string {
	text := s.Value
	if text == "" {
		return "-"
	}
	if s.TTL >= 0 {
		text += " ttl " + race.Seconds(s.TTL)
	}
	if s.Dead {
		text += " (expired)"
	}
	return text
}

// changes lists the differences between two states of the server beside the key.
func changes(was, is race.Server) []string {
	var s []string
	if was.Fence != is.Fence {
		s = append(s, fmt.Sprintf("fence %d", is.Fence))
	}
	if !slices.Equal(was.Watched, is.Watched) {
		s = append(s, watched(is))
	}
	if is.Storage != nil && (was.Storage == nil || *was.Storage != *is.Storage) {
		s = append(s, "storage: "+storageWords(is.Storage))
	}
	for _, o := range is.Others {
		if !slices.Contains(was.Others, o) {
			s = append(s, o)
		}
	}
	for _, o := range was.Others {
		if name, _, _ := strings.Cut(o, " = "); !slices.ContainsFunc(is.Others, func(o string) bool { return strings.HasPrefix(o, name+" = ") }) {
			s = append(s, name+" gone")
		}
	}
	return s
}

func watched(s race.Server) string {
	if len(s.Watched) == 0 {
		return "not watched"
	}
	return "watched by " + strings.Join(s.Watched, ", ")
}

func storageWords(s *race.Storage) string {
	if s.Writer == "" {
		return "nothing written"
	}
	if s.Fence == 0 {
		return s.Writer
	}
	return fmt.Sprintf("%s, fence %d", s.Writer, s.Fence)
}

// Thousands writes a number for readers: 1,204,337.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Layout, by what a terminal shows and not by bytes.

// fit narrows the widest columns until all of them fit, but none below a readable command.
func fit(widths []int, room int) {
	const narrow = 8
	for {
		sum, widest := 0, 0
		for i, w := range widths {
			sum += w
			if w > widths[widest] {
				widest = i
			}
		}
		if sum <= room || widths[widest] <= narrow {
			return
		}
		widths[widest]--
	}
}

// wrap breaks s into lines of at most w columns: between words, but not after
// an arrow, and within a word only where it alone is too long.
func wrap(s string, w int) []string {
	const stick = "\u00a0"
	s = strings.NewReplacer("→ ", "→"+stick, "— ", "—"+stick,
		"⇢ reply lost", "⇢"+stick+"reply"+stick+"lost", "⇢ never arrived", "⇢"+stick+"never"+stick+"arrived").Replace(s)
	var lines []string
	line := ""
	for word := range strings.SplitSeq(s, " ") {
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= w:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
		for width(line) > w {
			head, tail := cutAt(line, w)
			if tail == "" {
				break
			}
			lines, line = append(lines, head), tail
		}
	}
	lines = append(lines, line)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], stick, " ")
	}
	return lines
}

// cutAt splits s after w columns, but never before the first rune.
func cutAt(s string, w int) (head, tail string) {
	sum := 0
	for i, r := range s {
		if sum += runeWidth(r); sum > w && i > 0 {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

func pad(s string, w int) string     { return s + strings.Repeat(" ", max(0, w-width(s))) }
func padLeft(s string, w int) string { return strings.Repeat(" ", max(0, w-width(s))) + s }

// Clean makes s harmless to print. Values come from a server that any program may
// write to: what would move the cursor or turn the line around is spelled out.
func Clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar || r == '\u2028' || r == '\u2029' {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func width(s string) int {
	w := 0
	for _, r := range s {
		w += runeWidth(r)
	}
	return w
}

// runeWidth returns 2 for wide runes of East Asian typography, 0 for combining ones.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f,
		r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f,
		r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f900 && r <= 0x1f9ff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
