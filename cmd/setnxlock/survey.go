package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/spf13/cobra"
)

const surveyHelp = `Looks at all keys and lists those that can be locks: their format, which clients
write it, who holds the lock, until when, and whether it is dead or alive. Where the
names of keys begin alike it says which formats can't be mixed safely. It changes
nothing.

SCAN lists the keys. A server before 2.8 lacks it: there KEYS lists them, which
blocks all other clients meanwhile, half a second for a million keys.

A value that could be any text is listed only with --match or --all: "hello" can be
a lock too.

  alive       its deadline has not passed
  dead        its deadline has passed: its clients take it over
  persistent  nothing will end it: its holder may have died (setnxlock repair)
  two-key     its deadline is on another key, lock:expire:NAME`

const surveyExamples = `  setnxlock survey
  setnxlock survey --match 'lock:*'
  setnxlock survey --json | jq -r '.locks[] | select(.wrong) | .key'`

func (a *app) surveyCommand() *cobra.Command {
	var match string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:               "survey",
		Short:             "Tell which locks of which clients stand on a server, and what is wrong with them",
		Long:              surveyHelp,
		Example:           surveyExamples,
		Annotations:       map[string]string{"status": "  0      The keys were looked at, whatever was found.\n" + statusHelp},
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              usageErrors(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			found, err := a.survey(context.Background(), match, all)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(found)
			}
			return found.print(a.out)
		},
	}
	cmd.Flags().StringVar(&match, "match", "", "look only at keys that match `PATTERN`, as KEYS understands it; --prefix is put before it")
	cmd.Flags().BoolVar(&all, "all", false, "list every text, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A survey is what stands on a server.
type survey struct {
	Server   string     `json:"server"`
	Keys     int        `json:"keys"` // that were looked at
	Locks    []surveyed `json:"locks"`
	Mixtures []mixture  `json:"mixtures,omitempty"`
	at       time.Time
}

// A surveyed is a key that can be a lock, by its likeliest reading.
type surveyed struct {
	Key     string     `json:"key"`
	Kind    string     `json:"kind"` // as docs/mixing.md calls it: "T-s"
	Format  string     `json:"format"`
	Clients []string   `json:"clients"` // who writes so
	Owner   string     `json:"owner,omitempty"`
	Value   string     `json:"value"`
	Status  string     `json:"status"`
	Until   *time.Time `json:"until,omitempty"`
	Clock   string     `json:"clock,omitempty"` // whose decides: "server" or "clients"
	TTL     *float64   `json:"ttl_seconds,omitempty"`
	Wrong   []string   `json:"wrong,omitempty"`
	Else    []string   `json:"else,omitempty"` // what it can be besides
	finding dialect.Finding
	ttl     time.Duration
}

// A mixture is what keys whose names begin alike hold, and can't hold safely.
type mixture struct {
	Prefix string   `json:"prefix"`
	Kinds  []string `json:"kinds"`
	Wrong  string   `json:"wrong"`
}

// survey looks at all keys of one server.
func (a *app) survey(ctx context.Context, match string, all bool) (*survey, error) {
	if len(a.redis.list) > 1 || a.cluster {
		return nil, &failure{statusUsage, errors.New("a survey is of one server"), "give the address of one; of a cluster, of one master after the other"}
	}
	p, c, err := a.session(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	defer c.Close()
	s := &survey{Server: p.one().name, at: time.Now()}
	var looked atomic.Int64
	size, err := redis.Int(c.Do("DBSIZE"))
	if err != nil {
		size = -1
	}
	wipe := newStage(a.errs).Progress("keys", func() int { return int(looked.Load()) }, size)
	defer wipe()
	err = a.eachKeys(c, a.prefix, match, func(keys []string) error {
		looked.Add(int64(len(keys)))
		return s.look(c, keys, all || match != "")
	})
	if err != nil {
		return nil, err
	}
	s.Keys = int(looked.Load())
	slices.SortFunc(s.Locks, func(x, y surveyed) int { return strings.Compare(x.Key, y.Key) })
	s.Locks = slices.CompactFunc(s.Locks, func(x, y surveyed) bool { return x.Key == y.Key }) // SCAN may tell a key twice
	s.Mixtures = mixtures(s.Locks)
	return s, nil
}

// eachKeys lists the keys in batches: by SCAN, or by KEYS where there is none.
func (a *app) eachKeys(c redis.Conn, prefix, match string, f func([]string) error) error {
	if match == "" {
		match = "*"
	}
	pattern := globbed(prefix) + match
	const batch = 1000
	for cursor := "0"; ; {
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", batch))
		if errors.Is(compat.NewConn(c).Lacks(err, "it has no SCAN", "KEYS"), compat.ErrUnsafeServer) {
			break
		}
		if err != nil {
			return err
		}
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
		return err
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

// look reads keys, and adds those that can be locks. anyText says that a text
// of no known form counts.
func (s *survey) look(c redis.Conn, keys []string, anyText bool) error {
	var cmds []compat.Cmd
	for _, k := range keys {
		cmds = append(cmds, compat.Cmd{"GET", k}, compat.Cmd{"TTL", k})
	}
	if len(cmds) == 0 {
		return nil
	}
	replies, err := compat.NewConn(c).Pipe(cmds...)
	if err != nil {
		return err
	}
	for i, k := range keys {
		value, err := redis.String(replies[2*i], nil)
		if err != nil {
			continue // gone, or no string
		}
		ttl, err := compat.NewConn(c).ReadTTL(replies[2*i+1], time.Second)
		if err != nil {
			return err
		}
		if l, ok := recognized(k, value, ttl, s.at, anyText); ok {
			s.Locks = append(s.Locks, l)
		}
	}
	return nil
}

// recognized is what a key holds, by its likeliest reading, if it can be a lock.
func recognized(key, value string, ttl time.Duration, now time.Time, anyText bool) (surveyed, bool) {
	if _, deadline, _ := dialect.PairOf(key); strings.HasSuffix(key, ":fence") || strings.Contains(key, ":fence:{") || key == deadline {
		return surveyed{}, false // a counter beside a lock; the second of two keys
	}
	all := dialect.Recognise(key, value, ttl, now)
	if len(all) == 0 {
		return surveyed{}, false
	}
	f := all[0]
	if (f.What == string(dialect.TokenText) || f.Kind == dialect.Flag) && !anyText {
		return surveyed{}, false
	}
	l := surveyed{
		Key: key, Kind: string(f.Kind), Format: f.What, Clients: f.Formats(), Owner: f.Owner, Value: value,
		Status: string(f.Status), Clock: f.Clock, Wrong: f.Wrong, finding: f, ttl: ttl,
	}
	if l.Owner == value {
		l.Owner = ""
	}
	if !f.Until.IsZero() {
		until := f.Until.UTC().Round(time.Millisecond)
		l.Until = &until
	}
	if ttl != compat.NoTTL {
		seconds := ttl.Seconds()
		l.TTL = &seconds
	}
	for _, other := range all[1:] {
		l.Else = append(l.Else, other.What)
	}
	return l, true
}

// mixtures are the groups of keys, by what their names begin with, in which one
// client would take or keep another's lock wrongly.
func mixtures(locks []surveyed) []mixture {
	groups := map[string]map[dialect.Kind]bool{}
	for _, l := range locks {
		p := ""
		if i := strings.LastIndexAny(l.Key, ":./"); i >= 0 {
			p = l.Key[:i+1]
		}
		if groups[p] == nil {
			groups[p] = map[dialect.Kind]bool{}
		}
		groups[p][l.finding.Kind] = true
	}
	var list []mixture
	for _, p := range slices.Sorted(maps.Keys(groups)) {
		kinds := slices.Sorted(maps.Keys(groups[p]))
		if why := unmixable(kinds); why != "" {
			m := mixture{Prefix: p, Wrong: why}
			for _, k := range kinds {
				m.Kinds = append(m.Kinds, string(k))
			}
			list = append(list, m)
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

// print is the survey for people.
func (s *survey) print(out io.Writer) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(s.Locks) > 0 {
		fmt.Fprintln(w, "KEY\tFORMAT\tSTATUS\tUNTIL\tTTL\tOWNER\tCLIENTS")
	}
	for _, l := range s.Locks {
		until, ttl := "-", "none"
		if l.Until != nil {
			until = fmt.Sprintf("%+v", l.Until.Sub(s.at).Round(time.Second))
			if !strings.HasPrefix(until, "-") {
				until = "+" + until
			}
		}
		if l.TTL != nil {
			ttl = l.ttl.String()
		}
		owner := l.Owner
		if owner == "" {
			owner = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(l.Key), l.Format, l.Status, until, ttl, printable(owner), some(l.Clients))
	}
	w.Flush()
	for _, l := range s.Locks {
		for _, wrong := range l.Wrong {
			fmt.Fprintf(&b, "\n%s: %s", printable(l.Key), wrong)
		}
	}
	for _, m := range s.Mixtures {
		name := printable(m.Prefix + "*")
		fmt.Fprintf(&b, "\n%s holds %s: %s", name, strings.Join(m.Kinds, " and "), m.Wrong)
	}
	if len(s.Locks) > 0 {
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "%d of %d keys can be locks\n", len(s.Locks), s.Keys)
	_, err := io.WriteString(out, b.String())
	return err
}

// some are the first three names of a list.
func some(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}
