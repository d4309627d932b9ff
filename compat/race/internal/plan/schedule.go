package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Schedule returns a configuration and the choices as one line. Package race says how it reads.
func Schedule(c Config, choices []Choice) string {
	return Line(c) + " : " + Words(choices)
}

// Words returns the choices alone.
func Words(choices []Choice) string {
	list := make([]string, len(choices))
	for i, c := range choices {
		list[i] = c.String()
	}
	return strings.Join(list, " ")
}

// Line returns the part of a schedule before the colon.
func Line(c Config) string {
	list := []string{cmp.Or(c.Algorithm, "own"), cmp.Or(c.Server, "2.4"),
		fmt.Sprintf("%dx%d", cmp.Or(c.Clients, 2), cmp.Or(c.Attempts, 2))}
	add := func(ok bool, s string) {
		if ok {
			list = append(list, s)
		}
	}
	add(c.TTL != 0 && c.TTL != 10*time.Second, "ttl="+c.TTL.String())
	add(c.Successor != "", "successor="+c.Successor)
	if len(c.Skew) > 0 {
		list = append(list, "skew="+durations(c.Skew))
	}
	add(c.Key != "" && c.Key != "lock.report", "key="+strconv.Quote(c.Key))
	for _, g := range c.Given {
		list = append(list, "given="+strconv.Quote(g))
	}
	for _, f := range c.switches() {
		if f.word == "extend" && len(c.ExtendTo) > 0 {
			list = append(list, "extend="+durations(c.ExtendTo))
		} else {
			add(*f.on, f.word)
		}
	}
	if full, err := Complete(Config{Algorithm: c.Algorithm, Locks: c.Locks, New: c.New, Write: c.Write, Fence: c.Fence,
		Wait: c.Wait}); err == nil && c.Invariants != nil {
		check := strings.Join(c.Invariants, ",")
		add(check != strings.Join(full.Invariants, ","), "check="+check)
	}
	if c.Within != 0 {
		d := c
		d.Within = 0
		if full, err := Complete(d); err == nil {
			add(full.Within != c.Within, "within="+c.Within.String())
		}
	}
	return strings.Join(list, " ")
}

// A toggle is a part of the configuration that is on or off, with its word.
type toggle struct {
	word string
	on   *bool
}

// switches returns the toggles of c, in the order of a schedule's words.
func (c *Config) switches() []toggle {
	return []toggle{
		{"bare", &c.Bare}, {"extend", &c.Extend}, {"handoff", &c.Handoff}, {"stale-handle", &c.StaleHandle}, {"detach", &c.Detach},
		{"batch", &c.Batch}, {"one-conn", &c.OneConn}, {"keep", &c.Keep}, {"poll", &c.Poll}, {"wait", &c.Wait},
		{"downgrade", &c.Downgrade}, {"write", &c.Write}, {"fence", &c.Fence},
	}
}

func durations(of []time.Duration) string {
	list := make([]string, len(of))
	for i, d := range of {
		list[i] = d.String()
	}
	return strings.Join(list, ",")
}

// ParseSchedule reads the output of [Schedule]. The words may also be written out: "C1 drop", "C1
// clock +3s", "redis restart". Without a colon, all of s is words.
func ParseSchedule(s string) (Config, []Choice, error) {
	var c Config
	fields, err := fieldsQuoted(s)
	if err != nil {
		return c, nil, err
	}
	for i, f := range fields {
		if f == ":" {
			if err := c.parse(fields[:i]); err != nil {
				return c, nil, err
			}
			fields = fields[i+1:]
			break
		}
	}
	choices, err := ParseWords(strings.Join(fields, " "))
	return c, choices, err
}

// parse reads the fields before the colon.
func (c *Config) parse(fields []string) error {
	if len(fields) < 3 {
		return fmt.Errorf("race: schedule begins with %q, want algorithm, server and clients × attempts", strings.Join(fields, " "))
	}
	c.Algorithm, c.Server = fields[0], fields[1]
	clients, attempts, ok := strings.Cut(fields[2], "x")
	var err1, err2 error
	c.Clients, err1 = strconv.Atoi(clients)
	c.Attempts, err2 = strconv.Atoi(attempts)
	if !ok || err1 != nil || err2 != nil {
		return fmt.Errorf("race: %q, want clients x attempts, as 2x1", fields[2])
	}
	for _, f := range fields[3:] {
		if err := c.Set(f); err != nil {
			return err
		}
	}
	return nil
}

