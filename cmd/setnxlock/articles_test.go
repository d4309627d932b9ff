//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/internal/must"
)

var update = flag.Bool("update", false, "write what was measured into the pages")

const algorithmsPage = "../../docs/algorithms.md"

// Each wire block of the page is what the lock of that name sends to that server, in all steps or in those
// that the block names. -update writes the blocks.
func TestAlgorithmsOnTheWire(t *testing.T) {
	b := must.Get(os.ReadFile(algorithmsPage))(t)
	page := string(b)
	blocks := regexp.MustCompile("(?s)```wire (\\S+) on ([^\\s:]+)([^\n]*)\n(.*?)```\n").FindAllStringSubmatch(page, -1)
	if len(blocks) < 11 {
		t.Fatalf("%d locks on the page", len(blocks))
	}
	for _, m := range blocks {
		block, name, server, steps, says := m[0], m[1], m[2], m[3], m[4]
		sends := wire(t, name, server, strings.Fields(strings.TrimPrefix(steps, ":")))
		if says == sends {
			continue
		}
		if *update {
			page = strings.Replace(page, block, fmt.Sprintf("```wire %s on %s%s\n%s```\n", name, server, steps, sends), 1)
			continue
		}
		t.Errorf("%s sends on %s\n%s\nthe page says\n%s", name, server, sends, says)
	}
	if *update {
		must.Do(t, os.WriteFile(algorithmsPage, []byte(page), 0o644))
	}
}

// wire is what a variant sends in these steps, and what it is answered; in all if there are none.
func wire(t *testing.T, name, server string, steps []string) string {
	s := oldredis.Run(t, server)
	c := protocol.NewConn(s.Dial())
	a, rival := fit(t, c, name), fit(t, c, strings.Replace(name, "rw:read", "rw:write", 1))
	const ttl = 30 * time.Second
	cycle := func(c *protocol.Conn, key string) (ask, refused, extended, released string) {
		step := func(f func() error) string {
			got := s.Record()
			if err := f(); err != nil && !errors.Is(err, protocol.ErrHeld) {
				t.Fatalf("%s on %s: %v", name, server, err)
			}
			return got.String()
		}
		var l protocol.Lease
		ask = step(func() (err error) { l, err = a.Acquire(c, s.Now(), key, ttl); return err })
		refused = step(func() error { _, err := rival.Acquire(c, s.Now(), key, ttl); return err })
		extended = step(func() error {
			next, ch, err := a.Extend(s.Now(), l, ttl, false)
			if err == nil {
				_, err = c.Run(ch)
			}
			l = next
			if errors.Is(err, errors.ErrUnsupported) {
				return nil
			}
			return err
		})
		released = step(func() error { _, err := c.Run(a.Release(l)); return err })
		return ask, refused, extended, released
	}
	cycle(c, "rehearsal") // the server knows the scripts from now on
	ask, refused, extended, released := cycle(c, "key")
	var b strings.Builder
	for _, s := range [][2]string{{"acquire", ask}, {"refused", refused}, {"extend", extended}, {"release", released}} {
		if len(steps) == 0 || slices.Contains(steps, s[0]) {
			b.WriteString(inColumn(s[0], s[1]))
		}
	}
	return b.String()
}

// fit is the published lock of that name, or the first of a variant's that the server is fit for.
func fit(t *testing.T, c *protocol.Conn, name string) protocol.Algorithm {
	for _, l := range broken.Published() {
		if l.Name == name {
			return l.New(protocol.NewToken, false)
		}
	}
	list := must.Get(candidates(name, getsetlock.Float, false, ""))(t)
	for _, a := range list {
		if check := a.Traits().Check; check == nil || check(c, "k") == nil {
			return a.Algorithm
		}
	}
	t.Fatalf("no %s is safe here", name)
	return nil
}

var masks = []struct {
	is   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "SHA1"},
	{regexp.MustCompile(`\b([rw]:)?[0-9a-f]{32}\b`), "TOKEN"},
	{regexp.MustCompile(`\b[0-9]{10}\.[0-9]+\b`), "T"},
	{regexp.MustCompile(`\b[0-9]{10,13}\b`), "T"},
}

// bare finds the commands whose reply says nothing.
var bare = regexp.MustCompile(`^(.*) → QUEUED$|^((?:UN)?WATCH.*|MULTI) → OK$`)

// inColumn is a step and what it sends, without what is different each time. A transaction begins a
// line; a command that is answered as every such command is has no reply.
func inColumn(step, transcript string) string {
	var b strings.Builder
	indent, between := fmt.Sprintf("%-9s ", step), ""
	for line := range strings.Lines(transcript) {
		line = strings.TrimSuffix(line, "\n")
		for _, m := range masks {
			line = m.is.ReplaceAllString(line, m.with)
		}
		line = bare.ReplaceAllString(line, "$1$2")
		if line == "MULTI" && between != "" {
			indent, between = fmt.Sprintf("\n%-9s ", ""), ""
		}
		if between == "" {
			b.WriteString(indent)
		}
		b.WriteString(between + line)
		between = "; "
	}
	if between != "" {
		b.WriteString("\n")
	}
	return b.String()
}

// Every race that a page names is in the catalogue.
func TestAlgorithmsNameRaces(t *testing.T) {
	b := must.Get(os.ReadFile(algorithmsPage))(t)
	known := map[string]bool{}
	for _, r := range catalogue.All() {
		known[r.Name] = true
	}
	for _, l := range broken.Published() { // a semaphore's name looks like a race's
		known[l.Name] = true
	}
	named := regexp.MustCompile("`((?:any|getset|tx|old|compat|set|rw|semaphore|redlock|cluster)/[a-z0-9-]+)`").FindAllStringSubmatch(string(b), -1)
	if len(named) < 15 {
		t.Errorf("%d races named", len(named))
	}
	for _, m := range named {
		if !known[m[1]] {
			t.Errorf("the page names %s, which is not in the catalogue", m[1])
		}
	}
}
