package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// WriteJSON writes the trace for [ReadTrace].
//
// # The format
//
// A trace is one JSON object in UTF-8. Its member "format" is [TraceFormat];
// a reader refuses any other. Members that a reader does not know it ignores,
// so members may be added under the same name of the format; a change of
// meaning gets a new name. Absent members are zero.
//
// Times are whole milliseconds, in members that end in _ms. Those of the
// server count from the start of the run, those of a client by its own clock,
// which is the server's plus the client's skew_ms. -1 stands for no TTL and for
// a client that has no lease. Inside the texts times are readable: a value
// "t=10s" is a timestamp ten seconds after the start, "«C1»" the token of C1.
//
// The object has what was run (algorithm, server, key, ttl_ms, clients), the
// server before the first step (start), the steps (events), and what they show:
// the verdict, the argument, sources, and in instead what this library does.
// Each event is numbered from 1 without a gap and says who acted: a client's
// name, or "time", "redis", "network" or another word for what is no client.
// It has either a cmd with its reply, or a note, or both; lost says that a
// reply or a request got lost or that the connection was cut. In server and
// belief stands the whole state after the event, so that a reader can show any
// step without running the ones before; changed names what the step made
// different. An event with a violation broke the invariant named there, and the
// verdict names the first such event.
func (t Trace) WriteJSON(w io.Writer) error {
	t.Format = TraceFormat
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(t)
}

// ReadTrace reads a trace, from [Trace.WriteJSON] or by hand, and checks it for renderers.
func ReadTrace(r io.Reader) (Trace, error) {
	var t Trace
	d := json.NewDecoder(r)
	if err := d.Decode(&t); err != nil {
		return Trace{}, fmt.Errorf("race: not a trace: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Trace{}, errors.New("race: not a trace: more than one JSON value")
	}
	if t.Format != TraceFormat {
		return Trace{}, fmt.Errorf("race: format %q, where %q was expected", t.Format, TraceFormat)
	}
	if err := t.check(); err != nil {
		return Trace{}, fmt.Errorf("race: %w", err)
	}
	return t, nil
}

// check rejects a trace unfit for a renderer.
func (t Trace) check() error {
	if len(t.Clients) == 0 {
		return errors.New("a trace without clients")
	}
	for i, c := range t.Clients {
		if c.Name == "" || slices.ContainsFunc(t.Clients[:i], func(o Client) bool { return o.Name == c.Name }) {
			return fmt.Errorf("client %d has no unique name: %q", i+1, c.Name)
		}
	}
	var at int64
	for i, e := range t.Events {
		switch {
		case e.N != i+1:
			return fmt.Errorf("event %d is numbered %d", i+1, e.N)
		case e.Who == "":
			return fmt.Errorf("event %d: no one acts", e.N)
		case e.Cmd == "" && e.Note == "":
			return fmt.Errorf("event %d: neither a cmd nor a note", e.N)
		case !slices.Contains([]string{"", "reply", "request", "late", "cut"}, e.Lost):
			return fmt.Errorf("event %d: lost %q", e.N, e.Lost)
		case e.At < at:
			return fmt.Errorf("event %d: time goes back from %s to %s", e.N, Seconds(at), Seconds(e.At))
		}
		at = e.At
		if err := t.checkBelief(e.Belief); err != nil {
			return fmt.Errorf("event %d: %w", e.N, err)
		}
	}
	if s := t.Verdict.Step; t.Verdict.Violated != "" {
		if s < 1 || s > len(t.Events) || t.Events[s-1].Violation == nil || t.Events[s-1].Violation.Invariant != t.Verdict.Violated {
			return fmt.Errorf("verdict: %s is not broken by event %d", t.Verdict.Violated, s)
		}
	}
	return nil
}

func (t Trace) checkBelief(belief map[string]Belief) error {
	for _, c := range t.Clients {
		switch b, ok := belief[c.Name]; {
		case !ok:
			return fmt.Errorf("no belief of %s", c.Name)
		case !slices.Contains([]string{Idle, Asking, Holds, RunOut, Paused, Acts, Unknown, Lost, Dead}, b.State):
			return fmt.Errorf("%s is %q", c.Name, b.State)
		}
	}
	return nil
}
