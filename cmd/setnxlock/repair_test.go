package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is dead is healed; what lives, what only looks dead, and what nobody can
// know of stays as it is.
func TestRepair(t *testing.T) {
	for _, version := range []string{"2.2", "2.4", "7.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			address := startOld(t, version)
			now := time.Now()
			token := "94213c24deadbeef94213c24deadbeef"
			keep := map[string]string{
				"alive": fmt.Sprint(now.Unix() + 600), "flag": "1", "text": "hello", "foreign": "12:34:56",
				"lock:owner:alive": "host:1", "lock:expire:alive": fmt.Sprint(now.Unix() + 600),
			}
			dead := map[string]string{
				"dead": fmt.Sprint(now.Unix() - 60), "dead-ms": fmt.Sprint(now.Add(-time.Minute).UnixMilli()),
				"lock:owner:dead": "host:1", "lock:expire:dead": fmt.Sprint(now.Unix() - 60),
			}
			for k, v := range keep {
				ask(t, address, "SET", k, v)
			}
			for k, v := range dead {
				ask(t, address, "SET", k, v)
			}
			ask(t, address, "SET", "persistent", token)
			ask(t, address, "SET", "renewed", fmt.Sprint(now.Unix()-1))

			out, status := command(t, address, "repair", "--dry-run", "--lease", "1s")
			if status != 0 || strings.Count(out, "would be removed") != 4 || strings.Count(out, "would be given a TTL") != 1 {
				t.Errorf("--dry-run: %d, %s", status, out)
			}
			for k, v := range dead {
				if got := fmt.Sprintf("%s", ask(t, address, "GET", k)); got != v {
					t.Errorf("--dry-run changed %s to %s", k, got)
				}
			}

			s := play(t, address, "repair", "--lease", "2s")
			until(t, "it watches", func() bool { return strings.Contains(s.errs.String(), "watching them") })
			renewed := fmt.Sprint(time.Now().Unix() + 600)
			ask(t, address, "SET", "renewed", renewed) // its holder was only late
			keep["renewed"] = renewed
			if got := s.status(); got != 0 {
				t.Errorf("exit status %d: %s", got, s.errs)
			}
			for k := range dead {
				if v := ask(t, address, "GET", k); v != nil {
					t.Errorf("%s is still there: %s", k, v)
				}
			}
			for k, v := range keep {
				if got := fmt.Sprintf("%s", ask(t, address, "GET", k)); got != v {
					t.Errorf("%s was changed to %s", k, got)
				}
				if ttl := ask(t, address, "TTL", k); ttl != int64(-1) {
					t.Errorf("%s was given a TTL of %v", k, ttl)
				}
			}
			if v, ttl := ask(t, address, "GET", "persistent"), ask(t, address, "TTL", "persistent"); fmt.Sprintf("%s", v) != token || ttl == int64(-1) {
				t.Errorf("persistent: %s, TTL %v", v, ttl)
			}
			out, status = command(t, address, "repair", "--lease", "1s")
			if status != 0 || !strings.Contains(out, "nothing is dead") {
				t.Errorf("a second time: %d, %s", status, out)
			}
		})
	}
	old := startOld(t, "2.0")
	ask(t, old, "SET", "dead", "1200000000")
	if out, status := command(t, old, "repair", "--lease", "1s"); status != statusUnavailable || !strings.Contains(out, "no WATCH") {
		t.Errorf("on 2.0: %d, %s", status, out)
	}
	if _, status := command(t, old, "repair", "--lease", "1ms"); status != statusUsage {
		t.Errorf("--lease 1ms: %d", status)
	}
}
