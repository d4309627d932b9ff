package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/internal/must"
)

const picture = root + "/docs/demo.svg"

// docs/demo.svg is a run of setnxlock demo on a terminal, as it came, line by line; -update records
// it anew. What differs each time, spans and what was lost, may differ.
func TestPictureIsWhatTheDemoShows(t *testing.T) {
	t.Parallel()
	shown := recordDemo(t)
	if *update {
		must.Do(t, os.WriteFile(picture, []byte(drawn(shown)), 0o644))
		return
	}
	b := must.Get(os.ReadFile(picture))(t)
	var says []string
	for _, m := range regexp.MustCompile(`(?m)^<text class="l"[^>]*>(.*)</text>$`).FindAllStringSubmatch(string(b), -1) {
		text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[1], "")
		says = append(says, html.UnescapeString(text))
	}
	var now []string
	for _, l := range shown {
		if text := escape.ReplaceAllString(l.text, ""); text != "" {
			now = append(now, text)
		}
	}
	numbers := regexp.MustCompile(`\d+(\.\d+)?|\s+`)
	mask := func(lines []string) string { return numbers.ReplaceAllString(strings.Join(lines, "\n"), " ") }
	if len(says) < 20 || mask(says) != mask(now) {
		t.Errorf("the picture shows\n%s\nthe demo\n%s\ngo test ./cmd/setnxlock -run Picture -update", strings.Join(says, "\n"), strings.Join(now, "\n"))
	}
}

// A shownLine is a line of a terminal, with its colours, when it stood there.
type shownLine struct {
	text string
	at   time.Duration
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// recordDemo runs the demo on a terminal. A line is what stands in it when it ends: progress bars
// have been wiped away by then.
func recordDemo(t *testing.T) (lines []shownLine) {
	t.Helper()
	cmd, master := startOnTerminal(t, 100, nil, "demo")
	defer master.Close()
	began := time.Now()
	var line strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		for _, c := range buf[:n] {
			if c != '\n' {
				line.WriteByte(c)
				continue
			}
			text := strings.TrimRight(line.String(), "\r")
			text = text[strings.LastIndexByte(text, '\r')+1:]
			lines = append(lines, shownLine{strings.ReplaceAll(text, "\x1b[K", ""), time.Since(began)})
			line.Reset()
		}
		if err != nil {
			if err != io.EOF && !strings.Contains(err.Error(), "input/output error") { // how a terminal ends
				t.Fatal(err)
			}
			break
		}
	}
	must.Do(t, cmd.Wait())
	return lines
}

// drawn is the run as a picture: each line appears when it did, for whom motion is welcome.
func drawn(lines []shownLine) string {
	const height, left, top = 17, 16, 44
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="800" height="%d" viewBox="0 0 800 %[1]d" role="img" aria-label="A terminal that shows a run of setnxlock demo">
<title>setnxlock demo</title>
<style>
text { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d8dee4; white-space: pre }
.g { fill: #6fdd8b } .r { fill: #ff8e86 } .b { font-weight: bold }
@media (prefers-reduced-motion: no-preference) { text.l { opacity: 0; animation: on .01s forwards } }
@keyframes on { to { opacity: 1 } }
</style>
<rect width="800" height="%[1]d" rx="8" fill="#1b1f24"/>
<circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/><circle cx="56" cy="18" r="5" fill="#28c840"/>
<text x="400" y="22" text-anchor="middle">$ setnxlock demo</text>
`, top+height*len(lines)+8)
	b2 := strings.NewReplacer("\x1b[1m", `<tspan class="b">`, "\x1b[31m", `<tspan class="r">`, "\x1b[32m", `<tspan class="g">`, "\x1b[0m", "</tspan>")
	for i, l := range lines {
		if l.text == "" {
			continue
		}
		fmt.Fprintf(&b, "<text class=\"l\" x=\"%d\" y=\"%d\" style=\"animation-delay:%.2fs\" xml:space=\"preserve\">%s</text>\n", left, top+height*i+12, l.at.Seconds(), b2.Replace(html.EscapeString(l.text)))
	}
	b.WriteString("</svg>\n")
	return strings.Replace(b.String(), "<text x=\"400\"", "<text x=\"400\" fill-opacity=\".7\"", 1)
}
