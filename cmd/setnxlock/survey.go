package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const surveyHelp = `Looks at all keys and lists the likely locks: the clients that write so, how sure that
is, the holder, the end. If keys with names that begin alike hold formats that can't be
mixed safely, it says so. It changes nothing. It can't see whether a
holder has died: a key is held, dead, persistent or foreign, as in setnxlock inspect.

How sure it is:
  certain   the value says so itself
  likely    the value's form is rare, or the key's name is the client's
  possible  ordinary data look the same: ten digits are a time in any program

survey lists any text ("hello" can be a lock, too) only with --match or --all, or if the
key's name tells that it is a lock.

Held locks come first, then possibly stuck ones: without an end, or past their time.
The merely possible come last, folded: keys whose names differ in numbers alone are one
line. --sure likely leaves them out. survey prints as it reads, and sorts 2,000 locks at
a time. On a terminal a table wider than the screen leaves out TTL and FORMAT, and long
keys lose their middle; elsewhere nothing is cut.

SCAN lists the keys. A server before 2.8 lacks it: there KEYS lists them, and blocks all
other clients meanwhile, half a second for a million keys. survey asks first; --yes
answers.`

const surveyExamples = `  setnxlock survey
  setnxlock survey --match 'lock:*' --sure likely
  setnxlock survey --mine
  setnxlock survey --json | jq -r '.locks[] | select(.wrong != []) | .key'`

type surveyFlags struct {
	match, sure, owner     string
	all, mine, yes, asJSON bool
}

func (a *app) surveyCommand() *cobra.Command {
	var f surveyFlags
	cmd := &cobra.Command{
		Use:         "survey",
		Short:       "List the locks on a server, whose they are, and what is wrong",
		Long:        surveyHelp,
		Example:     surveyExamples,
		Annotations: map[string]string{"status": "  0      The keys were looked at, whatever was found.\n  1      The question whether KEYS may block the server was answered with no.\n  64     Wrong usage.\n" + noServerHelp},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.valid(); err != nil {
				return exit.Usage(cmd, err)
			}
			text := &textReport{w: screen.Page{W: a.out}}
			if term.IsTerminal(int(a.out.Fd())) {
				text.width = screen.Width(a.out)
			}
			var out report = text
			if f.asJSON {
				out = &jsonReport{w: a.out}
			}
			return a.survey(context.Background(), f, out)
		},
	}
	cmd.Flags().StringVar(&f.match, "match", "", "look only at keys that match `PATTERN`, behind --prefix")
	cmd.Flags().StringVar(&f.sure, "sure", string(verdict.Possible), "list locks that are `HOW` sure: possible, likely, certain")
	cmd.Flags().StringVar(&f.owner, "owner", "", "list the locks whose value names `HOST`")
	cmd.Flags().BoolVar(&f.mine, "mine", false, "list the locks of this host")
	cmd.Flags().BoolVar(&f.all, "all", false, "list every text, too")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "don't ask before KEYS, on servers before 2.8")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	exit.Complete(cmd, "sure", []string{"possible", "likely", "certain"})
	return cmd
}

func (f *surveyFlags) valid() error {
	if !slices.Contains(sureness, verdict.Sure(f.sure)) {
		return fmt.Errorf("--sure must be possible, likely or certain, got %q", f.sure)
	}
	if f.mine && f.owner != "" {
		return errors.New("--mine and --owner exclude each other")
	}
	if f.mine {
		f.owner = hostname()
	}
	return nil
}

// sureness orders the degrees of certainty, the least first.
var sureness = []verdict.Sure{verdict.Possible, verdict.Likely, verdict.Certain}

// wants reports whether a lock is to be listed.
func (f *surveyFlags) wants(v verdict.Verdict) bool {
	if slices.Index(sureness, v.Sure) < slices.Index(sureness, verdict.Sure(f.sure)) {
		return false
	}
	if f.owner == "" {
		return true
	}
	names := []string{v.Owner}
	for _, h := range v.Holders {
		if owner, ok := dialect.OwnerOf(h.Value); ok {
			names = append(names, owner)
		}
	}
	return slices.ContainsFunc(names, func(owner string) bool {
		rest, ok := strings.CutPrefix(owner, f.owner)
		return ok && (rest == "" || strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " "))
	})
}

// A report is where a survey goes, a part at a time.
type report interface {
	begin(server string, at time.Time) error
	lock(v verdict.Verdict) error
	end(s *survey) error
}

// A survey keeps in memory the sums over all keys, and a hash of each lock: SCAN may list a key twice.
type survey struct {
	surveyFlags
	lens     verdict.Lens
	out      report
	keys     atomic.Int64 // looked at
	found    int          // that look like locks
	mixtures mixtures
	hashes   map[uint64]struct{}
	seed     maphash.Seed
}

