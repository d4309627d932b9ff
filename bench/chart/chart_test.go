package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/bench/chart"
)

func TestLines(t *testing.T) {
	svg, err := chart.Lines{Title: "rate < ideal", X: "goroutines", Y: "sections a second", LogX: true, FromY0: true, Series: []chart.Series{
		{Name: "ours & theirs", X: []float64{1, 64, 1000}, Y: []float64{900, 880, 870}, Main: true},
		{Name: "other", X: []float64{1, 64}, Y: []float64{900, 500}},
		{Name: "not measured", X: []float64{0}, Y: []float64{0}},
	}}.SVG()
	if err != nil {
		t.Fatal(err)
	}
	contains(t, svg, "rate", "goroutines", "sections a second", "ours", "other", ">64<", ">1000<", "prefers-color-scheme:dark", "var(--chart-ink)")
	if bytes.Contains(svg, []byte("not measured")) {
		t.Error("a line without a point is in the legend")
	}
	if _, err := (chart.Lines{LogX: true, LogY: true, Series: []chart.Series{{Name: "a", X: []float64{1, 100000}, Y: []float64{3, 2e8}}}}).SVG(); err != nil {
		t.Error(err)
	}
}

// contains requires well-formed XML that has our texts and none of gonum's colours.
func contains(t *testing.T, svg []byte, texts ...string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
	for _, text := range texts {
		if !strings.Contains(string(svg), text) {
			t.Errorf("no %q in %s", text, svg)
		}
	}
	for _, text := range []string{"#010203", "#040506", "#000000"} {
		if strings.Contains(string(svg), text) {
			t.Errorf("%s does not follow the theme", text)
		}
	}
}
