package pages

import (
	"bytes"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/traces"
)

// What the page needs stays small: the trace should be the most of it.
func TestHTMLSize(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, HTML(&b, race.Trace{Clients: []race.Client{{Name: "C1"}}}))
	if b.Len() > 40<<10 {
		t.Errorf("an empty page has %d bytes", b.Len())
	}
}

// Nothing of a trace is ever markup, in the page or in its data.
func TestHTMLEscapes(t *testing.T) {
	const evil = `</script></noscript><img src=x onerror=alert(1)><!--`
	tr := traces.Saved(t, renders)["double-takeover"]
	tr.Title, tr.Objective, tr.Instead, tr.Schedule = evil, evil, evil, evil
	tr.Sources = []race.Source{{Name: evil, URL: "javascript:alert(1)"}}
	tr.Argument.Let = []string{evil}
	tr.Events[0].Note, tr.Events[0].Why, tr.Events[0].Server.Value = evil, evil, evil
	var b bytes.Buffer
	must.Do(t, HTML(&b, tr))
	if s := b.String(); strings.Contains(s, "<img") || strings.Contains(s, `href="javascript`) {
		t.Error("markup of a trace's is in the page")
	}
}

// The data in a page is the trace, whole.
func TestHTMLData(t *testing.T) {
	for name, tr := range traces.Saved(t, renders) {
		var page, want bytes.Buffer
		must.Do(t, HTML(&page, tr))
		_, rest, _ := strings.Cut(page.String(), `<script type="application/json" id="trace">`)
		data, _, _ := strings.Cut(rest, "</script>")
		got, err := race.ReadTrace(strings.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var again bytes.Buffer
		must.Do(t, got.WriteJSON(&again))
		must.Do(t, tr.WriteJSON(&want))
		if again.String() != want.String() {
			t.Errorf("%s: the page holds another trace", name)
		}
	}
}
