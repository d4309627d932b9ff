package workbench_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
)

const monitored = `OK
1700000000.000000 [0 10.0.0.1:4711] "SETNX" "lock.report" "1700000010.0"
1700000001.000000 [0 10.0.0.2:4711] "SETNX" "lock.report" "1700000011.0"
1700000012.000000 [0 10.0.0.2:4711] "GET" "lock.report"
1700000012.000200 [0 10.0.0.2:4711] "GETSET" "lock.report" "1700000022.1"
1700000013.000000 [0 10.0.0.1:4711] "DEL" "lock.report"
1700000013.500000 [0 10.0.0.4:4711] "SET" "<b>other" "x" "NX" "PX" "1000"
1700000014.000000 [0 10.0.0.3:4711] "SETNX" "lock.report" "1700000024.0"
`

// A log of MONITOR's is pasted, or opened as a file: who held the lock, which lock each client follows, and where it broke.
func TestMonitor(t *testing.T) {
	text, err := json.Marshal(monitored)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, "")
	eval[bool](p, fmt.Sprintf(`(document.querySelector("#bring").open = true, document.querySelector("#lines").value = %s, document.querySelector("#readlog").click(), true)`, text))
	p.until(`document.querySelector("#logsays")`)
	if got := p.text("#logsays"); !strings.Contains(got, "Broken: ownership at step 5: C1 removed the lock of C2.") || !strings.Contains(got, "Broken: exclusion at step 6: C2 and C3 both hold the lock.") {
		t.Errorf("says %q", got)
	}
	if got := p.text("#log ul"); !strings.Contains(got, "C2 (10.0.0.2:4711) takes it with SETNX, takes it over with GETSET: as getset:classic.") {
		t.Errorf("follows %q", got)
	}
	if got := p.text("#log tr.broken:last-child"); !strings.Contains(got, "C2 and C3") {
		t.Errorf("the last step %q", got)
	}
	for _, width := range []int64{1280, 390} {
		p.run(chromedp.EmulateViewport(width, 844))
		for _, s := range []string{"light", "dark"} {
			p.run(chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s}}}))
			p.shoot(fmt.Sprint("monitor-", width, "-", s))
		}
	}
	if wide := eval[int](p, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("on 390 px the page is %d wide", wide)
	}
	axe(t, p, "a log of MONITOR's")
	// The other key, whose name is no markup; and a file.
	eval[bool](p, `(() => { const s = document.querySelector("#log select"); s.value = "<b>other"; s.dispatchEvent(new Event("change")); return true })()`)
	p.until(`document.querySelector("#logtitle").textContent === "What MONITOR saw of <b>other"`)
	if got := p.text("#logsays"); !strings.HasPrefix(got, "As far as the log tells, no two clients held it at once") {
		t.Errorf("says %q", got)
	}
	eval[bool](p, fmt.Sprintf(`(() => { const d = new DataTransfer(); d.items.add(new File([%s], "monitor.log")); const f = document.querySelector("#file"); f.files = d.files; f.dispatchEvent(new Event("change")); return true })()`, text))
	p.until(`document.querySelector("#logtitle").textContent === "What MONITOR saw of lock.report"`)
	eval[bool](p, `document.querySelector("#log li button").click() || true`)
	p.until(`document.querySelector("#setting").textContent.startsWith("getset:classic")`)
	eval[bool](p, `(document.querySelector("#lines").value = "not a log", document.querySelector("#readlog").click(), true)`)
	p.until(`document.querySelector("#said").textContent === 'Not possible: line 1 is none of MONITOR\'s: "not a log".'`)
}