// Set applies a word before a schedule's colon: "ttl=5s", "fence".
func (c *Config) Set(f string) (err error) {
	name, value, _ := strings.Cut(f, "=")
	switches := c.switches()
	known := slices.IndexFunc(switches, func(s toggle) bool { return s.word == name })
	if known >= 0 {
		*switches[known].on = true
	}
	switch name {
	case "ttl":
		c.TTL, err = time.ParseDuration(value)
	case "successor":
		c.Successor = value
	case "within":
		c.Within, err = time.ParseDuration(value)
	case "key":
		c.Key, err = strconv.Unquote(value)
	case "given":
		var g string
		g, err = strconv.Unquote(value)
		c.Given = append(c.Given, g)
	case "skew":
		c.Skew, err = parseDurations(value)
	case "check":
		c.Invariants = strings.Split(value, ",")
	case "extend":
		if value != "" {
			c.ExtendTo, err = parseDurations(value)
		}
	default:
		if known < 0 {
			return fmt.Errorf("race: %q is no part of a schedule", f)
		}
	}
	if err != nil {
		return fmt.Errorf("race: %q: %w", f, err)
	}
	return nil
}

func parseDurations(list string) (all []time.Duration, err error) {
	for _, v := range strings.Split(list, ",") {
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// fieldsQuoted splits at spaces outside of quotes.
func fieldsQuoted(s string) ([]string, error) {
	var all []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		end := 0
		for end < len(s) && s[end] != ' ' && s[end] != '\t' && s[end] != '\n' {
			if s[end] != '"' {
				end++
				continue
			}
			q, err := strconv.QuotedPrefix(s[end:])
			if err != nil {
				return nil, fmt.Errorf("race: %q: %w", s, err)
			}
			end += len(q)
		}
		all, s = append(all, s[:end]), s[end:]
	}
	return all, nil
}

// ParseWords reads the words of a schedule.
func ParseWords(s string) ([]Choice, error) {
	var all []Choice
	fields := strings.Fields(s)
	for i := 0; i < len(fields); i++ {
		w := fields[i]
		// A verb may stand apart from its subject: "C1 drop", "redis restart".
		if subject := !strings.ContainsAny(w, ".*-+~"); subject && i+1 < len(fields) {
			v := fields[i+1]
			if _, ok := clientVerbs[v]; ok && w != "redis" || w == "redis" {
				w, i = w+"."+v, i+1
			}
		}
		if strings.HasSuffix(w, ".clock") && i+1 < len(fields) {
			i++
			w += fields[i]
		}
		c, err := parseWord(w)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// wordForm is a word: time that passes; a choice of the server's, or of one of several; a client's.
var wordForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:\+([^~]+)(~?)|(?:redis|S([1-9]))\.([a-z]+)(.*)|C([1-9])(\*|-|)(?:\.([a-z]+)(.*))?)$`)
})

func parseWord(w string) (c Choice, err error) {
	bad := fmt.Errorf("race: %q is no word of a schedule: want C1, C1*, C1-, C1.sever, +9s, redis.restart, …", w)
	m := wordForm().FindStringSubmatch(w)
	if m == nil {
		return c, bad
	}
	verb, rest, known := m[4], m[5], true
	switch {
	case m[1] != "":
		c.Verb, rest = Pass, m[1]
		if m[2] != "" {
			c.Verb = PassUnreaped
		}
	case verb == "clock":
		c.Server, _ = strconv.Atoi(m[3])
		c.Verb = Jump
	case verb != "":
		c.Server, _ = strconv.Atoi(m[3])
		c.Verb, known = serverVerbs[verb]
	default:
		c.Client, rest = int(m[6][0]-'1'), m[9]
		if verb = m[8]; verb != "" {
			c.Verb, known = clientVerbs[verb]
			known = known && m[7] == ""
		} else {
			c.Verb = map[string]Verb{"": Step, "*": Run, "-": Drop}[m[7]]
		}
	}
	switch c.Verb {
	case Pass, PassUnreaped, Jump, Clock:
		c.By, err = time.ParseDuration(rest)
		if err != nil || c.By < 0 && c.Verb != Clock || c.By%time.Millisecond != 0 {
			return Choice{}, bad
		}
		return c, nil
	case Refuse:
		if n, err := strconv.Atoi(rest); err == nil && n >= 2 && n <= 99 {
			c.Nth, rest = n-1, ""
		}
	}
	if !known || rest != "" {
		return Choice{}, bad
	}
	return c, nil
}
