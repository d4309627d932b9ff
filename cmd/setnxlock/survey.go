package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/spf13/cobra"
)

const surveyHelp = `Looks at all keys and lists those that look like locks: whose they look like, how sure
that is, who holds them, until when. Where the names of keys begin alike it says
which formats can't be mixed safely. It changes nothing. That a holder has died it
can't see, and does not say: a key is held, dead, persistent or foreign, as
setnxlock inspect has it.

How sure it is:
  certain   the value says so itself
  likely    the value's form is rare, or the key's name is as that client writes it
  possible  ordinary data look the same: a number of ten digits is a time in any program

A value that could be any text is listed only with --match or --all, or if the key's
name says that it is a lock: "hello" can be a lock too.

It prints as it reads: a server of any size takes little memory. Up to 500 locks are
sorted by key; with more they come in no order.

SCAN lists the keys. A server before 2.8 lacks it: there KEYS lists them, which
blocks all other clients meanwhile, half a second for a million keys, and is one
answer in memory.`

const surveyExamples = `  setnxlock survey
  setnxlock survey --match 'lock:*'
  setnxlock survey --json | jq -r '.locks[] | select(.wrong != []) | .key'`

func (a *app) surveyCommand() *cobra.Command {
	var match string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:         "survey",
		Short:       "List what looks like a lock on a server, whose it is, and what is wrong with it",
		Long:        surveyHelp,
		Example:     surveyExamples,
		Annotations: map[string]string{"status": "  0      The keys were looked at, whatever was found.\n" + statusHelp},
		RunE: func(*cobra.Command, []string) error {
			var out report = &textReport{w: screen.Page{W: a.out}}
			if asJSON {
				out = &jsonReport{w: a.out}
			}
			return a.survey(context.Background(), match, all || match != "", out)
		},
	}
	cmd.Flags().StringVar(&match, "match", "", "look only at keys that match `PATTERN`, as KEYS understands it; --prefix is put before it")
	cmd.Flags().BoolVar(&all, "all", false, "list every text, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A report is where a survey goes, a part at a time.
type report interface {
	begin(server string, at time.Time) error
	locks(some []verdict.Verdict) error
	end(s *survey) error
}

// A survey is what is left in memory of all keys that were looked at.
type survey struct {
	keys, found int // looked at; that look like locks
	mixtures    mixtures
}

// sorted is how many locks are kept, to be sorted, before they are printed.
const sorted = 500

// survey looks at all keys of one server.
func (a *app) survey(ctx context.Context, match string, anyText bool, out report) error {
	at := time.Now()
	var s survey
	var some []verdict.Verdict
	flush := func() error {
		slices.SortFunc(some, func(x, y verdict.Verdict) int { return strings.Compare(x.Key, y.Key) })
		err := out.locks(some)
		some = some[:0]
		return err
	}
	keys, err := a.eachLock(ctx, match, anyText, func(server string) error { return out.begin(server, at) }, func(v verdict.Verdict) error {
		s.found++
		s.mixtures.add(v)
		if some = append(some, v); len(some) < sorted {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	if s.keys = keys; len(some) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	return out.end(&s)
}

// eachLock calls f with every key of one server that looks like a lock, and returns how many keys
// were looked at. begin is called first, with the server's name.
func (a *app) eachLock(ctx context.Context, match string, anyText bool, begin func(server string) error, f func(verdict.Verdict) error) (keys int, err error) {
	if len(a.redis.list) > 1 || a.cluster {
		return 0, exit.Because(exit.Wrong, errors.New("a survey is of one server"), "give the address of one; of a cluster, of one master after the other")
	}
	lens, _, err := a.lens()
	if err != nil {
		return 0, err
	}
	p, c, err := a.session(ctx)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	defer c.Close()
	if err := begin(p.one().name); err != nil {
		return 0, err
	}
	var looked atomic.Int64
	size, err := redis.Int(c.Do("DBSIZE"))
	switch {
	case c.Err() != nil:
		return 0, err
	case err != nil:
		size = -1
	}
	wipe := screen.New(a.errs).Progress("keys", func() int { return int(looked.Load()) }, size)
	defer wipe()
	told := map[uint64]struct{}{} // SCAN may tell a key twice; of each lock a hash is kept
	seed := maphash.MakeSeed()
	var server verdict.Server
	err = a.eachKeys(c, a.prefix, match, &server, func(keys []string) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		looked.Add(int64(len(keys)))
		all, err := server.Read(protocol.NewConn(c), time.Now(), keys...)
		if err != nil {
			return err
		}
		for _, content := range all {
			v := lens.Judge(content, time.Now())
			if !v.IsLock(anyText) {
				continue
			}
			h := maphash.String(seed, v.Key)
			if _, twice := told[h]; twice {
				continue
			}
			told[h] = struct{}{}
			if err := f(v); err != nil {
				return err
			}
		}
		return nil
	})
	return int(looked.Load()), err
}

// eachKeys lists the keys in batches: by SCAN, or by KEYS where there is none.
// A server that has SCAN has all that server can use.
func (a *app) eachKeys(c redis.Conn, prefix, match string, server *verdict.Server, f func([]string) error) error {
	if match == "" {
		match = "*"
	}
	pattern := globbed(prefix) + match
	const batch = 250
	conn := protocol.NewConn(c)
	for cursor := "0"; ; {
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", batch))
		if errors.Is(conn.Lacks(err, "it has no SCAN", "KEYS"), protocol.ErrUnsafeServer) {
			break
		}
		if err != nil {
			return conn.Denied(pattern, err)
		}
		server.Millis, server.Part = true, true
		var keys []string
		if _, err := redis.Scan(reply, &cursor, &keys); err != nil {
			return err
		}
		if err := f(keys); err != nil {
			return err
		}
		if cursor == "0" {
			return nil
		}
	}
	a.say("this server has no SCAN (it came with 2.8): KEYS blocks it while it lists all keys")
	reply, err := c.Do("KEYS", pattern)
	if err != nil {
		return conn.Denied(pattern, err)
	}
	keys, err := redis.Strings(reply, nil)
	if line, ok := reply.([]byte); ok { // before 1.3: one line, blanks between
		keys, err = strings.Fields(string(line)), nil
	}
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, batch) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// globbed is text as a pattern that matches it alone.
func globbed(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// A mixtures is the kinds of locks by what the keys' names begin with. It keeps 16 bytes or so of
// each beginning, and the names of those alone where kinds meet.
type mixtures struct {
	seed  maphash.Seed
	kinds map[uint64]uint32 // bits: positions in seen, and unsure
	names map[string]uint64
	seen  []dialect.Kind
}

func (m *mixtures) add(v verdict.Verdict) {
	if v.Kind == "" || v.Lock == verdict.Theirs || v.Lock == verdict.RW {
		return
	}
	if m.kinds == nil {
		m.seed, m.kinds, m.names = maphash.MakeSeed(), map[uint64]uint32{}, map[string]uint64{}
	}
	kind := dialect.Kind(v.Kind)
	at := slices.Index(m.seen, kind)
	if at < 0 {
		at, m.seen = len(m.seen), append(m.seen, kind)
	}
	prefix := v.Key[:strings.LastIndexAny(v.Key, ":./")+1]
	h := maphash.String(m.seed, prefix)
	m.kinds[h] |= 1 << at
	if v.Sure == verdict.Possible {
		m.kinds[h] |= unsure
	}
	if bits := m.kinds[h] &^ unsure; bits&(bits-1) != 0 {
		m.names[prefix] = h
	}
}

// unsure says of a group that some of it need not be locks.
const unsure = 1 << 31

// A mixture is what keys whose names begin alike hold, and can't hold safely.
type mixture struct {
	Prefix string   `json:"prefix"`
	Kinds  []string `json:"kinds"`
	Wrong  string   `json:"wrong"`
}

// clashes are the groups in which one client would take or keep another's lock wrongly.
func (m *mixtures) clashes() []mixture {
	list := []mixture{}
	for _, prefix := range slices.Sorted(maps.Keys(m.names)) {
		var kinds []dialect.Kind
		for i, k := range m.seen {
			if m.kinds[m.names[prefix]]&(1<<i) != 0 {
				kinds = append(kinds, k)
			}
		}
		slices.Sort(kinds)
		if why := unmixable(kinds); why != "" {
			clash := mixture{Prefix: prefix, Wrong: why}
			if m.kinds[m.names[prefix]]&unsure != 0 {
				clash.Wrong += "; if all of these are locks"
			}
			for _, k := range kinds {
				clash.Kinds = append(clash.Kinds, string(k))
			}
			list = append(list, clash)
		}
	}
	return list
}

// unmixable says why kinds can't share keys; "" if they can.
func unmixable(kinds []dialect.Kind) string {
	units := map[time.Duration]bool{}
	timed, tokens := 0, 0
	for _, k := range kinds {
		switch k {
		case dialect.Seconds, dialect.FloatSeconds, dialect.OwnedSeconds, dialect.BinSeconds, dialect.TwoKeys:
			units[time.Second] = true
		case dialect.Millis, dialect.OwnedMillis:
			units[time.Millisecond] = true
		case dialect.Nanos:
			units[time.Nanosecond] = true
		}
		if k.Timed() {
			timed++
		} else if k != dialect.TwoKeys {
			tokens++
		}
	}
	switch {
	case len(units) > 1:
		return "times in different units: clients that count in the smaller one take every live lock of the others at once, and the others never recover a dead one"
	case timed > 0 && tokens > 0:
		return "times and tokens: clients of times steal tokens or throw at them, and clients of tokens never recover a dead time"
	}
	return ""
}

// A textReport is a survey for people.
type textReport struct {
	w      io.Writer
	at     time.Time
	tables int
}

func (r *textReport) begin(_ string, at time.Time) error {
	r.at = at
	return nil
}

// locks prints a table, and below it what is wrong with what.
func (r *textReport) locks(some []verdict.Verdict) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if r.tables++; r.tables == 1 {
		fmt.Fprintln(w, "KEY\tSTATUS\tUNTIL\tTTL\tFORMAT\tOWNER\tLOOKS LIKE")
	}
	for _, v := range some {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(v.Key), v.Status, ahead(v, r.at), ttl(v.State), v.Format, dash(v.Owner), likeness(v))
	}
	w.Flush()
	for _, v := range some {
		for _, wrong := range v.Wrong {
			fmt.Fprintf(&b, "\n%s: %s", printable(v.Key), wrong)
		}
	}
	if bytes.Contains(b.Bytes(), []byte("\n\n")) || b.Bytes()[b.Len()-1] != '\n' {
		b.WriteString("\n")
	}
	_, err := r.w.Write(b.Bytes())
	return err
}

func (r *textReport) end(s *survey) error {
	var b strings.Builder
	for _, m := range s.mixtures.clashes() {
		fmt.Fprintf(&b, "%s holds %s: %s\n", printable(m.Prefix+"*"), strings.Join(m.Kinds, " and "), m.Wrong)
	}
	fmt.Fprintf(&b, "%d of %d keys look like locks\n", s.found, s.keys)
	_, err := io.WriteString(r.w, b.String())
	return err
}

// ahead is when a lock ends, from now on.
func ahead(v verdict.Verdict, at time.Time) string {
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

// likeness is whose a lock looks like, and how sure that is.
func likeness(v verdict.Verdict) string {
	if len(v.Clients) == 0 {
		return "no client that we know"
	}
	return fmt.Sprintf("%s (%s)", some(v.Clients), v.Sure)
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
}

func (r *jsonReport) begin(server string, at time.Time) error {
	name, err := answer.Plain(server)
	r.head = fmt.Sprintf("{\n  \"schema\": %d,\n  \"server\": %s,\n  \"at\": %q,\n  \"locks\": [", answer.Schema, name, moment(at).Format(time.RFC3339Nano))
	return err
}

func (r *jsonReport) locks(some []verdict.Verdict) error {
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
	clashes, err := answer.Plain(s.mixtures.clashes())
	if err == nil {
		_, err = fmt.Fprintf(r.w, "%s\n  ],\n  \"mixtures\": %s,\n  \"found\": %d,\n  \"keys\": %d\n}\n", r.head, clashes, s.found, s.keys)
	}
	return err
}

// some are the first three names of a list.
func some(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}
