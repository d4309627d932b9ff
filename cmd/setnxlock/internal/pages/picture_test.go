package pages

import (
	"encoding/xml"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/traces"
)

var rect = regexp.MustCompile(`<rect class="([^"]+)" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"`)

// ends is how far to the right the bars of a class are drawn, and from where.
func ends(t *testing.T, svg, class string) (from, to float64) {
	t.Helper()
	from = 1e9
	for _, m := range rect.FindAllStringSubmatch(svg, -1) {
		if m[1] == class {
			x, _ := strconv.ParseFloat(m[2], 64)
			w, _ := strconv.ParseFloat(m[3], 64)
			from, to = min(from, x), max(to, x+w)
		}
	}
	if to == 0 {
		t.Errorf("no bar %q", class)
	}
	return from, to
}

// A holder that is stopped is drawn to hold to the end of its lease, and not past it.
func TestPictureOfAPausedHolder(t *testing.T) {
	trace := traces.Saved(t, renders)["paused-holder"]
	svg := Picture(trace)
	_, paused := ends(t, svg, "bar paused c0")
	ends(t, svg, "bar out c0") // and that it believes in it still is seen, too
	p := &drawing{t: trace}
	p.scale()
	for n, e := range trace.Events {
		if b := e.Belief["C1"]; b.State == race.Paused && b.Until > e.At {
			if want := p.x[n+1] + float64(b.Until-e.At)*p.perMs; paused > want+0.2 {
				t.Errorf("drawn to %.1f, and its lease ends at %.1f", paused, want)
			}
		}
	}
	for _, e := range trace.Events {
		if b := e.Belief["C1"]; b.Until >= 0 && b.Now >= b.Until && b.State == race.Paused && paused > p.x[e.N] {
			t.Errorf("drawn to %.1f, and at step %d, %.1f, the lease is over", paused, e.N, p.x[e.N])
		}
	}
	if !strings.Contains(svg, `class="end"`) {
		t.Error("no end of a lease is drawn")
	}
}

// Every picture is a well-formed document, in which nothing of the trace is markup.
func TestPictures(t *testing.T) {
	all := slices.Collect(maps.Values(traces.Saved(t, renders)))
	hostile := all[0]
	hostile.Server, hostile.Events = `</svg><script>`, append([]race.Event(nil), hostile.Events...)
	hostile.Events[0].Cmd, hostile.Events[0].Server.Value = `SET "<b>&`, `<i>"&`
	for _, trace := range append(all, hostile, race.Trace{Clients: []race.Client{{Name: "C1"}}}) {
		svg := Picture(trace)
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			tok, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", trace.Title, err)
			}
			if e, ok := tok.(xml.StartElement); ok && strings.Contains("script b i", e.Name.Local) {
				t.Errorf("%s: an element %s", trace.Title, e.Name.Local)
			}
		}
	}
}

// A write that arrives after its connection was given up is in the network's lane, from when it was
// sent to when it arrives.
func TestPictureOfALateWrite(t *testing.T) {
	trace := must.Get(race.ReplaySchedule("getset:classic 2.4 2x2 : C1.delay C2 C2 C2 C1.arrive C2", nil))(t)
	p := &drawing{t: trace}
	p.scale()
	svg := Picture(trace)
	if from, to := ends(t, svg, "bar unknown c0"); from-p.x[1] > .1 || to < p.x[5]-.1 || to > p.x[5]+.1 {
		t.Errorf("drawn from %.1f to %.1f, want %.1f to %.1f", from, to, p.x[1], p.x[5])
	}
	if !strings.Contains(svg, ">network</text>") {
		t.Error("no lane of the network")
	}
}

// What breaks is named beside the values of the key, not over them.
func TestNamesOfBreaksAreReadable(t *testing.T) {
	label := regexp.MustCompile(`<text class="small( red)?" x="([0-9.]+)" y="([0-9.]+)">([^<]*)<`)
	breaks := 0
	all := traces.Saved(t, renders)
	classic := must.Get(race.ReplaySchedule("getset:classic 2.4 2x3 check=exclusion : C1 C1 +10s +1ms C2 C2 C2 C1 C1", nil))(t)
	all["values in two lines"] = classic
	for name, trace := range all {
		type text struct {
			red        bool
			x, y, wide float64
			says       string
		}
		var all []text
		for _, m := range label.FindAllStringSubmatch(Picture(trace), -1) {
			x, _ := strconv.ParseFloat(m[2], 64)
			y, _ := strconv.ParseFloat(m[3], 64)
			all = append(all, text{m[1] != "", x, y, 6.4 * float64(len([]rune(m[4]))), m[4]})
		}
		for i, a := range all {
			if !a.red {
				continue
			}
			breaks++
			for j, b := range all {
				if i != j && a.x < b.x+b.wide && b.x < a.x+a.wide && a.y < b.y+9 && b.y < a.y+9 {
					t.Errorf("%s: %q at %.0f, %.0f lies over %q at %.0f, %.0f", name, a.says, a.x, a.y, b.says, b.x, b.y)
				}
			}
		}
	}
	if breaks == 0 {
		t.Error("nothing breaks")
	}
}