// sorted is how many locks are kept, to be sorted, before they are printed.
const sorted = 2000

// survey looks at all keys of one server.
func (a *app) survey(ctx context.Context, flags surveyFlags, out report) error {
	if err := a.oneServer(); err != nil {
		return err
	}
	lens, _, err := a.lens()
	if err != nil {
		return err
	}
	p, c, err := a.session(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	defer c.Close()
	if err := out.begin(p.one().name, time.Now()); err != nil {
		return err
	}
	size, err := redis.Int(c.Do("DBSIZE"))
	switch {
	case c.Err() != nil:
		return err
	case err != nil:
		size = -1
	}
	s := &survey{surveyFlags: flags, lens: lens, out: out, hashes: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
	wipe := screen.New(a.errs).Progress("keys", func() int { return int(s.keys.Load()) }, size)
	var server verdict.Server
	err = a.eachKeys(c, flags.match, flags.yes, &server, func(keys []string) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		all, err := server.Read(protocol.NewConn(c), time.Now(), keys...)
		if err != nil {
			return err
		}
		return s.add(all)
	})
	wipe()
	if err != nil {
		return err
	}
	a.tellReplica(ctx, p, c)
	return out.end(s)
}

// add judges the contents of keys, and reports the wanted locks.
func (s *survey) add(all []verdict.Content) error {
	for _, content := range all {
		s.keys.Add(1)
		v := s.lens.Judge(content, time.Now())
		h := maphash.String(s.seed, v.Key)
		if _, twice := s.hashes[h]; twice || !v.IsLock(s.all || s.match != "") || !s.wants(v) {
			continue
		}
		s.hashes[h] = struct{}{}
		s.found++
		s.mixtures.add(v)
		if err := s.out.lock(v); err != nil {
			return err
		}
	}
	return nil
}

// urgent orders locks by their urgency: the surest first, of these the held, then the possibly stuck ones.
func urgent(x, y verdict.Verdict) int {
	place := func(v verdict.Verdict) int {
		switch {
		case v.Status == protocol.StatusHeld, v.Lock == verdict.Theirs:
			return 0
		case v.Status == protocol.StatusPersistent:
			return 1
		case v.Status == protocol.StatusDead:
			return 2
		}
		return 3
	}
	sure := func(v verdict.Verdict) int { // certain and likely ones stand together
		if v.Sure == verdict.Possible {
			return 1
		}
		return 0
	}
	return cmp.Or(sure(x)-sure(y), place(x)-place(y), strings.Compare(x.Key, y.Key))
}

// A textReport prints a survey for people.
type textReport struct {
	w      io.Writer
	width  int // of the terminal; 0: nothing is cut
	at     time.Time
	tables int
	some   []verdict.Verdict // likely and certain locks
	folds  folds             // the others
}

func (r *textReport) begin(_ string, at time.Time) error {
	r.at = at
	return nil
}

func (r *textReport) lock(v verdict.Verdict) error {
	if v.Sure == verdict.Possible {
		r.folds.add(v)
		return nil
	}
	if r.some = append(r.some, v); len(r.some) < sorted {
		return nil
	}
	return r.table()
}

// table prints the collected locks, and below them their faults.
func (r *textReport) table() error {
	some := r.some
	r.some = nil
	if len(some) == 0 {
		return nil
	}
	slices.SortStableFunc(some, urgent)
	rows := [][]string{{"KEY", "STATUS", "UNTIL", "TTL", "FORMAT", "OWNER", "LOOKS LIKE"}}
	narrow := [][]string{{"KEY", "STATUS", "UNTIL", "OWNER OR LIKE"}}
	for _, v := range some {
		key, status, until, whose := printable(v.Key), string(v.Status), timeLeft(v, r.at), likeness(v)
		rows = append(rows, []string{key, status, until, ttl(v.State), v.Format, dash(v.Owner), whose})
		if v.Owner != "" && v.Lock != verdict.Theirs {
			whose = ownerInWords(v.Owner)
		}
		narrow = append(narrow, []string{key, status, until, whose})
	}
	if r.width > 0 && tableWidth(widths(rows)) > r.width {
		rows = narrow
	}
	if r.tables++; r.tables > 1 {
		rows = rows[1:]
	}
	var b strings.Builder
	r.columns(&b, rows)
	wrong := false
	for _, v := range some {
		for _, text := range v.Wrong {
			if !wrong {
				b.WriteString("\n")
			}
			wrong = true
			r.paragraph(&b, printable(v.Key)+": "+text)
		}
	}
	_, err := io.WriteString(r.w, b.String())
	return err
}

// widths returns how wide the columns of a table are.
func widths(rows [][]string) []int {
	wide := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	return wide
}

// tableWidth returns how wide a table is, with two blanks between its columns.
func tableWidth(wide []int) int {
	sum := 2 * (len(wide) - 1)
	for _, w := range wide {
		sum += w
	}
	return sum
}

// columns prints a table as wide as the terminal at most: the widest columns are cut, a key in its middle.
func (r *textReport) columns(b *strings.Builder, rows [][]string) {
	wide := widths(rows)
	for most := slices.Max(wide); r.width > 0 && tableWidth(wide) > r.width && most > 8; most-- {
		for i := range wide {
			if tableWidth(wide) > r.width {
				wide[i] = min(wide[i], most)
			}
		}
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := []string{middle(row[0], wide[0])}
		for i, cell := range row[1:] {
			cells = append(cells, cut(cell, wide[i+1]))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
}

// middle cuts the middle out of a text longer than width.
func middle(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:width/2]) + "…" + string(r[len(r)-(width-width/2-1):])
	}
	return text
}

