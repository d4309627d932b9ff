package race

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

// savedTraces reads the traces that package view draws in its tests.
func savedTraces(t *testing.T) map[string]Trace {
	t.Helper()
	files, err := filepath.Glob("view/testdata/render/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	all := map[string]Trace{}
	for _, name := range files {
		b := must.Get(os.ReadFile(name))(t)
		tr, err := ReadTrace(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = tr
	}
	return all
}

// A trace that is read and written says what it said before.
func TestJSONRoundTrip(t *testing.T) {
	for name, tr := range savedTraces(t) {
		var first, second bytes.Buffer
		must.Do(t, tr.WriteJSON(&first))
		again, err := ReadTrace(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		must.Do(t, again.WriteJSON(&second))
		if first.String() != second.String() {
			t.Errorf("%s changes when it is read and written", name)
		}
		if !reflect.DeepEqual(tr, again) {
			t.Errorf("%s is another when it has been read and written", name)
		}
	}
}

// The traces of testdata have no member that a trace has not: the doc comment
// of WriteJSON is the whole format.
func TestJSONMembers(t *testing.T) {
	files, _ := filepath.Glob("view/testdata/render/*.json")
	for _, name := range files {
		b := must.Get(os.ReadFile(name))(t)
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(new(Trace)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadTraceRefuses(t *testing.T) {
	good := must.Get(os.ReadFile("view/testdata/render/release-after-expiry.json"))(t)
	for _, c := range []struct{ old, new, want string }{
		{`setnxlock-trace/1`, `setnxlock-trace/2`, `format "setnxlock-trace/2"`},
		{`{"n": 2,`, `{"n": 3,`, "event 2 is numbered 3"},
		{`"at_ms": 11000, "who": "C1", "cmd": "DEL", "reply": "1", "why": "C1 is done and releases. The`, `"at_ms": 1, "who": "C1", "cmd": "DEL", "reply": "1", "why": "C1 is done and releases. The`, "time goes back"},
		{`"who": "time", "note": "time +11s"`, `"who": "time"`, "neither a cmd nor a note"},
		{`"cmd": "DEL"`, `"cmd": "DEL", "lost": "hope"`, `lost "hope"`},
		{`"state": "holds"`, `"state": "hopes"`, `C1 is "hopes"`},
		{`"step": 5`, `"step": 4`, "exclusion is not broken by event 4"},
		{`{"name": "C2",`, `{"name": "C1",`, "no unique name"},
	} {
		bad := strings.Replace(string(good), c.old, c.new, 1)
		if bad == string(good) {
			t.Errorf("testdata has no %s", c.old)
			continue
		}
		if _, err := ReadTrace(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.new, err, c.want)
		}
	}
	for _, bad := range []string{"", "{", "[]", "null", string(good) + "{}"} {
		if _, err := ReadTrace(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q was read", bad)
		}
	}
}
