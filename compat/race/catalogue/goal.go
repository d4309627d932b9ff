package catalogue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// A Goal is one thing that an answer to an exercise must do, in the scenario's words:
//
//	breaks exclusion            that invariant, and no other first
//	breaks nothing              none that the scenario is about
//	held C1                     C1 holds the lock at some time
//	held C1 and C2              each does, in any order
//	held C1 then C2             C2 begins to hold it after C1 has
//	uses redis.failover         a word of a schedule stands in it
//	without C1.pause            it does not
//	without time                no time passes
//	without a crash             nobody crashes
//	a lost reply                some command runs and its reply is lost
//	a lost request              some command never arrives
//	time passes once            there is one word for it
//	4s pass                     so much, in all
//	C1 crashes after EXPIRE     that is the last that C1 has sent
//	C1's EXPIRE before C2's GET the first of each
//	C1's DEL after its lease    C1 sends it when the lease that it took is over
//	C2's SETNX after 9s         it is sent then, or later
//	C2's SETNX answers 1        once, at least
//	C1 holds by 2s              it begins to hold the lock then, or earlier
//	C1 releases                 it held the lock, and gives it back itself
//	C2 is refused               it asks, and does not get the lock
//	S1.restart while C1 holds   the word comes while C1 holds the lock
//	S1.restart after C1 held    it comes when C1 has held it, and does not any more
//	C2's TTL while the key is there
//	another order               the words are those of the schedule that is shown, in another order
type Goal struct{ Text string }

// missing describes an answer's lack of the goal; "": it lacks nothing.
func (g Goal) missing(a *attempt) string {
	form, words := formOf(g.Text)
	return form.missing(a, words)
}

// formOf finds a goal's form, and the words in its places; nil: it has none.
func formOf(text string) (*goalForm, []string) {
	for i := range goalForms() {
		if m := goalForms()[i].form.FindStringSubmatch(text); m != nil {
			return &goalForms()[i], m[1:]
		}
	}
	return nil, nil
}

// An attempt is an answer as it ran. An event and a choice of the same number are the same step.
type attempt struct {
	race.Trace
	made  []race.Choice
	shown string // the words of the scenario's schedule
}

// goalForms are the goals' forms, each with what an answer lacks of it.
var goalForms = sync.OnceValue(func() (list []goalForm) {
	for form, missing := range map[string]func(a *attempt, w []string) string{
		`breaks ([a-z-]+)`:                         (*attempt).breaks,
		`held (C\d)`:                               (*attempt).held,
		`held (C\d) and (C\d)`:                     (*attempt).held,
		`held (C\d) then (C\d)`:                    (*attempt).heldThen,
		`uses (\S+)`:                               (*attempt).uses,
		`without (a crash|time|\S+)`:               (*attempt).without,
		`a lost (reply|request)`:                   (*attempt).loses,
		`time passes once`:                         (*attempt).once,
		`(\d+m?s) pass`:                            (*attempt).passes,
		`(C\d) crashes after ([A-Z]+)`:             (*attempt).crashes,
		`(C\d)'s ([A-Z]+) before (C\d)'s ([A-Z]+)`: (*attempt).before,
		`(C\d)'s ([A-Z]+) after its lease`:         (*attempt).late,
		`(C\d)'s ([A-Z]+) after (\d+m?s)`:          (*attempt).from,
		`(C\d)'s ([A-Z]+) answers (\S+)`:           (*attempt).answers,
		`(C\d)'s ([A-Z]+) while the key is there`:  (*attempt).there,
		`(C\d) holds by (\d+m?s)`:                  (*attempt).by,
		`(C\d) releases`:                           (*attempt).releases,
		`(C\d) is refused`:                         (*attempt).refused,
		`(\S+) (while|after) (C\d) (?:holds|held)`: (*attempt).during,
		`another order`:                            (*attempt).reordered,
	} {
		list = append(list, goalForm{regexp.MustCompile("^" + form + "$"), missing})
	}
	return list
})

type goalForm struct {
	form    *regexp.Regexp
	missing func(*attempt, []string) string
}

// parseGoals reads a line of goals.
func parseGoals(text string) ([]Goal, error) {
	var list []Goal
	for _, clause := range strings.Split(text, ", ") {
		clause = strings.TrimSpace(clause)
		form, words := formOf(clause)
		if form == nil {
			return nil, fmt.Errorf("%q is no goal: go doc compat/race/catalogue Goal has them", clause)
		}
		if strings.HasPrefix(clause, "breaks ") && words[0] != "nothing" && !slices.Contains(race.Invariants(), words[0]) {
			return nil, fmt.Errorf("no invariant %q", words[0])
		}
		list = append(list, Goal{clause})
	}
	return list, nil
}

