package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/spf13/cobra"
)

const doctorHelp = `Tests what the server can do for a lock, on scratch keys with random names that it
removes. It says which algorithm to use there and why, how far the server's clock
is from this machine's, and which settings of the server may break a lock.

With an --algorithm other than auto, it judges that algorithm on this server.

--verbose shows each test and what the server answered.`

const doctorStatus = `  0      A lock is safe here, within the limits of the risks and warnings.
  1      It is not: no algorithm (or not the one asked for) excludes others
         here, or the server is a replica, refuses writes, or may drop held
         locks.
  64     Wrong usage.
` + noServerHelp

const doctorExamples = `  setnxlock doctor
  setnxlock doctor --redis 10.0.0.5:6379 --algorithm tx
  setnxlock doctor --json | jq -r .algorithm`

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:         "doctor",
		Short:       "Show what a server can do, and which lock is safe on it",
		Long:        doctorHelp,
		Example:     doctorExamples,
		Annotations: map[string]string{"status": doctorStatus},
		RunE:        func(*cobra.Command, []string) error { return a.doctor(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// A diagnosis holds doctor's results.
type diagnosis struct {
	Server    string           `json:"server"`
	Away      string           `json:"away,omitempty"` // why a server of a quorum could not be asked
	Version   string           `json:"version,omitempty"`
	Kind      string           `json:"kind,omitempty"`
	Own       string           `json:"own_version,omitempty"` // of a server that is not Redis
	Role      string           `json:"role,omitempty"`
	Master    string           `json:"master,omitempty"`
	Safe      bool             `json:"safe"`
	Unsafe    []string         `json:"unsafe,omitempty"` // why not
	Algorithm string           `json:"algorithm,omitempty"`
	Why       string           `json:"why,omitempty"`
	Risks     []string         `json:"risks,omitempty"`
	Clock     *offset          `json:"clock,omitempty"`
	Can       []canDo          `json:"can"`
	Warnings  []probe.Warning  `json:"warnings,omitempty"`
	Checks    []probe.Question `json:"checks,omitempty"`
}

// An offset is how far the server's clock is ahead of ours.
type offset struct {
	Ahead       float64 `json:"ahead_seconds"`
	Uncertainty float64 `json:"uncertainty_seconds"`
}

// A canDo says of an ability whether the server has it.
type canDo struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Asked  bool   `json:"asked"`            // false: nothing is known of it
	Denied bool   `json:"denied,omitempty"` // to this user: the server may have it
	What   string `json:"what"`
	Since  string `json:"since"`
}

func (a *app) doctor(asJSON bool) error {
	ctx := context.Background()
	p, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	var safe bool
	var answer any
	page := ""
	if terminal := screen.New(a.out); len(p.nodes) > 1 {
		q := a.diagnoseQuorum(ctx, p)
		safe, answer, page = q.Safe, q, q.page(terminal, a.verbose)
	} else {
		d, err := a.diagnose(ctx, p.one())
		if err != nil {
			return err
		}
		safe, answer, page = d.Safe, d, d.page(terminal, a.verbose)
	}
	if asJSON {
		err = a.printJSON(answer)
	} else {
		_, err = io.WriteString(a.out, page)
	}
	if err == nil && !safe {
		err = exit.With(1)
	}
	return err
}

// A quorumDiagnosis holds doctor's results on the servers of a quorum.
type quorumDiagnosis struct {
	Safe    bool         `json:"safe"`
	Need    int          `json:"need"`             // how many servers make a majority
	Unsafe  []string     `json:"unsafe,omitempty"` // why it is not, although its servers are
	Servers []*diagnosis `json:"servers"`

	safe int // how many servers are
}

// diagnoseQuorum looks at each server of a quorum. The lock is safe if it is on
// every server that answers, and a majority does: redlock refuses one that is not.
func (a *app) diagnoseQuorum(ctx context.Context, p *deployment) *quorumDiagnosis {
	q := &quorumDiagnosis{Need: len(p.nodes)/2 + 1, Servers: make([]*diagnosis, len(p.nodes))}
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() {
			d, err := a.diagnose(ctx, n)
			if err != nil {
				d = &diagnosis{Server: n.name, Away: scrubbed(sentence(err)), Can: []canDo{}}
			}
			q.Servers[i] = d
		})
	}
	all.Wait()
	unsafe := 0
	for _, d := range q.Servers {
		if d.Safe {
			q.safe++
		} else if d.Away == "" {
			unsafe++
		}
	}
	q.Safe = q.safe >= q.Need && unsafe == 0
	if !q.Safe {
		return q
	}
	if err := a.tryQuorum(ctx, p); unfit(err) || errors.Is(err, compat.ErrInvalid) {
		q.Safe, q.Unsafe = false, []string{sentence(err)}
	}
	return q
}

