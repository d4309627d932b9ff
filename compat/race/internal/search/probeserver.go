package search

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A probeServer is one real server that is put into a state and asked what happens in it.
type probeServer struct {
	c       *plan.Setup
	archive *Archive
	s       *oldredis.Server
	actor   *oldredis.Conn
	watcher *oldredis.Conn
	probe   *embedded.Probe // nil: not needed yet
}

func newProbeServer(c *plan.Setup, a *Archive) (*probeServer, error) {
	s, err := oldredis.New(c.Server, oldredis.Options{Start: plan.Epoch})
	if err != nil {
		return nil, err
	}
	return &probeServer{c: c, archive: a, s: s, actor: s.Dial().(*oldredis.Conn), watcher: s.Dial().(*oldredis.Conn)}, nil
}

func (w *probeServer) close() {
	w.s.Close()
	if w.probe != nil {
		w.probe.Close()
	}
}

// begin returns the server's content at the beginning. It is asked first.
func (w *probeServer) begin() (uint32, error) {
	if err := embedded.Given(w.c, w.s); err != nil {
		return 0, err
	}
	return w.archive.content(w.s.Snapshot()), nil
}

// answer finds out.
func (w *probeServer) answer(q inquiry) answered {
	a := w.archive
	if q.what == askConn {
		st := a.state(q.conn)
		return answered{conn: a.connection(unpacked(q.rename).connection(st))}
	}
	snap := a.snapshot(q.content)
	switch q.what {
	case askDeaths:
		return answered{content: a.deaths(w.deaths(snap))}
	case askRename:
		r := unpacked(q.rename)
		return answered{content: a.content(snap.Rename(r.text))}
	}
	snap = snap.At(plan.Instant(int64(q.now)))
	if q.what == askFree {
		if w.probe == nil {
			w.probe = embedded.NewProbe(w.c)
		}
		return answered{yes: w.probe.Free(snap)}
	}
	w.s.Restore(snap)
	defer func() {
		w.actor.SetState(oldredis.ConnState{})
		w.watcher.SetState(oldredis.ConnState{})
	}()
	switch q.what {
	case askRun:
		w.actor.SetState(a.state(q.conn))
		w.watcher.SetState(oldredis.ConnState{Watched: []oldredis.WatchedKey{{Key: w.c.Stands()}}})
		replies, err := embedded.RunRefusing(w.s, w.actor, a.commands(q.request), int(q.refused))
		got := answered{cut: err != nil, yes: w.watcher.Dirty()}
		if err == nil {
			got.reply, got.conn = a.reply(replies), a.connection(w.actor.State())
		}
		got.content = a.content(w.s.Snapshot())
		return got
	case askAct:
		w.perform(q.verb, q.now, q.until)
		return answered{content: a.content(w.s.Snapshot())}
	case askWatched:
		w.actor.SetState(a.state(q.conn))
		w.watcher.SetState(a.state(q.watcher))
		cmds := a.commands(q.request)
		embedded.RunRefusing(w.s, w.actor, cmds, int(q.refused)) //nolint:errcheck // the watcher is what counts
	case askActWatched:
		w.watcher.SetState(a.state(q.watcher))
		w.perform(q.verb, q.now, q.until)
	}
	return answered{conn: a.connection(w.watcher.State())}
}

// deaths returns each key's first moment of death; never if it has no TTL.
func (w *probeServer) deaths(snap oldredis.Snapshot) []int32 {
	entries := snap.Entries(w.s)
	list := make([]int32, len(entries))
	for i, e := range entries {
		if list[i] = never; !e.Expires.IsZero() {
			list[i] = w.death(snap, e)
		}
	}
	return list
}

func (w *probeServer) death(snap oldredis.Snapshot, e oldredis.Entry) int32 {
	after := plan.Millis(e.Expires) + 1
	for _, other := range snap.At(plan.Instant(after)).Entries(w.s) {
		if other.DB == e.DB && other.Key == e.Key && !other.Unreaped {
			after = (plan.Millis(e.Expires)/1000 + 1) * 1000 // whole seconds
		}
	}
	return int32(after)
}

// perform makes an act of the server's own. n is until when time passes, or which server of several
// does it.
func (w *probeServer) perform(verb plan.Verb, now, n int32) {
	passes := time.Duration(n-now) * time.Millisecond
	switch verb {
	case plan.Pass:
		w.s.Advance(passes)
	case plan.PassUnreaped:
		w.s.AdvanceLazy(passes)
	case plan.Reap:
		w.s.Reap()
	case plan.Evict:
		w.s.Evict(plan.KeyOn(w.c.Stands(), int(n)))
	case plan.Down:
		embedded.TakeDown(w.s, int(n))
	case plan.Restart:
		if n > 0 {
			embedded.Forget(w.s, int(n))
			break
		}
		w.s.Restart(oldredis.Empty)
	case plan.Failover:
		embedded.TakesOver(w.c, w.s)
	default:
		panic(fmt.Sprint("race: no act of the server: ", verb))
	}
}
