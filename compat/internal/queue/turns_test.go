package queue

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Any number of processes may look at a key that changes hands without wake-ups. Together they look no more
// than three times in each shortest pause, they notice a release within two shortest pauses, and each process
// has its share.
func TestLooks(t *testing.T) {
	const least, most, section = 10 * time.Millisecond, 500 * time.Millisecond, 20 * time.Millisecond
	for _, n := range []int{2, 12, 24, 48} {
		draw := rand.New(rand.NewPCG(uint64(n), 1))
		type process struct {
			looks
			at   time.Time // of the next look
			seen int       // the last holder seen
			had  int
		}
		all := make([]process, n)
		start := time.Unix(0, 0)
		now, free := start, start // free: from when on
		holder, count, sections, idle := 0, 0, 0, time.Duration(0)
		for i := range all {
			all[i].at = start.Add(time.Duration(i) * time.Millisecond)
		}
		for now.Sub(start) < 10*time.Minute {
			p := &all[0]
			for i := range all {
				if all[i].at.Before(p.at) {
					p = &all[i]
				}
			}
			now = p.at
			judged := now.Sub(start) > 5*time.Minute // the pauses have become alike by then
			if judged {
				count++
			}
			if !now.Before(free) {
				if holder++; judged {
					idle += now.Sub(free)
					sections++
					p.had++
				}
				p.over(section, least, most)
				free = now.Add(section)
				now, p.seen = free, holder
			} else if p.seen != holder {
				p.seen = holder
				p.change(now, least)
			}
			d := p.next(func() time.Time { return now }, section, least, most)
			p.at = now.Add(d - time.Duration(draw.Float64()*float64(d)/2))
		}
		fewest := sections
		for i := range all {
			fewest = min(fewest, all[i].had)
		}
		gap, rate := idle/time.Duration(sections), float64(count)/300*least.Seconds()
		t.Logf("%d processes: %.1f looks in each shortest pause, %v between two holders, %d sections, of which one process had %d", n, rate, gap, sections, fewest)
		if rate > 3 || gap > 2*least || fewest < sections/n/8 {
			t.Errorf("%d processes: %.1f looks in each shortest pause, %v between two holders, of %d sections one process had %d", n, rate, gap, sections, fewest)
		}
	}
}

// The pauses between looks grow while the holder stays the same.
func TestLooksAtOneHolder(t *testing.T) {
	l := new(looks)
	for i := range 5 {
		if d := l.next(time.Now, 0, time.Second, 10*time.Second); d != min(time.Second<<i, 10*time.Second) {
			t.Errorf("pause %d: %v", i+1, d)
		}
	}
}

// A waiter polls when the key changes hands and the next ticket stays the same: no release wakes waiters. The
// first wake-up ends the polling.
func TestSilentHolders(t *testing.T) {
	bubble(t, func(t *testing.T, qs *Queues[lock], _ *[]string) {
		next, wake := "a", make(chan struct{})
		qs.Signals = &Signals{
			Listen: func(ctx context.Context, _ string, _ bool, registered func(int)) (bool, func(bool)) {
				registered(40)
				select {
				case <-wake:
					return true, nil
				case <-ctx.Done():
					return false, func(bool) {}
				}
			},
			Wake: func(context.Context, string, time.Duration) bool { return true },
			Next: func(context.Context, string) string { return next },
		}
		q := head(t, qs, "k")
		pause := func() time.Duration {
			t.Helper()
			qs.Wakeable(q, time.Minute) //nolint:errcheck // it is not closed
			synctest.Wait()
			_, _, d, _ := qs.Wakeable(q, time.Minute)
			return d
		}
		if d := pause(); d != 2*qs.Longest {
			t.Errorf("one of forty that are woken looks after %v", d)
		}
		for _, name := range []string{"a", "b", "c"} {
			next = name
			qs.TakenElsewhere(t.Context(), q, true)
			if d := pause(); d < qs.Longest {
				t.Errorf("%q is next now: it looks after %v", name, d)
			}
		}
		qs.TakenElsewhere(t.Context(), q, true)
		if d := pause(); d > qs.Longest/2 {
			t.Errorf("a holder went, and nobody was woken: it looks after %v", d)
		}
		wake <- struct{}{}
		synctest.Wait()
		if d := pause(); d < qs.Longest {
			t.Errorf("it was woken: it looks after %v", d)
		}
		qs.Leave(q)
		synctest.Wait()
	})
}
