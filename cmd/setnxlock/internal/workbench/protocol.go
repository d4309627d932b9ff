package workbench

import (
	"cmp"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// A Protocol is what a lock of a schedule sends, as its clients were seen to send it.
type Protocol struct {
	Lock  string         `json:"lock"`
	Lines []ProtocolLine `json:"lines"`
}

// A ProtocolLine is a message, with TOKEN and TIME for what is its client's own, and what was answered.
type ProtocolLine struct {
	Doing   string   `json:"doing"` // "acquire", "extend", "release"
	Line    string   `json:"line"`
	Replies []string `json:"replies"`
}

// own is one client's own in a message. It is made when it is first asked for: the command has no use for it.
var own = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`«[^»]*»|t=-?[0-9][0-9.hmsµn]*`) })

// line replaces a client's own values in a message or a reply.
func line(cmd string) string {
	return own().ReplaceAllStringFunc(cmd, func(own string) string {
		if own[0] == 't' {
			return "TIME"
		}
		return "TOKEN"
	})
}

// protocols learns each lock's messages: it takes the lock alone, refused, and over from a client
// stopped at each of its first steps. What it sends elsewhere only (after a lost reply, say) is not
// among it.
func (p Position) protocols() []Protocol {
	var list []Protocol
	for first := range min(2, len(p.Trace.Clients)) {
		a, b := race.Choice{Client: first}, race.Choice{Client: 1 - first}
		pass := race.Choice{Verb: race.Pass, By: 2 * time.Duration(p.Trace.TTL) * time.Millisecond}
		ways := [][]race.Choice{slices.Repeat([]race.Choice{a}, 12)}
		for n := 1; n <= 4; n++ {
			held := slices.Repeat([]race.Choice{a}, n)
			if len(p.Trace.Clients) > 1 {
				ways = append(ways, slices.Concat(held, slices.Repeat([]race.Choice{b}, 4)))
				ways = append(ways, slices.Concat(held, []race.Choice{pass}, slices.Repeat([]race.Choice{b}, 6), slices.Repeat([]race.Choice{a}, 4)))
			}
		}
		for _, way := range ways {
			list = learn(list, p.Config, way)
		}
	}
	for i := range list {
		slices.SortStableFunc(list[i].Lines, func(a, b ProtocolLine) int { return cmp.Compare(a.Doing, b.Doing) }) // acquire, extend, release
	}
	return list
}

// learn adds the messages along a way, up to its first impossible step.
func learn(list []Protocol, c race.Config, way []race.Choice) []Protocol {
	at, err := At(c, way)
	for err != nil && len(way) > 0 {
		way = way[:len(way)-1]
		at, err = At(c, way)
	}
	if err != nil || len(at.Trace.Events) != len(way) {
		return list
	}
	for n, e := range at.Trace.Events {
		if e.Cmd == "" || way[n].Verb != race.Step {
			continue
		}
		spots, err := race.Spots(c, way[:n])
		if err != nil {
			return list
		}
		who := way[n].Client
		lock := at.Trace.Clients[who].Runs
		if lock == "" {
			lock = at.Trace.Algorithm
		}
		i := slices.IndexFunc(list, func(p Protocol) bool { return p.Lock == lock })
		if i < 0 {
			i = len(list)
			list = append(list, Protocol{Lock: lock})
		}
		list[i].add(spots[who].Doing, line(e.Cmd), line(e.Reply))
	}
	return list
}

func (p *Protocol) add(doing, sent, reply string) {
	i := slices.IndexFunc(p.Lines, func(l ProtocolLine) bool { return l.Doing == doing && l.Line == sent })
	if i < 0 {
		i = len(p.Lines)
		p.Lines = append(p.Lines, ProtocolLine{Doing: doing, Line: sent})
	}
	if !slices.Contains(p.Lines[i].Replies, reply) {
		p.Lines[i].Replies = append(p.Lines[i].Replies, reply)
	}
}