// paragraph prints a sentence in lines of the terminal's width.
func (r *textReport) paragraph(b *strings.Builder, text string) {
	if r.width == 0 {
		b.WriteString(text + "\n")
		return
	}
	b.WriteString(screen.Paragraph("", text, r.width))
}

func (r *textReport) end(s *survey) error {
	single, several := r.folds.list()
	r.some = append(r.some, single...)
	if err := r.table(); err != nil {
		return err
	}
	var b strings.Builder
	if len(several) > 0 {
		if r.tables > 0 {
			b.WriteString("\n")
		}
		rows := [][]string{{"POSSIBLE", "KEYS", "FORMAT", "LOOKS LIKE"}}
		for _, f := range several {
			keys := fmt.Sprintf("%d keys", f.keys)
			rows = append(rows, []string{printable(f.pattern), keys, f.first.Format, firstThree(f.first.Clients)})
		}
		r.columns(&b, rows)
		b.WriteString("\n")
	}
	for _, m := range s.mixtures.clashes() {
		name := m.Prefix
		if !strings.Contains(name, "*") {
			name += "*"
		}
		r.paragraph(&b, fmt.Sprintf("%s holds %s: %s", printable(name), m.inWords(), m.Wrong))
	}
	fmt.Fprintf(&b, "%d of %d keys look like locks\n", s.found, s.keys.Load())
	_, err := io.WriteString(r.w, b.String())
	return err
}

// timeLeft writes the time left to the end of a lock.
func timeLeft(v verdict.Verdict, at time.Time) string {
	if v.Until.IsZero() {
		return "-"
	}
	left := v.Until.Sub(at).Round(time.Second)
	if left > 1000*time.Hour || left < -1000*time.Hour {
		return v.Until.Format("2006-01-02")
	}
	if left < 0 {
		return left.String()
	}
	return "+" + left.String()
}

// likeness names the likely clients, and how sure that is.
func likeness(v verdict.Verdict) string {
	if len(v.Clients) == 0 {
		return "no client that we know"
	}
	return fmt.Sprintf("%s (%s)", firstThree(v.Clients), v.Sure)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

// A jsonReport is a survey for machines, as docs/json.md has it.
type jsonReport struct {
	w    io.Writer
	head string // what is not printed yet: of a survey that fails before it finds a lock, nothing is
	any  bool   // a lock was printed
	some []verdict.Verdict
}

func (r *jsonReport) lock(v verdict.Verdict) error {
	if r.some = append(r.some, v); len(r.some) < sorted {
		return nil
	}
	return r.flush()
}

func (r *jsonReport) begin(server string, at time.Time) error {
	name, err := answer.Plain(server)
	r.head = fmt.Sprintf("{\n  \"schema\": %d,\n  \"server\": %s,\n  \"at\": %q,\n  \"locks\": [", answer.Schema, name, moment(at).Format(time.RFC3339Nano))
	return err
}

// flush prints the collected locks.
func (r *jsonReport) flush() error {
	some := r.some
	r.some = nil
	if len(some) == 0 {
		return nil
	}
	slices.SortStableFunc(some, urgent)
	b := bytes.NewBufferString(r.head)
	r.head = ""
	for _, v := range some {
		text, err := answer.Plain(keyJSON(v, time.Now()))
		if err != nil {
			return err
		}
		if r.any {
			b.WriteByte(',')
		}
		r.any = true
		b.WriteString("\n    ")
		b.Write(text)
	}
	_, err := r.w.Write(b.Bytes())
	return err
}

func (r *jsonReport) end(s *survey) error {
	if err := r.flush(); err != nil {
		return err
	}
	clashes, err := answer.Plain(s.mixtures.clashes())
	if err == nil {
		_, err = fmt.Fprintf(r.w, "%s\n  ],\n  \"mixtures\": %s,\n  \"found\": %d,\n  \"keys\": %d\n}\n", r.head, clashes, s.found, s.keys.Load())
	}
	return err
}

// firstThree returns the first three names of a list.
func firstThree(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}
