package workbench_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/workbench"
)

// What the page puts together is the module, byte for byte.
func TestUnpack(t *testing.T) {
	module, _, err := workbench.Module(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, "")
	got := await[string](p, `(async () => {
		await new Promise(loaded => { const s = element('script', undefined, {src: '`+workbench.Engine+`'}); s.onload = loaded; document.head.append(s) })
		const gzip = await fetch('data:application/gzip;base64,' + self.SETNXLOCK_WASM)
		const apart = await new Response(gzip.body.pipeThrough(new DecompressionStream('gzip'))).arrayBuffer()
		const began = performance.now(), module = unpack(new Uint8Array(apart))
		self.took = performance.now() - began
		return [...new Uint8Array(await crypto.subtle.digest('SHA-256', module))].map(b => b.toString(16).padStart(2, '0')).join('')
	})()`)
	sum := sha256.Sum256(module)
	if want := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("it unpacks %s, packed was %s", got, want)
	}
	t.Logf("unpacked in %.0f ms, ready %.0f ms after the page was asked for", eval[float64](p, "self.took"), eval[float64](p, "performance.getEntriesByName('ready')[0].startTime"))
}

// The engine leaves out much of the modules that it is made of. What it answers is what this program, which has
// all of them, answers: on every race of the catalogue, step by step, with the picture and the code.
func TestSameAnswers(t *testing.T) {
	var schedules []string
	for _, s := range catalogue.All() {
		tr, err := s.Trace()
		if err != nil {
			t.Fatal(err)
		}
		schedules = append(schedules, tr.Schedule)
	}
	list, err := json.Marshal(schedules)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, "")
	answers := await[[]string](p, `(async () => {
		const all = []
		for (const schedule of `+string(list)+`) all.push(await explorer.ask({do: 'at', schedule}).then(a => JSON.stringify({answer: a}), e => JSON.stringify({error: e.message})))
		return all
	})()`)
	if len(answers) != len(schedules) || len(answers) < 50 {
		t.Fatalf("%d answers, %d races", len(answers), len(schedules))
	}
	for i, schedule := range schedules {
		question, err := json.Marshal(workbench.Question{Do: "at", Schedule: schedule})
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal([]byte(answers[i]), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(workbench.Answer(context.Background(), question, nil), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the page answers otherwise:\n%.600s", schedule, answers[i])
		}
	}
}

// await is eval of a promise.
func await[T any](p *tab, js string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}
