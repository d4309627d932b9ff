package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
	"github.com/spf13/cobra"
)

const inspectHelp = `Reads KEY and tells what an attempt to lock it would meet. It changes nothing.

  free        there is no such key
  held        another client holds the lock
  dead        the key is there, but its lease has run out: the next client takes
              it over
  persistent  held, and nothing will ever end it: the client that took it may
              have died before it set a TTL; setnxlock release --force removes it
  foreign     it can't be read as a lock of this kind: it counts as held

With --algorithm auto the value tells the format: a token whose TTL is the
lease (tx), or a timestamp in one of the dialects (getset). With another algorithm
the value is read as that lock would read it.

The end of a token's lease is the server's to decide; a timestamp is compared with
the clock of each client that reads it, and here with this machine's.`

const inspectExamples = `  setnxlock inspect nightly-report
  setnxlock inspect --watch nightly-report
  setnxlock inspect --json nightly-report | jq -r .status`

func (a *app) inspectCommand() *cobra.Command {
	var asJSON, watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:               "inspect KEY...",
		Short:             "Show whether a lock is held, in which format and until when",
		Long:              inspectHelp,
		Example:           inspectExamples,
		Annotations:       map[string]string{"status": "  0      KEY was read, whatever its state.\n" + statusHelp},
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              usageErrors(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every <= 0 {
				return usage(cmd, fmt.Errorf("an --interval of %v", every))
			}
			if watch {
				return a.watch(args, every, asJSON)
			}
			return a.inspect(args, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON; one object a line with --watch")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print a line for each change, until it is interrupted")
	cmd.Flags().DurationVar(&every, "interval", 500*time.Millisecond, "how often --watch looks")
	return cmd
}

func (a *app) inspect(keys []string, asJSON bool) error {
	ctx := context.Background()
	v, err := a.view(ctx, keys)
	if err != nil {
		return err
	}
	defer v.Close()
	s, err := v.look(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(stateJSON(s, true))
	}
	return a.printState(s)
}

// watch prints a line for each state that differs from the one before.
func (a *app) watch(keys []string, every time.Duration, asJSON bool) error {
	ctx := context.Background()
	v, err := a.view(ctx, keys)
	if err != nil {
		return err
	}
	defer v.Close()
	var last compat.State
	for {
		s, err := v.look(ctx)
		if err != nil {
			return err
		}
		if changed(last, s) {
			if err := a.printChange(last, s, asJSON); err != nil {
				return err
			}
			last = s
		}
		time.Sleep(every)
	}
}

// changed tells news from time that has merely passed: a TTL that is read twice
// gives two ends that differ by as much as it was rounded.
func changed(last, s compat.State) bool {
	moved := s.Until.Sub(last.Until).Abs()
	return last.Key == "" || s.Status != last.Status || s.Value != last.Value ||
		s.Until.IsZero() != last.Until.IsZero() || moved > 1500*time.Millisecond
}

// A view is what can be seen of keys, and removed from them.
type view struct {
	*deployment
	*target
}

// view connects to where keys live.
func (a *app) view(ctx context.Context, keys []string) (*view, error) {
	key, err := a.all(keys)
	if err != nil {
		return nil, err
	}
	return a.viewOf(ctx, key, keys)
}

// viewOf is the view of a key, or of several that were joined, with their
// prefixes. asked are the keys as they were given.
func (a *app) viewOf(ctx context.Context, key string, asked []string) (*view, error) {
	p, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{deployment: p, target: &target{key: key}}
	if a.readable(split(key)) { // as it stands, whatever lock would be chosen for it
		v.look = func(ctx context.Context) (compat.State, error) { return a.look(ctx, p.one(), key) }
	} else if v.target, err = a.named(ctx, p, key, false, a.lockOptions()); err != nil {
		p.Close()
		return nil, err
	}
	v.asked = asked
	return v, nil
}

// look reads the key as the algorithm does, or as whatever it looks like.
func (a *app) look(ctx context.Context, n node, key string) (compat.State, error) {
	d, err := a.dialectValue()
	if err != nil {
		return compat.State{}, err
	}
	if list, err := a.fleet(false); err != nil || len(list) > 0 {
		if err != nil {
			return compat.State{}, err
		}
		return compat.NewOn(n.source, list[len(list)-1].Algorithm, a.lockOptions()).Inspect(ctx, key)
	}
	family, _, _ := strings.Cut(a.algorithm, ":")
	if family == "getset" {
		return compat.NewOn(n.source, getsetlock.Classic{Options: getsetlock.Options{Dialect: d}}, a.lockOptions()).Inspect(ctx, key)
	}
	if a.algorithm != "auto" {
		if _, err := candidates(a.algorithm, d, false); err != nil {
			return compat.State{}, err
		}
	}
	// In milliseconds where the server counts in them. A proxy closes the
	// connection on a command that it does not have.
	s, err := compat.NewOn(n.source, txlock.Guarded{Options: txlock.Options{Millis: true}}, a.lockOptions()).Inspect(ctx, key)
	if err != nil && !errors.Is(err, compat.ErrForeign) && !errors.Is(err, compat.ErrInvalid) {
		s, err = compat.NewOn(n.source, txlock.Guarded{}, a.lockOptions()).Inspect(ctx, key)
	}
	if err != nil || family == "tx" {
		return s, err
	}
	return recognize(s, time.Now()), nil
}

// printState is the answer for people.
func (a *app) printState(s compat.State) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "key\t%s\n", s.Key)
	fmt.Fprintf(w, "status\t%s%s\n", string(s.Status), meaning(s))
	if s.Status != compat.StatusFree {
		if s.Format != "" {
			fmt.Fprintf(w, "format\t%s\n", s.Format)
		}
		fmt.Fprintf(w, "token\t%s\n", printable(s.Value))
		for _, h := range s.Holders {
			fmt.Fprintf(w, "holder\t%s%s\n", printable(h.Value), holderEnd(h))
		}
		fmt.Fprintf(w, "until\t%s\n", end(s, time.Now()))
		fmt.Fprintf(w, "ttl\t%s\n", ttl(s))
		if f, ok := finding(s, time.Now()); ok {
			if f.Owner != "" && f.Owner != s.Value {
				fmt.Fprintf(w, "owner\t%s\n", printable(f.Owner))
			}
			fmt.Fprintf(w, "client\t%s\n", some(f.Formats()))
			for _, wrong := range f.Wrong {
				fmt.Fprintf(w, "wrong\t%s\n", wrong)
			}
		}
	}
	return w.Flush()
}