// tryQuorum takes and releases a scratch lock: that shows a server with two addresses, which has one vote.
func (a *app) tryQuorum(ctx context.Context, p *deployment) error {
	key := a.prefix + "setnxlock-doctor-" + protocol.NewToken()
	b, err := a.lock(ctx, p, []string{key})
	if err != nil {
		return err
	}
	k := compat.NewLocker(b, a.lockOptions())
	defer k.Close(ctx)
	l, err := k.TryLock(ctx, key, 30*time.Second)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// page writes the diagnoses for people.
func (q *quorumDiagnosis) page(s screen.Screen, verbose bool) string {
	page, verdict := "", s.Good("safe")
	for _, d := range q.Servers {
		page += d.page(s, verbose) + "\n"
	}
	if !q.Safe {
		verdict = s.Bad("unsafe")
	}
	for _, u := range q.Unsafe {
		page += "UNSAFE  " + u + "\n"
	}
	return page + fmt.Sprintf("quorum  %s: on %d of %d servers; %d make a majority\n", verdict, q.safe, len(q.Servers), q.Need)
}

func (a *app) diagnose(ctx context.Context, n node) (*diagnosis, error) {
	o := probe.Options{Prefix: a.prefix, Timeout: a.timeout}
	r, err := probe.Ask(ctx, n.source, o)
	if err != nil && !unfit(err) {
		return nil, a.probing(ctx, n, err)
	}
	if err != nil && a.sentinelHere(err) {
		return nil, a.notASentinel()
	}
	a.introduce(ctx, n, r)
	d := &diagnosis{
		Server: n.name, Version: r.Version, Kind: r.Kind, Own: r.Own, Role: r.Role, Master: r.Master,
		Can: abilities(r), Warnings: r.Warnings, Checks: r.Questions,
	}
	if err == nil {
		err = a.recommend(ctx, d, n, r)
	}
	var refused redis.Error
	switch {
	case unfit(err), errors.As(err, &refused):
		d.Unsafe = append(d.Unsafe, sentence(errors.New(locks.InCommandWords(err.Error()))))
	case err != nil:
		return nil, err
	}
	if r.Writable {
		if ahead, plusMinus, err := probe.Offset(ctx, n.source, nil, o); err == nil {
			d.Clock = &offset{ahead.Seconds(), plusMinus.Seconds()}
			d.judgeClock(ahead, plusMinus)
		}
	}
	d.Safe = len(d.Unsafe) == 0
	return d, nil
}

// judgeClock warns if timestamps can't be compared by the server's clock and this machine's.
func (d *diagnosis) judgeClock(ahead, plusMinus time.Duration) {
	if off := ahead.Abs() - plusMinus; off > time.Second {
		d.Warnings = append(slices.Clip(d.Warnings), probe.Warning{ID: "clock-offset", Text: fmt.Sprintf(
			"its clock and this machine's differ by %v: if other clients go by its clock, a getset lock of theirs ends that much too early or too late here", ahead.Abs().Round(10*time.Millisecond))})
	}
}

func abilities(r probe.Report) []canDo {
	var list []canDo
	for _, a := range ability.All() {
		answer := r.Answers[a]
		list = append(list, canDo{
			Name: string(a), OK: r.Can(a), Asked: answer.Verdict != ability.NotAsked, Denied: forbidden(answer.Reply), What: a.What(), Since: a.Since(),
		})
	}
	return list
}

// forbidden reports a reply that denies this user a command or a key.
func forbidden(reply redis.Error) bool {
	d := denial(reply)
	return reply != "" && d != nil && d.About == "permission"
}

// says returns an ability's word in the table.
func (c canDo) says() string {
	switch {
	case c.Denied:
		return "denied"
	case !c.Asked:
		return "?"
	}
	return yesOrNo(c.OK)
}

// page writes the diagnosis for people.
func (d *diagnosis) page(s screen.Screen, verbose bool) string {
	var page strings.Builder
	b := screen.Page{W: &page}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(name, text string) {
		for line := range strings.Lines(screen.Paragraph("", text, 66)) {
			fmt.Fprintf(w, "%s\t%s", name, line)
			name = ""
		}
	}
	row("server", d.Server)
	if d.Away != "" {
		row("away", d.Away)
		w.Flush()
		return page.String()
	}
	row("version", d.title())
	if d.Clock != nil {
		row("clock", d.Clock.String())
	}
	if d.Algorithm != "" {
		row("algorithm", d.Algorithm)
		row("why", d.Why)
	}
	for _, r := range d.Risks {
		row("risk", r)
	}
	for _, n := range d.Warnings {
		if !slices.Contains(d.Risks, n.Text) { // told once
			row("warning", n.Text)
		}
	}
	for _, u := range d.Unsafe {
		row("UNSAFE", u)
	}
	w.Flush()
	fmt.Fprintln(b)
	w = tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, c := range d.Can {
		fmt.Fprintf(w, "%s\t%s\t%s\tsince %s\n", c.says(), c.Name, c.What, c.Since)
	}
	w.Flush()
	if verbose {
		fmt.Fprintln(b)
		for _, c := range d.Checks {
			ok := yesOrNo(c.OK)
			if !c.OK && strings.Contains(c.Answer, "NOPERM ") {
				ok = "denied"
			}
			fmt.Fprintf(b, "%-4s %s\n", ok, c.Name)
			fmt.Fprintf(b, "     asked   %s\n     answer  %s\n", c.Asked, c.Answer)
		}
	}
	return page.String() + "\n" + d.verdict(s) + "\n"
}

func (d *diagnosis) verdict(s screen.Screen) string {
	switch {
	case !d.Safe:
		return s.Bad("unsafe") + ", as said above"
	case len(d.Warnings)+len(d.Risks) > 0:
		return s.Good("safe") + ", within the limits above"
	}
	return s.Good("safe")
}

// title puts version, kind and role in one line.
func (d *diagnosis) title() string {
	t := product(d.Kind, d.Own, d.Version)
	if d.Version == "" && d.Own == "" {
		t += ", which does not tell its version"
	}
	if d.Role != "" {
		t += ", " + d.Role
	}
	return t
}

// product names a server in its own version. The redis_version of another server is the Redis that it is
// like.
func product(kind, own, version string) string {
	switch name := map[string]string{"redis": "Redis", "": "unknown", "proxy": "a proxy"}[kind]; {
	case name != "":
		return strings.TrimSpace(name + " " + version)
	case version == "":
		return strings.TrimSpace(kind + " " + own)
	default:
		return strings.TrimSpace(kind+" "+own) + ", like Redis " + version
	}
}

func (o *offset) String() string {
	round := func(seconds float64) time.Duration {
		return max(time.Duration(seconds*float64(time.Second)).Round(time.Millisecond), time.Millisecond)
	}
	within := round(o.Uncertainty)
	switch ahead := time.Duration(o.Ahead * float64(time.Second)); {
	case ahead.Abs() <= within:
		return fmt.Sprintf("as this machine's, to within %v", within)
	case ahead < 0:
		return fmt.Sprintf("%v behind this machine's, give or take %v", round(-o.Ahead), within)
	default:
		return fmt.Sprintf("%v ahead of this machine's, give or take %v", round(o.Ahead), within)
	}
}

func yesOrNo(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

// recommend fills in the algorithm, and its dangers here.
func (a *app) recommend(ctx context.Context, d *diagnosis, n node, r probe.Report) error {
	choice, err := a.chooseFor(ctx, n, r)
	fleet, _ := a.fleet() // its error is pick's, too
	if err == nil && (len(fleet) > 0 || a.algorithm != "auto" && a.algorithm != "redlock") {
		err = a.judge(ctx, n, r, &choice)
	}
	if err != nil {
		return err
	}
	d.Algorithm, d.Why, d.Risks = choice.Name, choice.Why, choice.Risks
	d.Unsafe = append(d.Unsafe, dangers(choice.Name, evictionOf(r))...)
	return nil
}

// judge replaces the best algorithm by the one of --algorithm.
func (a *app) judge(ctx context.Context, n node, r probe.Report, best *probe.Choice) error {
	c, err := a.pick(ctx, n, a.prefix+"doctor")
	if err != nil || c.name == best.Name {
		return err
	}
	why := "it was asked for, and what it needs is there; the safest here is " + best.Name
	best.Risks = nil
	if d, err := a.dialectValue(); err == nil && strings.HasPrefix(c.name, "getset:") {
		if timestamps, err := probe.Choose(ctx, n.source, r, probe.Options{Dialect: d, Prefix: a.prefix, Timeout: a.timeout}); err == nil {
			best.Risks = timestamps.Risks
		}
	}
	best.Name, best.Why = c.name, why
	return nil
}
