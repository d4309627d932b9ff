package live

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
)

// A Spot is the place in the code that a client has reached.
type Spot struct {
	Doing  string `json:"doing"`  // "acquire", "extend", "release"; "" between two attempts and while it holds
	Type   string `json:"type"`   // of its algorithm: "getsetlock.Guarded"
	Lock   Line   `json:"lock"`   // the algorithm's, that sends next; none while the engine carries out what it named
	Engine Line   `json:"engine"` // the engine's, that sends next for the algorithm
}

// A Line is one of a file of this module, counted from 1; 0: none.
type Line struct {
	File string `json:"file"` // "getsetlock/guarded.go"
	N    int    `json:"n"`
}

// Spots makes the choices and returns each client's place. For a client that is about to read its
// clock, it is the place after the reading.
func Spots(c plan.Config, choices []plan.Choice) ([]Spot, error) {
	full, err := plan.Complete(c)
	if err != nil {
		return nil, err
	}
	w, err := NewWorld(full)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	for _, p := range w.Players {
		p.spotted = true
	}
	for n, choice := range choices {
		if _, err := w.Apply(choice); err != nil {
			return nil, fmt.Errorf("word %d, %v: %w", n+1, choice, err)
		}
	}
	spots := make([]Spot, len(w.Players))
	for i, p := range w.Players {
		if p.Pending.Kind == client.ReadsClock && !p.dead && !p.paused {
			if _, err := w.Apply(plan.Choice{Verb: plan.Look, Client: i}); err != nil && !errors.As(err, new(Disabled)) {
				return nil, err
			}
		}
		s := &spots[i]
		s.Type = strings.TrimPrefix(fmt.Sprintf("%T", p.Algorithm(p.ID)), "*")
		if p.dead || p.Pending.Kind != client.Sends {
			continue
		}
		s.Doing = map[client.Phase]string{client.Acquiring: "acquire", client.Extending: "extend", client.Releasing: "release"}[p.Phase]
		s.Lock, s.Engine = lines(p.stack)
	}
	return spots, nil
}

const module = "github.com/setnxlock/setnxlock/"

// engines are the files that carry out a change which an algorithm has named.
var engines = map[string]bool{"watch.go": true, "unguarded.go": true, "listcas.go": true, "script.go": true}

// lines finds the innermost line of an algorithm, and of the engine if it acts for one.
func lines(stack []uintptr) (lock, engine Line) {
	frames := runtime.CallersFrames(stack)
	for more := len(stack) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		name, ok := strings.CutPrefix(f.Function, module)
		if !ok {
			continue
		}
		dir, base := name[:strings.LastIndex(name, "/")+1], path.Base(strings.ReplaceAll(f.File, `\`, "/"))
		pkg, _, _ := strings.Cut(name[len(dir):], ".")
		dir += pkg
		switch {
		case dir == "compat" || strings.HasPrefix(dir, "compat/race/internal/") || strings.HasPrefix(dir, "compat/internal/"):
		case dir != "compat/protocol":
			return Line{dir + "/" + base, f.Line}, Line{}
		case engine.N == 0 && engines[base]:
			engine = Line{dir + "/" + base, f.Line}
		}
	}
	return Line{}, engine
}

// Follow makes the choices of another lock's schedule, and leaves out the impossible ones. Then each
// client that asks for something goes on until it has its answer, 12 steps at most. A lock that
// refuses the server is an error.
func Follow(c plan.Config, choices []plan.Choice) (trace.Trace, error) {
	full, err := plan.Complete(c)
	if err != nil {
		return trace.Trace{}, err
	}
	if err := client.Refuses(full); err != nil {
		return trace.Trace{}, err
	}
	var made []plan.Choice
	w, err := NewWorld(full)
	if err != nil {
		return trace.Trace{}, err
	}
	defer func() { w.Close() }()
	try := func(c plan.Choice) error {
		_, err := w.Apply(c)
		if err == nil {
			made = append(made, c)
			return nil
		}
		if !errors.As(err, new(Disabled)) {
			return err
		}
		// A choice that is refused may have been begun: the clock is read first.
		w.Close()
		if w, err = NewWorld(full); err != nil {
			return err
		}
		for _, c := range made {
			if _, err := w.Apply(c); err != nil {
				return err
			}
		}
		return Disabled{}
	}
	for _, c := range choices {
		if err := try(c); err != nil && !errors.As(err, new(Disabled)) {
			return trace.Trace{}, err
		}
	}
	for i := range w.Players {
		for range 12 {
			p := w.Players[i]
			if p.Phase == client.Idle || p.Phase == client.Finished || p.Phase == client.Holding || p.dead || p.paused {
				break
			}
			if err := try(plan.Choice{Client: i}); errors.As(err, new(Disabled)) {
				break
			} else if err != nil {
				return trace.Trace{}, err
			}
		}
	}
	return Replay(full, made)
}