// meaning explains the statuses that a word does not.
func meaning(s compat.State) string {
	switch s.Status {
	case compat.StatusDead:
		return " (its lease has run out: the next client takes it over)"
	case compat.StatusPersistent:
		return " (it has no TTL: if its holder died, nothing ends it)"
	case compat.StatusForeign:
		return " (it can't be read as this lock: it counts as held)"
	}
	return ""
}

func end(s compat.State, now time.Time) string {
	if s.Until.IsZero() {
		return "-"
	}
	when := s.Until.Sub(now).Round(100 * time.Millisecond)
	in := fmt.Sprintf("in %v", when)
	if when < 0 {
		in = fmt.Sprintf("%v ago", -when)
	}
	whose := "the server's clock"
	if s.Clock == "clients" {
		whose = "the clients' clocks"
	}
	return fmt.Sprintf("%s, %s, by %s", s.Until.Format("2006-01-02 15:04:05 MST"), in, whose)
}

func holderEnd(h compat.Holder) string {
	if h.Until.IsZero() {
		return ""
	}
	return ", until " + clockTime(h.Until)
}

func ttl(s compat.State) string {
	if s.TTL == compat.NoTTL {
		return "none"
	}
	return s.TTL.String()
}

// printable is a value as a terminal can bear it.
func printable(v string) string {
	if q := fmt.Sprintf("%q", v); q != `"`+v+`"` || strings.Contains(v, " ") || v == "" {
		return q
	}
	return v
}

// printChange is one line of --watch.
func (a *app) printChange(last, s compat.State, asJSON bool) error {
	if asJSON {
		return a.printJSON(stateJSON(s, false))
	}
	line := fmt.Sprintf("%s  %-10s", time.Now().Format("15:04:05.000"), string(s.Status))
	if s.Status != compat.StatusFree {
		line += fmt.Sprintf("  %s %s", s.Format, printable(s.Value))
		if !s.Until.IsZero() {
			line += "  until " + s.Until.Format("15:04:05")
		}
		if last.Value == s.Value && last.Status == s.Status {
			line += "  (extended)"
		}
	}
	_, err := fmt.Fprintln(a.out, strings.TrimRight(line, " "))
	return err
}

// A jsonState is compat.State as machines get it.
type jsonState struct {
	Key     string       `json:"key"`
	Status  string       `json:"status"`
	Format  string       `json:"format,omitempty"`
	Token   string       `json:"token,omitempty"`
	Until   *time.Time   `json:"until,omitempty"`
	Clock   string       `json:"clock,omitempty"`
	TTL     *float64     `json:"ttl_seconds,omitempty"`
	Owner   string       `json:"owner,omitempty"`
	Clients []string     `json:"clients,omitempty"` // who writes so
	Wrong   []string     `json:"wrong,omitempty"`
	Holders []jsonHolder `json:"holders,omitempty"`
	At      time.Time    `json:"at"`
	indent  bool
}

type jsonHolder struct {
	Token string     `json:"token"`
	Until *time.Time `json:"until,omitempty"`
}

func stateJSON(s compat.State, indent bool) jsonState {
	j := jsonState{
		Key: s.Key, Status: string(s.Status), Format: s.Format, Token: s.Value, Clock: s.Clock,
		At: time.Now().UTC().Round(time.Millisecond), indent: indent,
	}
	if !s.Until.IsZero() {
		until := s.Until.UTC().Round(time.Millisecond)
		j.Until = &until
	}
	if s.TTL != compat.NoTTL {
		seconds := s.TTL.Seconds()
		j.TTL = &seconds
	}
	if f, ok := finding(s, time.Now()); ok {
		j.Clients, j.Wrong = f.Formats(), f.Wrong
		if f.Owner != s.Value {
			j.Owner = f.Owner
		}
	}
	for _, h := range s.Holders {
		holder := jsonHolder{Token: h.Value}
		if !h.Until.IsZero() {
			until := h.Until.UTC().Round(time.Millisecond)
			holder.Until = &until
		}
		j.Holders = append(j.Holders, holder)
	}
	return j
}

func (a *app) printJSON(v any) error { return encodeJSON(a.out, v) }

func encodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if j, ok := v.(jsonState); !ok || j.indent {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}
