package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
	"github.com/spf13/cobra"
)

const inspectHelp = `Shows the lock on KEY: its status, its holder, its end. It changes nothing. Of several
KEYs it shows each, and whether one run holds all of them (setnxlock run KEY KEY).

  free        the key does not exist
  held        it has a lease that has not ended
  dead        its time has passed and no TTL runs: clients that write such times
              take it over; "run" says whether setnxlock run does
  persistent  it is held and has no TTL: only a release ends it
  foreign     it is not a lock of this kind: it counts as held

With --algorithm auto inspect reads the value by its form: "like" names the clients that
write so, how sure that is, and why. With another algorithm, or a dialect, inspect reads
the value as that lock does.

A token of setnxlock run names its owner: host, process and --owner.

The end of a token's lease is the server's to decide; a timestamp is compared with
the clock of each client that reads it, and here with this machine's.`

const inspectExamples = `  setnxlock inspect nightly-report
  setnxlock inspect --watch nightly-report
  setnxlock inspect --json nightly-report | jq -r .status`

func (a *app) inspectCommand() *cobra.Command {
	var asJSON, watch bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:         "inspect KEY...",
		Short:       "Show who holds a lock, in which format, until when",
		Long:        inspectHelp,
		Example:     inspectExamples,
		Annotations: map[string]string{"status": "  0      KEY was read, whatever its state.\n" + statusHelp},
		Args:        cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := positive("interval", every); err != nil {
				return exit.Usage(cmd, err)
			}
			if watch {
				return a.watch(args, every, asJSON)
			}
			return a.inspect(args, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON; one object a line with --watch")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print a line for each change, until it is interrupted")
	duration.Var(cmd.Flags(), &every, "interval", 500*time.Millisecond, "how often --watch looks")
	return cmd
}

func (a *app) inspect(keys []string, asJSON bool) error {
	ctx := context.Background()
	v, err := a.view(ctx, keys)
	if err != nil {
		return err
	}
	defer v.at.Close()
	all, err := v.looks(ctx)
	now := time.Now()
	if err == nil {
		a.tellReplica(ctx, v.at, nil)
	}
	switch {
	case err != nil:
		return err
	case !asJSON:
		return a.print(statesPage(all))
	case len(all) == 1:
		return a.printJSON(keyJSON(all[0], now))
	}
	j := jsonSeveral{jsonKey: keyJSON(verdict.Together(v.key, all), now), Together: relation(all)}
	for _, one := range all {
		j.Keys = append(j.Keys, keyJSON(one, now))
	}
	return a.printJSON(j)
}

// tellReplica says that a replica is read, over c or another connection, where the server tells its role. Of a cluster
// only masters are read.
func (a *app) tellReplica(ctx context.Context, p *deployment, c redis.Conn) {
	if len(p.nodes) > 1 || p.cluster {
		return
	}
	if c == nil {
		own, err := p.one().source.Get(ctx, "")
		if err != nil {
			return
		}
		defer own.Close()
		c = own
	}
	info, _ := redis.String(c.Do("INFO")) // a section's name would need Redis 2.6
	_, after, ok := strings.Cut(info, "\nrole:")
	role, _, _ := strings.Cut(after, "\r")
	if !ok && c.Err() == nil { // the user may lack INFO, and have ROLE
		if list, err := redis.Values(c.Do("ROLE")); err == nil && len(list) > 0 {
			role, _ = redis.String(list[0], nil)
		}
	}
	if role == "slave" {
		a.say("%s is a replica", p.one().name)
	}
}

// watch prints a line for each change of state.
func (a *app) watch(keys []string, every time.Duration, asJSON bool) error {
	ctx := context.Background()
	v, err := a.view(ctx, keys)
	if err != nil {
		return err
	}
	defer v.at.Close()
	if len(v.at.nodes) == 1 {
		a.introduceUnasked(ctx, v.at.one())
	}
	a.tellReplica(ctx, v.at, nil)
	var last []verdict.Verdict
	for {
		all, err := v.looks(ctx)
		if err != nil {
			return err
		}
		if last == nil {
			last = make([]verdict.Verdict, len(all))
		}
		for i, s := range all {
			if !changed(last[i], s) {
				continue
			}
			name := ""
			if len(all) > 1 {
				name = "  " + printable(s.Key)
			}
			if err := a.printChange(last[i], s, name, asJSON); err != nil {
				return err
			}
			last[i] = s
		}
		time.Sleep(every)
	}
}