func (a *attempt) breaks(w []string) string {
	v := a.Verdict
	switch {
	case w[0] == "nothing" && v.Violated != "":
		return fmt.Sprintf("it breaks %s at step %d: nothing may break", v.Violated, v.Step)
	case w[0] == "nothing" || w[0] == v.Violated:
		return ""
	case v.Violated == "":
		return "nothing breaks: break " + w[0]
	}
	return fmt.Sprintf("it breaks %s at step %d: break %s", v.Violated, v.Step, w[0])
}

// holds lists the steps after which a client holds the lock.
func (a *attempt) holds(client string) []int {
	var list []int
	for i, e := range a.Events {
		if s := e.Belief[client].State; s == race.Holds || s == race.Acts {
			list = append(list, i)
		}
	}
	return list
}

func (a *attempt) held(w []string) string {
	var none []string
	for _, client := range w {
		if a.holds(client) == nil {
			none = append(none, client+" never holds the lock")
		}
	}
	return strings.Join(none, ", ")
}

func (a *attempt) heldThen(w []string) string {
	if none := a.held(w); none != "" {
		return none
	}
	first := a.holds(w[0])[0]
	if i := slices.Max(a.holds(w[1])); i < first {
		return fmt.Sprintf("%s holds the lock before %s, and not after it", w[1], w[0])
	}
	for _, i := range a.holds(w[1]) { // it begins then
		if i > first && (i == 0 || !slices.Contains(a.holds(w[1]), i-1)) {
			return ""
		}
	}
	return fmt.Sprintf("%s does not begin to hold the lock after %s", w[1], w[0])
}

// word finds the first step with a word of a schedule; -1: none has it.
func (a *attempt) word(word string) int {
	return slices.IndexFunc(a.made, func(c race.Choice) bool { return c.String() == word })
}

func (a *attempt) uses(w []string) string {
	if a.word(w[0]) < 0 {
		return "it has no " + w[0]
	}
	return ""
}

func (a *attempt) without(w []string) string {
	switch {
	case w[0] == "time" && a.pauses() > 0:
		return "time passes: do without"
	case w[0] == "a crash" && slices.ContainsFunc(a.made, func(c race.Choice) bool { return c.Verb == race.Crash }):
		return "a client crashes: do without"
	case a.word(w[0]) >= 0:
		return "it has " + w[0] + ": do without"
	}
	return ""
}

func (a *attempt) loses(w []string) string {
	verb := map[string]race.Verb{"reply": race.Drop, "request": race.Sever}[w[0]]
	if !slices.ContainsFunc(a.made, func(c race.Choice) bool { return c.Verb == verb }) {
		return "no " + w[0] + " is lost"
	}
	return ""
}

func passing(c race.Choice) bool { return c.Verb == race.Pass || c.Verb == race.PassUnreaped }

// pauses counts the jumps of time.
func (a *attempt) pauses() (n int) {
	for _, c := range a.made {
		if passing(c) {
			n++
		}
	}
	return n
}

func (a *attempt) once([]string) string {
	switch n := a.pauses(); {
	case n == 0:
		return "no time passes"
	case n > 1:
		return fmt.Sprintf("time passes %d times, and once is enough", n)
	}
	return ""
}

func (a *attempt) passes(w []string) string {
	var sum time.Duration
	for _, c := range a.made {
		if passing(c) {
			sum += c.By
		}
	}
	if want, _ := time.ParseDuration(w[0]); sum < want {
		return fmt.Sprintf("only %v pass, and %v have to", sum, want)
	}
	return ""
}

// sent lists the steps with a client's command, alone or in a write.
func (a *attempt) sent(client, cmd string) []int {
	var list []int
	for i, e := range a.Events {
		if e.Who == client && slices.ContainsFunc(strings.Split(e.Cmd, ";"), func(s string) bool {
			name, _, _ := strings.Cut(strings.TrimSpace(s), " ")
			return name == cmd
		}) {
			list = append(list, i)
		}
	}
	return list
}

func (a *attempt) crashes(w []string) string {
	who := w[0]
	at := a.word(who + ".crash")
	if at < 0 {
		return who + " never crashes"
	}
	last := ""
	for _, e := range a.Events[:at] {
		if e.Who == who && e.Cmd != "" {
			last, _, _ = strings.Cut(e.Cmd, " ")
		}
	}
	switch last {
	case w[1]:
		return ""
	case "":
		return fmt.Sprintf("%s crashes before it has sent anything, not after %s", who, w[1])
	}
	return fmt.Sprintf("%s crashes after %s, not after %s", who, last, w[1])
}

