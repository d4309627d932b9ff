// Package pages writes what package race found for a browser: a trace as a picture and as a page to step through,
// many of them as a web site, and the guarantees, which it writes as Markdown, too.
//
// It only reads: everything that a picture needs is in the trace.
package pages

import (
	"cmp"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// Picture draws the trace in the manner of the papers, in SVG: a lane for each client, for each server
// and for the storage, time to the right. Between two steps time is to scale; a step takes none, and
// the same room as every other. A bar in a client's lane is its lease, drawn to its end by the
// client's own clock; a bar in a server's is what is on the key, to the end of its TTL, in the colour
// of who wrote it.
//
// Each part bears the step after which it is there (data-n), so that a page can reveal it.
func Picture(t race.Trace) string {
	p := &drawing{t: t, steps: map[int64]float64{}}
	p.scale()
	p.lanes()
	p.axis()
	for _, l := range p.lane {
		l.draw()
	}
	p.messages()
	return p.svg()
}

const (
	laneHigh = 46.0
	barHigh  = 13.0
	laneTop  = 34.0
	leftEdge = 92.0
	stepWide = 27.0
	timeWide = 360.0 // for all the time that passes
	letter   = 6.4   // of small text
	tailWide = 120.0 // behind the last step, at the least: leases that end in three of it are drawn to their ends
)

type drawing struct {
	t     race.Trace
	x     []float64 // of the state before step 1, and of each step
	perMs float64
	wide  float64
	lane  []*lane
	who   map[string]*lane
	steps map[int64]float64 // moments that the axis names
	b     strings.Builder
	words strings.Builder // drawn last, over every line
}

// A lane is a client's, a server's or the storage's.
type lane struct {
	name string
	y    float64
	draw func()
}

// scale places the steps.
func (p *drawing) scale() {
	n := len(p.t.Events)
	if n > 0 && p.t.Events[n-1].At > p.t.TTL/2 {
		p.perMs = timeWide / float64(p.t.Events[n-1].At)
	} else if p.t.TTL > 0 { // little of it, or none: the leases show how little
		p.perMs = timeWide / 2 / float64(p.t.TTL)
	}
	p.x = []float64{leftEdge}
	at := int64(0)
	for _, e := range p.t.Events {
		p.x = append(p.x, p.x[len(p.x)-1]+stepWide+float64(e.At-at)*p.perMs)
		at = e.At
	}
	p.wide = p.x[n] + p.tail()
	for _, e := range p.t.Events {
		if e.Who == "redis" { // what a server does by itself is named there
			p.wide = max(p.wide, p.x[e.N]+letter*float64(4+utf8.RuneCountInString(view.Clean(e.Note))))
		}
	}
}

// tail measures the room behind the last step, for the ends of its leases.
func (p *drawing) tail() float64 {
	n := len(p.t.Events)
	if n == 0 {
		return tailWide
	}
	e, need := p.t.Events[n-1], tailWide
	ends := func(ms int64) {
		if w := float64(ms)*p.perMs + 60; w < 3*tailWide {
			need = max(need, w)
		}
	}
	for _, b := range e.Belief {
		if b.State == race.Holds || b.State == race.Acts || b.State == race.Paused {
			ends(b.Until - b.Now)
		}
	}
	for i := range max(1, len(e.Server.Each)) {
		ends(p.of(n, i).TTL)
	}
	return need
}

// at returns the time of step n; 0 before the first.
func (p *drawing) at(n int) int64 {
	if n == 0 {
		return 0
	}
	return p.t.Events[n-1].At
}

// span returns the start and the end of the state after step n, at a given moment at the latest; past
// the last step up to the edge. whole: it does not end before.
func (p *drawing) span(n int, until int64) (from, to float64, whole bool) {
	from, to, whole = p.x[n], p.wide-8, true
	if n+1 < len(p.x) {
		to = p.x[n+1]
	}
	if until < 0 {
		return from, to, true
	}
	end := from + float64(max(0, until-p.at(n)))*p.perMs
	if end < to-0.01 && (n+1 >= len(p.x) || until <= p.at(n+1)) {
		return from, end, false
	}
	return from, to, whole
}

func (p *drawing) add(n int, format string, args ...any) {
	fmt.Fprintf(&p.b, `<g data-n="%d">`+format+"</g>\n", append([]any{n}, args...)...)
}

// write adds text, at a place in the middle of other things.
func (p *drawing) write(n int, class string, x, y float64, text string) {
	fmt.Fprintf(&p.words, `<g class="words" data-n="%d"><text class="%s" x="%.1f" y="%.1f">%s</text></g>`+"\n", n, class, x, y, html.EscapeString(text))
}

func (p *drawing) lanes() {
	p.who = map[string]*lane{}
	y := laneTop
	add := func(name string) *lane {
		l := &lane{name: name, y: y}
		p.lane = append(p.lane, l)
		y += laneHigh
		return l
	}
	for i, c := range p.t.Clients {
		l := add(c.Name)
		p.who[c.Name] = l
		l.draw = func() { p.client(l, c, i) }
	}
	for _, e := range p.t.Events {
		if e.Lost == "late" {
			l := add("network")
			p.who["network"] = l
			l.draw = func() { p.network(l) }
			break
		}
	}
	servers := max(1, len(p.t.Start.Each))
	for i := range servers {
		name := view.ServerName(p.t.Server)
		if servers > 1 {
			name = fmt.Sprintf("S%d", i+1)
		}
		l := add(name)
		p.who[fmt.Sprintf("S%d", i+1)] = l
		if i == 0 {
			p.who["redis"] = l
		}
		l.draw = func() { p.server(l, i) }
	}
	for _, e := range p.t.Events {
		if e.Server.Storage != nil {
			l := add("storage")
			p.who["storage"] = l
			l.draw = func() { p.storage(l) }
			break
		}
	}
}

// color names the class of a client's colour.
func (p *drawing) color(who string) string {
	for i, c := range p.t.Clients {
		if c.Name == who {
			return fmt.Sprintf("c%d", i%4)
		}
	}
	return "cx"
}

func (p *drawing) bar(n int, y, from, to float64, class, says string) {
	if to-from < 0.5 {
		return
	}
	p.add(n, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f"><title>%s</title></rect>`, class, from, y-barHigh/2, to-from, barHigh, html.EscapeString(view.Clean(says)))
}

// end marks where a lease ends.
func (p *drawing) end(n int, x, y float64, at int64) {
	p.add(n, `<path class="end" d="M%.1f %.1fv%.0f"/>`, x, y-barHigh/2-3, barHigh+6)
	text := race.Seconds(at)
	p.write(n, "small", min(x+2, p.wide-letter*float64(len(text))), y-barHigh/2-4, text)
}

func (p *drawing) client(l *lane, c race.Client, _ int) {
	color := p.color(c.Name)
	ended := int64(-1)
	for n, e := range p.t.Events {
		b := e.Belief[c.Name]
		says := fmt.Sprintf("after step %d %s: %s", e.N, c.Name, view.Believes(b, e.At))
		until := int64(-1)
		if b.Until >= 0 {
			until = b.Until - (b.Now - e.At) // by the server's clock
		}
		class := map[string]string{race.Holds: "bar", race.Acts: "bar", race.Paused: "bar paused", race.Unknown: "bar unknown", race.RunOut: "bar out"}[b.State]
		switch {
		case b.State == race.Dead:
			if n == 0 || p.t.Events[n-1].Belief[c.Name].State != race.Dead {
				p.write(e.N, "sign "+color, p.x[e.N]-4, l.y+4, "✕")
			}
			continue
		case class == "":
			continue
		case until < 0: // nothing that it could hold
			from, to, _ := p.span(e.N, -1)
			p.bar(e.N, l.y, from, to, class+" out "+color, says)
			continue
		}
		if goesOn := p.after(n, c.Name); goesOn.State == b.State && goesOn.Until == b.Until && goesOn.Until > goesOn.Now {
			until = max(until, p.t.Events[n+1].At+1) // its clock has not gone as far, though the server's was set
		}
		from, to, whole := p.span(e.N, until)
		if until > e.At {
			p.bar(e.N, l.y, from, to, class+" "+color, says)
		} else {
			to = from
		}
		if !whole && ended != until {
			p.end(e.N, max(from, to), l.y, b.Until)
			ended = until
		}
		if _, over, _ := p.span(e.N, -1); !whole && e.N+1 < len(p.x) {
			p.bar(e.N, l.y, max(from, to), over, "bar out "+color, says+"; its lease is over")
		}
		if b.State == race.Acts {
			sign := "on"
			if until <= e.At {
				sign = color
			}
			p.write(e.N, "sign "+sign, p.x[e.N]+3, l.y+4, "!")
		}
	}
}

// after returns a client's belief after the step behind step n.
func (p *drawing) after(n int, client string) race.Belief {
	if n+1 >= len(p.t.Events) {
		return race.Belief{}
	}
	return p.t.Events[n+1].Belief[client]
}

// of returns a server's content after a step.
func (p *drawing) of(n, i int) race.Server {
	s := p.t.Start
	if n > 0 {
		s = p.t.Events[n-1].Server
	}
	if s.Each != nil {
		return s.Each[i]
	}
	return s
}

func (p *drawing) server(l *lane, i int) {
	shown, edge, low := "", 0.0, false // edge: where the last label ends
	for n := range p.x {
		s := p.of(n, i)
		if n > 0 {
			p.event(l, p.t.Events[n-1], i)
		}
		if s.Value == "" || s.Value == "gone" {
			shown = ""
			continue
		}
		until := int64(-1)
		if s.TTL >= 0 {
			until = p.at(n) + s.TTL
		}
		if n+1 < len(p.x) && until >= 0 { // whole seconds are rounded down: what is there at the next step has not ended before it
			if next := p.of(n+1, i); next.Value == s.Value && next.TTL >= 0 && !next.Dead {
				until = max(until, p.at(n+1)+1)
			}
		}
		from, to, whole := p.span(n, until)
		class := "bar key"
		if s.Dead {
			class, whole = "bar out", true
			_, to, _ = p.span(n, -1)
		}
		p.bar(n, l.y, from, to, class+" "+p.color(s.Writer), fmt.Sprintf("after step %d: %s, written by %s", n, view.KeyCell(s), cmp.Or(s.Writer, "nobody")))
		if !whole {
			p.end(n, to, l.y, until)
		}
		if text := view.Clean(s.Value); text != shown {
			y := l.y + barHigh/2 + 11
			if low = from < edge && !low; low { // not over the one before it
				y += 11
			}
			p.write(n, "small", from+2, y, text)
			shown, edge = text, from+8+letter*float64(utf8.RuneCountInString(text))
		}
	}
}

// event draws an act of a server: a restart stands in its own lane.
func (p *drawing) event(l *lane, e race.Event, i int) {
	if e.Who != "redis" {
		return
	}
	if of := p.t.Start.Each; of != nil && !strings.HasPrefix(e.Note, fmt.Sprintf("S%d ", i+1)) {
		return
	}
	p.add(e.N, `<path class="event" d="M%.1f %.1fv%.0f"/>`, p.x[e.N], l.y-barHigh, 2*barHigh)
	p.write(e.N, "small event", p.x[e.N]+3, l.y-barHigh/2-4, "↯ "+view.Clean(e.Note))
}

// network draws writes under way after their connection was given up.
func (p *drawing) network(l *lane) {
	for n, e := range p.t.Events {
		if e.Lost != "late" {
			continue
		}
		to := p.wide - 8
		for _, later := range p.t.Events[n+1:] {
			if later.Who == e.Who && later.Note == "arrives late" || later.Who == "redis" && (strings.HasPrefix(later.Note, "restarts") || later.Note == "a replica takes over") {
				to = p.x[later.N]
				break
			}
		}
		p.bar(e.N, l.y, p.x[e.N], to, "bar unknown "+p.color(e.Who), "on its way since step "+fmt.Sprint(e.N)+": "+e.Cmd)
	}
}

func (p *drawing) storage(l *lane) {
	was := race.Storage{}
	for _, e := range p.t.Events {
		acts, ok := p.who[e.Who]
		if e.Server.Storage == nil || !ok || e.Belief[e.Who].State != race.Acts {
			continue
		}
		taken := *e.Server.Storage != was || !strings.HasSuffix(e.Note, ": refused")
		was = *e.Server.Storage
		sign := "●"
		if !taken {
			sign = "✗"
		}
		p.add(e.N, `<path class="msg" d="M%.1f %.1fV%.1f"/>`, p.x[e.N], acts.y+barHigh/2, l.y)
		p.write(e.N, "sign "+p.color(e.Who), p.x[e.N]-4, l.y+4, sign)
	}
}

// messages draws the lines from a client to a server: a lost one breaks off.
func (p *drawing) messages() {
	for _, e := range p.t.Events {
		from, ok := p.who[e.Who]
		if !ok || e.Cmd == "" || e.Who == "redis" {
			continue
		}
		to := p.who["redis"]
		if p.t.Start.Each != nil {
			if l, ok := p.who[strings.SplitN(e.Cmd, " ", 2)[0]]; ok {
				to = l
			}
		}
		x, y1, y2 := p.x[e.N], from.y+barHigh/2, to.y-barHigh/2
		if net := p.who["network"]; net != nil && e.Note == "arrives late" {
			y1 = net.y + barHigh/2
		}
		says := html.EscapeString(view.Clean(fmt.Sprintf("%d. %s: %s", e.N, e.Who, view.Said(e))))
		switch e.Lost {
		case "":
			p.add(e.N, `<path class="msg" d="M%.1f %.1fV%.1fm-3 -5l3 5l3 -5"><title>%s</title></path>`, x, y1, y2, says)
		case "late":
			p.add(e.N, `<path class="msg" d="M%.1f %.1fV%.1f"><title>%s</title></path>`, x, y1, p.who["network"].y-barHigh/2, says)
		case "request", "cut":
			half := y1 + (y2-y1)*.5
			p.add(e.N, `<path class="msg lost" d="M%.1f %.1fV%.1f"><title>%s</title></path>`, x, y1, half, says)
			p.write(e.N, "sign red", x-4, half+4, "✗")
		default: // it ran, and its answer is lost on the way back
			half := y1 + (y2-y1)*.3
			p.add(e.N, `<path class="msg" d="M%.1f %.1fV%.1fm-3 -5l3 5l3 -5"><title>%s</title></path><path class="msg lost" d="M%.1f %.1fV%.1f"/>`,
				x-2, y1, y2, says, x+3, y2, half)
			p.write(e.N, "sign red", x-1, half+2, "✗")
		}
	}
}

// bottom computes the axis's height. What breaks is named above it, in two lines of its own: below the
// last lane stand the values of its key.
func (p *drawing) bottom() float64 {
	y := laneTop + laneHigh*float64(len(p.lane)) - 6
	for _, e := range p.t.Events {
		if e.Violation != nil {
			return y + 20
		}
	}
	return y
}

// axis names the moments, numbers the steps, and marks where an invariant breaks.
func (p *drawing) axis() {
	bottom := p.bottom()
	last, label, up := -100.0, -100.0, 10.0
	for n := range p.x {
		if n > 0 {
			e := p.t.Events[n-1]
			p.write(n, "no", p.x[n], 14, fmt.Sprint(n))
			if v := e.Violation; v != nil {
				if up = 32 - up; p.x[n]-label > 90 { // beside another's words it stands above them
					up = 10
				}
				label = p.x[n]
				p.add(n, `<path class="broken" d="M%.1f 18V%.1f"/>`, p.x[n], bottom-8)
				p.write(n, "small red", p.x[n]+4, bottom-up, "✗ "+v.Invariant)
			}
		}
		if n > 0 && p.at(n) == p.at(n-1) || p.x[n]-last < 34 {
			continue
		}
		last = p.x[n]
		p.add(n, `<path class="tick" d="M%.1f %.1fv5"/>`, p.x[n], bottom)
		p.write(n, "no", p.x[n], bottom+17, race.Seconds(p.at(n)))
	}
	for _, l := range p.lane {
		fmt.Fprintf(&p.b, `<text class="name" x="0" y="%.1f">%s</text><path class="lane" d="M%.1f %.1fH%.1f"/>`+"\n", l.y+4, html.EscapeString(view.Clean(l.name)), leftEdge-10, l.y, p.wide)
	}
	fmt.Fprintf(&p.b, `<path class="lane" d="M%.1f %.1fH%.1f"/>`+"\n", leftEdge-10, bottom, p.wide)
}

func (p *drawing) svg() string {
	high := p.bottom() + 22
	return fmt.Sprintf(`<svg class="picture" xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0v6" class="hatch"/></pattern></defs>
%s</svg>`, p.wide, high, p.wide, high, html.EscapeString("A lane for each client and server, time to the right; the steps below say the same in words"), p.b.String()+p.words.String())
}