// changed tells news from mere passage of time: two reads of one TTL differ by its rounding.
func changed(last, s verdict.Verdict) bool {
	moved := s.Until.Sub(last.Until).Abs()
	return last.Key == "" || s.Status != last.Status || s.Value != last.Value || !sameHolders(last, s) ||
		s.Until.IsZero() != last.Until.IsZero() || moved > 1500*time.Millisecond
}

// sameHolders reports whether two looks at a key showed the same holders, in any order.
func sameHolders(last, s verdict.Verdict) bool {
	values := func(v verdict.Verdict) (all []string) {
		for _, h := range v.Holders {
			all = append(all, h.Value)
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(values(last), values(s))
}

// view connects to the deployment of keys, to look at them and to remove from them.
func (a *app) view(ctx context.Context, keys []string) (*target, error) {
	key, err := a.keyOf(keys)
	if err != nil {
		return nil, err
	}
	return a.viewOf(ctx, key)
}

// viewOf does as view for a key, or several that were joined, with their prefixes.
func (a *app) viewOf(ctx context.Context, key string) (*target, error) {
	p, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	if a.readable(split(key)) { // as it stands, whatever lock would be chosen for it
		look := func(ctx context.Context) ([]verdict.Verdict, error) { return a.lookAll(ctx, p.one(), []string{key}) }
		return &target{at: p, key: key, looks: look}, nil
	}
	t, err := a.named(ctx, p, key)
	if err != nil {
		p.Close()
	}
	return t, err
}

// lens returns how the lock of the flags reads keys, and its algorithm, if it must look itself.
func (a *app) lens() (verdict.Lens, protocol.Algorithm, error) {
	d, err := a.dialectValue()
	if err != nil {
		return verdict.Lens{}, nil, err
	}
	list, err := a.fleet()
	if err != nil {
		return verdict.Lens{}, nil, err
	}
	family, _, _ := strings.Cut(a.algorithm, ":")
	switch {
	case len(list) > 0:
		if pair, ok := list[0].Algorithm.(getsetlock.TwoKeys); ok {
			return verdict.Lens{}, pair, nil
		}
		return verdict.Lens{Tokens: true}, nil, nil
	case a.algorithm == "bridge":
		b := bridges(d, false)
		return verdict.Lens{}, b[len(b)-1], nil
	case family == "getset", family == "auto" && a.dialect != "":
		return verdict.Lens{Time: &d}, nil, nil
	case family == "auto":
		return verdict.Lens{}, nil, nil
	}
	_, err = candidates(a.algorithm, d, false, "")
	return verdict.Lens{Tokens: true}, nil, err
}

// A looker looks at a key in place of a lock, so that the engine lends it a connection and bounds its time.
type looker struct {
	txlock.Guarded
	lens   verdict.Lens
	server *verdict.Server
	found  *verdict.Verdict
}

func (l looker) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	all, err := l.server.Read(c, now, key)
	if err != nil {
		return compat.State{Key: key, TTL: compat.NoTTL}, err
	}
	*l.found = l.lens.Judge(all[0], now)
	return l.found.State, nil
}

// look reads the key as the lock of the flags does, or by its form.
func (a *app) look(ctx context.Context, n node, key string) (verdict.Verdict, error) {
	lens, own, err := a.lens()
	if err != nil {
		return verdict.Verdict{}, err
	}
	if own != nil {
		s, err := compat.NewOn(n.source, own, a.lockOptions()).Inspect(ctx, key)
		v := verdict.FromState(s)
		if _, pair := own.(getsetlock.TwoKeys); pair {
			v.Lock = verdict.Pair
		}
		return v, err
	}
	var v verdict.Verdict
	var beside error // why it could not be looked at what stands beside the key
	// In milliseconds where the server counts in them, and of a value no more than a lock's. A proxy
	// closes the connection on a command that it does not have.
	for _, s := range []verdict.Server{
		{Millis: true, Part: true, Beside: true}, {Millis: true, Beside: true}, {Beside: true}, {},
	} {
		if s.Beside {
			beside = nil
		}
		l := looker{lens: lens, server: &s, found: &v}
		if _, err = compat.NewOn(n.source, l, a.lockOptions()).Inspect(ctx, key); err == nil || errors.Is(err, compat.ErrInvalid) {
			break
		}
		beside = err
	}
	if err == nil && beside != nil && v.Status == compat.StatusFree {
		v.Unseen(sentence(beside))
	}
	if err == nil && v.Lock == verdict.NoLock {
		err = fmt.Errorf("%w: %q is a %s", compat.ErrForeign, key, v.Format)
	}
	return v, err
}

// seesAll refuses keys with a lock that the chosen one would not see, or could not name: readers and slots beside the
// key, other clients' hashes and sorted sets. It leaves to the lock what it can't learn of the key itself.
func (a *app) seesAll(ctx context.Context, p *deployment, t *target) error {
	if a.algorithm == "redlock" {
		return nil
	}
	seesReaders := strings.HasPrefix(a.algorithm, "rw:")
	for _, key := range split(t.key) {
		c, err := p.one().source.Get(ctx, key)
		if err != nil {
			return nil
		}
		// A user who may lock may GET: the server refuses a set for its type, and so shows it.
		replies, _ := protocol.NewConn(c).Pipe(protocol.Cmd{"GET", protocol.Aux(key, "readers")}, protocol.Cmd{"TYPE", key}, protocol.Cmd{"GET", protocol.Aux(key, "limit")})
		c.Close()
		if len(replies) < 3 {
			continue
		}
		refused, _ := replies[0].(redis.Error)
		readers := !seesReaders && errors.Is(protocol.Foreign(key, refused), compat.ErrForeign)
		_, some := replies[2].([]byte) // not the refusal of a user who may not GET it
		limited := some && a.holders == 0
		if !readers && replies[1] != "hash" && replies[1] != "zset" && !limited {
			continue
		}
		v, err := a.look(ctx, p.one(), key)
		if err != nil {
			continue
		}
		why, hint := "", "--algorithm rw:write, or rw:read"
		if limited && (!readers || v.Lock == verdict.Slots) {
			hint = "--limit " + strconv.Itoa(limitBeside(ctx, p.one(), key))
		}
		switch {
		case readers && v.Lock == verdict.RW && !v.Obtainable:
			why = " " + v.Refusal() + ": it is a lock for readers and a writer, and this one does not see the readers"
		case (readers || limited) && v.IsUnseen():
			why = ": " + v.Wrong[0]
		case limited && v.Lock == verdict.Slots:
			why = " " + v.Refusal() + ": several clients share it (--limit), and this lock does not see them"
		case v.Lock == verdict.Theirs:
			why, hint = " holds a lock of "+v.Clients[0]+", which no lock of setnxlock excludes", "use another key"
		}
		if why != "" {
			return exit.Because(statusForeign, errors.New(strconv.Quote(key)+why), hint)
		}
	}
	return nil
}

// lookAll calls look for several keys.
func (a *app) lookAll(ctx context.Context, n node, keys []string) ([]verdict.Verdict, error) {
	var all []verdict.Verdict
	for _, k := range keys {
		v, err := a.look(ctx, n, k)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// statePage writes a verdict for people.
func statePage(s verdict.Verdict) string {
	var page strings.Builder
	w := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "key\t%s\n", listed(split(s.Key), printable))
	fmt.Fprintf(w, "status\t%s%s\n", string(s.Status), meaning(s))
	if s.Status != compat.StatusFree {
		printHolder(w, s)
	}
	for _, wrong := range s.Wrong {
		fmt.Fprintf(w, "wrong\t%s\n", wrong)
	}
	w.Flush()
	return page.String()
}

func printHolder(w io.Writer, s verdict.Verdict) {
	now := time.Now()
	if s.Format != "" {
		fmt.Fprintf(w, "format\t%s\n", s.Format)
	}
	fmt.Fprintf(w, "token\t%s\n", printable(s.Value))
	if s.Owner != "" && s.Owner != s.Value {
		fmt.Fprintf(w, "owner\t%s\n", printable(s.Owner))
	}
	for _, h := range s.Holders {
		fmt.Fprintf(w, "holder\t%s%s%s\n", printable(h.Value), holderOwner(s, h), holderEnd(h))
	}
	fmt.Fprintf(w, "until\t%s\n", end(s.State, now))
	if s.TTL != compat.NoTTL || s.Until.IsZero() || s.Clock == "clients" { // else the TTL is on other keys
		fmt.Fprintf(w, "ttl\t%s\n", ttl(s.State))
	}
	if len(s.Clients) > 0 {
		fmt.Fprintf(w, "like\t%s\n", likeClients(s))
	}
	if s.Status == compat.StatusDead && !s.Obtainable {
		fmt.Fprintf(w, "run\twaits: this lock writes tokens and takes no time over; with --dialect %s it does\n", cmp.Or(takesOver(s), "NAME"))
	}
}

// likeClients names the likely clients, how sure that is, and why.
func likeClients(s verdict.Verdict) string {
	return fmt.Sprintf("%s (%s: %s)", firstThree(s.Clients), s.Sure, strings.Join(s.Why, "; "))
}

// takesOver returns a dialect whose clients take over an expired time.
func takesOver(s verdict.Verdict) string {
	if s.Lock == verdict.Pair {
		return "mlanett-redis-lock"
	}
	for _, name := range s.Clients {
		if f, err := dialect.Lookup(name); err == nil && f.Kind.Timed() {
			return name
		}
	}
	return timed(s.Value)
}

// meaning explains a status in more than its word.
func meaning(s verdict.Verdict) string {
	switch {
	case s.Status == compat.StatusDead && s.Obtainable:
		return " (its time has passed: the next client takes it over)"
	case s.Status == compat.StatusDead:
		return " (its time has passed: clients that write such times take it over)"
	case s.Status == compat.StatusPersistent:
		return " (it has no TTL: nothing but a release ends it)"
	case s.Status == compat.StatusForeign:
		return " (it can't be read as this lock: it counts as held)"
	}
	return ""
}

func end(s compat.State, now time.Time) string {
	if s.Until.IsZero() {
		return "-"
	}
	when := s.Until.Sub(now)
	in := "in " + span(when)
	if when < 0 {
		in = span(-when) + " ago"
	}
	whose := "the server's clock"
	if s.Clock == "clients" {
		whose = "the clients' clocks"
	}
	return fmt.Sprintf("%s, %s, by %s", verdict.Moment(s.Until), in, whose)
}

// span writes a duration for people: in days, if many.
func span(d time.Duration) string {
	if days := int(d / (24 * time.Hour)); days > 2 {
		return fmt.Sprintf("%d days", days)
	}
	return d.Round(100 * time.Millisecond).String()
}

// holderOwner names the owner of one slot of several, which different processes hold.
func holderOwner(s verdict.Verdict, h compat.Holder) string {
	owner, ok := dialect.OwnerOf(h.Value)
	if s.Lock != verdict.Slots || !ok {
		return ""
	}
	return ", " + printable(owner)
}

func holderEnd(h compat.Holder) string {
	if h.Until.IsZero() {
		return ""
	}
	return ", until " + verdict.Moment(h.Until)
}

func ttl(s compat.State) string {
	if s.TTL == compat.NoTTL {
		return "none"
	}
	return s.TTL.String()
}

// printable quotes a value that would move a terminal's cursor, change its colours or turn the direction of
// its text.
func printable(v string) string {
	if q := strconv.QuoteToGraphic(v); q != `"`+v+`"` || strings.Contains(v, " ") || v == "" {
		return strconv.Quote(v)
	}
	return v
}

// printChange writes one line of --watch, with the key's name if there are several.
func (a *app) printChange(last, s verdict.Verdict, name string, asJSON bool) error {
	if asJSON {
		return answer.Line(a.out, keyJSON(s, time.Now()))
	}
	line := fmt.Sprintf("%s%s  %-10s", time.Now().Format("2006-01-02 15:04:05.000"), name, string(s.Status))
	if s.Status != compat.StatusFree {
		line += fmt.Sprintf("  %s %s", s.Format, printable(s.Value))
		if !s.Until.IsZero() {
			line += "  until " + verdict.Moment(s.Until)
		}
		if last.Value == s.Value && last.Status == s.Status && sameHolders(last, s) {
			line += "  (extended)"
		}
	}
	return a.print(strings.TrimRight(line, " ") + "\n")
}