// first finds a client's first step with a command, or says: it sends none.
func (a *attempt) first(client, cmd string) (int, string) {
	if list := a.sent(client, cmd); list != nil {
		return list[0], ""
	}
	return 0, fmt.Sprintf("%s never sends %s", client, cmd)
}

func (a *attempt) before(w []string) string {
	i, none := a.first(w[0], w[1])
	j, other := a.first(w[2], w[3])
	switch {
	case none != "" || other != "":
		return strings.Trim(none+", "+other, ", ")
	case i > j:
		return fmt.Sprintf("%s's %s comes after %s's %s", w[0], w[1], w[2], w[3])
	}
	return ""
}

func (a *attempt) late(w []string) string {
	if _, none := a.first(w[0], w[1]); none != "" {
		return none
	}
	for _, i := range a.sent(w[0], w[1]) {
		for j := i - 1; j >= 0; j-- { // the lease that it believed in last
			if b := a.Events[j].Belief[w[0]]; b.Until >= 0 {
				if a.Events[i].At >= b.Until {
					return ""
				}
				break
			}
		}
	}
	return fmt.Sprintf("%s sends %s while its lease lasts", w[0], w[1])
}

func (a *attempt) from(w []string) string {
	i, none := a.first(w[0], w[1])
	if want, _ := time.ParseDuration(w[2]); none == "" && a.Events[i].At < want.Milliseconds() {
		return fmt.Sprintf("%s sends %s at %s, before %v have passed", w[0], w[1], race.Seconds(a.Events[i].At), want)
	}
	return none
}

func (a *attempt) answers(w []string) string {
	_, none := a.first(w[0], w[1])
	if none == "" && !slices.ContainsFunc(a.sent(w[0], w[1]), func(i int) bool { return a.Events[i].Reply == w[2] }) {
		return fmt.Sprintf("%s's %s is never answered %s", w[0], w[1], w[2])
	}
	return none
}

func (a *attempt) there(w []string) string {
	i, none := a.first(w[0], w[1])
	if s := a.Events; none == "" && (s[i].Server.Value == "" || s[i].Server.Dead) {
		return fmt.Sprintf("when %s sends %s, the key has expired", w[0], w[1])
	}
	return none
}

func (a *attempt) by(w []string) string {
	if none := a.held(w[:1]); none != "" {
		return none
	}
	at := a.Events[a.holds(w[0])[0]].At
	if want, _ := time.ParseDuration(w[1]); at > want.Milliseconds() {
		return fmt.Sprintf("%s holds the lock only from %s on, not by %v", w[0], race.Seconds(at), want)
	}
	return ""
}

func (a *attempt) releases(w []string) string {
	if none := a.held(w); none != "" {
		return none
	}
	for _, i := range a.holds(w[0]) {
		if i+1 < len(a.Events) && a.Events[i+1].Who == w[0] && a.Events[i+1].Belief[w[0]].State == race.Idle {
			return ""
		}
	}
	return w[0] + " does not release the lock"
}

func (a *attempt) refused(w []string) string {
	asked := false
	for i, e := range a.Events {
		if e.Who != w[0] || e.Cmd == "" {
			continue
		}
		asked = true
		had := i > 0 && slices.Contains([]string{race.Holds, race.Acts, race.RunOut, race.Lost, race.Paused}, a.Events[i-1].Belief[w[0]].State)
		if !had && e.Belief[w[0]].State == race.Idle {
			return ""
		}
	}
	if !asked {
		return w[0] + " does not ask for the lock"
	}
	return w[0] + " is not refused"
}

func (a *attempt) during(w []string) string {
	if none := a.uses(w[:1]); none != "" {
		return none
	}
	holds := a.holds(w[2])
	for i, c := range a.made {
		if c.String() != w[0] {
			continue
		}
		now, had := slices.Contains(holds, i-1), slices.ContainsFunc(holds, func(at int) bool { return at < i })
		if w[1] == "while" && now || w[1] == "after" && had && !now {
			return ""
		}
	}
	if w[1] == "while" {
		return fmt.Sprintf("%s comes when %s does not hold the lock", w[0], w[2])
	}
	return fmt.Sprintf("%s comes when %s holds the lock, or has not yet", w[0], w[2])
}

func (a *attempt) reordered([]string) string {
	sorted := func(s string) []string { f := strings.Fields(s); slices.Sort(f); return f }
	if !slices.Equal(sorted(race.Words(a.made)), sorted(a.shown)) {
		return "its words are not those of the schedule that is shown, in another order: " + a.shown
	}
	return ""
}
