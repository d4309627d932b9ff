package bars_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/workload/bars"
)

func TestSVG(t *testing.T) {
	for _, c := range []bars.Chart{
		{Title: `latency <&">`, X: "as a multiple of two PINGs", Mark: 1, Bars: []bars.Bar{{"set:lua", 1.15, true}, {"a & b", 1.5, false}}},
		{Title: "nothing", X: "locks/s"},
		{Title: "no numbers", Bars: []bars.Bar{{"nan", math.NaN(), true}, {"inf", math.Inf(1), true}, {"zero", 0, true}}},
		{Title: "large", Bars: []bars.Bar{{"many", 3.2e7, true}}},
		{Title: "small", Bars: []bars.Bar{{"few", 3e-7, true}}},
	} {
		svg := c.SVG()
		marks := 0
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in %s", c.Title, err, svg)
			}
			if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "line" {
				marks++
			}
		}
		if marks < 4 || marks > 10 {
			t.Errorf("%s: %d lines", c.Title, marks)
		}
		for _, text := range []string{"NaN", "Inf", "%!"} {
			if bytes.Contains(svg, []byte(text)) {
				t.Errorf("%s: %s in %s", c.Title, text, svg)
			}
		}
	}
	svg := string(bars.Chart{Title: "latency", X: "pings", Bars: []bars.Bar{{"set:lua", 1.15, true}, {"redsync", 150.4, false}}}.SVG())
	for _, text := range []string{">latency<", ">pings<", ">set:lua<", ">1.15<", ">150<", "prefers-color-scheme:dark", "var(--chart-ink)"} {
		if !strings.Contains(svg, text) {
			t.Errorf("no %q in %s", text, svg)
		}
	}
}
