package sentinel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"
	answers "github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// errUnknownName means that a Sentinel watches no master of this name.
var errUnknownName = errors.New("it knows no master of this name")

// A watcher is one address of a Sentinel and our connection to it.
type watcher struct {
	addr string

	turn chan struct{} // held for the length of a question
	c    redis.Conn    // nil: none
	id   string        // of the process at the other end; "": it does not tell

	// What its last answer told; Source.asking is held.
	who    string   // the Sentinel's id and the master it named; "": it has never answered
	others []string // the addresses of the other Sentinels that it knows

	failed atomic.Bool // the last question did
}

func newWatcher(addr string) *watcher { return &watcher{addr: addr, turn: make(chan struct{}, 1)} }

// An answer is what one Sentinel said.
type answer struct {
	from   *watcher
	id     string   // the Sentinel's: one that is known by two addresses votes once, as do those that don't tell it
	master string   // host:port
	others []string // the other Sentinels that it knows
	err    error
}

// ask asks all Sentinels at once, the ones they tell of included, and returns the server named by enough of them. A
// dead one costs nothing. s.asking is held.
func (s *Source) ask(ctx context.Context) (string, error) {
	s.forget()
	answers, over := make(chan answer), make(chan struct{})
	defer close(over)
	asked := map[*watcher]bool{}
	askAll := func() error {
		for _, w := range s.watchers() {
			if asked[w] {
				continue
			}
			asked[w] = true
			if err := s.question(w, answers, over); err != nil {
				return err
			}
		}
		return nil
	}
	if err := askAll(); err != nil {
		return "", err
	}
	votes := map[string]map[string]bool{}
	said := map[string]error{}
	for came := 0; came < len(asked); came++ {
		select {
		case a := <-answers:
			if said[a.from.addr] = a.err; a.err != nil {
				continue
			}
			if votes[a.master] == nil {
				votes[a.master] = map[string]bool{}
			}
			votes[a.master][a.id] = true
			a.from.who = cmp.Or(a.id, a.from.addr) + " " + a.master
			a.from.others = a.others
			s.learn()
			if err := askAll(); err != nil {
				return "", err
			}
			if name := s.winner(votes); name != "" {
				return name, nil
			}
		case <-ctx.Done():
			return "", limit.Cause(ctx)
		}
	}
	if s.forget(); s.winner(votes) != "" { // it takes fewer now
		return s.winner(votes), nil
	}
	return "", disagreement(s.name, s.enough(), votes, said)
}

// question asks w in the background.
func (s *Source) question(w *watcher, answers chan<- answer, over <-chan struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.asked.Go(func() {
		select {
		case answers <- w.ask(s, over):
		case <-over:
		}
	})
	return nil
}

// enough returns how many must name the same server.
func (s *Source) enough() int {
	if s.o.Agree > 0 {
		return s.o.Agree
	}
	return s.known()/2 + 1
}

// winner returns the server named by enough Sentinels; "" if there is none.
func (s *Source) winner(votes map[string]map[string]bool) string {
	for master, ids := range votes {
		if len(ids) >= s.enough() {
			return master
		}
	}
	return ""
}

// known counts the Sentinels, as far as we know, dead ones included. One that was given by another address than it
// announces is one all the same: its id tells, or, where it is listed by an address that can't be reached, that it does
// not list itself. If another lists any of those given by another address, that may be so for one that has never
// answered too. Two that name different masters are two, whatever ids they tell: a Sentinel that lies takes no other's
// place.
func (s *Source) known() int {
	listed, silent := map[string]bool{}, map[string]bool{} // the first by id, the second by address
	for addr, w := range s.learnt {
		if w.who == "" {
			silent[addr] = true
		} else {
			listed[w.who] = true
		}
	}
	aliases, unknown := false, 0
	for _, w := range s.given {
		switch {
		case w.who == "" && !silent[w.addr]:
			unknown++
		case w.who != "" && !listed[w.who]:
			for addr := range silent {
				if !slices.Contains(w.others, addr) {
					delete(silent, addr)
					break
				}
			}
			listed[w.who] = true
		}
		aliases = aliases || w.who != "" && slices.ContainsFunc(s.given, func(other *watcher) bool {
			return other.who != "" && other.who != w.who && !slices.Contains(other.others, w.addr)
		})
	}
	if aliases {
		unknown -= min(unknown, len(silent))
	}
	return len(listed) + len(silent) + unknown
}

// disagreement lists the votes of all Sentinels. It is hopeless if all refused: then asking again gives the same.
func disagreement(name string, agree int, votes map[string]map[string]bool, said map[string]error) error {
	var words []string
	for master, ids := range votes {
		words = append(words, fmt.Sprintf("%d named %s", len(ids), master))
		if ids[""] {
			words = append(words, "those that refuse INFO and SENTINEL MYID have one vote together")
		}
	}
	refused, answered := len(votes) == 0, len(votes) > 0
	for from, err := range said {
		answered = answered || errors.As(err, new(redis.Error))
		if err != nil {
			words = append(words, fmt.Sprintf("%s: %v", from, err))
			refused = refused && final(err)
		}
	}
	slices.Sort(words)
	err := fmt.Errorf("it takes %d sentinels that name the same master for %q: %s", agree, name, strings.Join(words, "; "))
	if refused {
		return hopeless{err}
	}
	if answered {
		return undecided{err}
	}
	return err
}

// watchers returns all known Sentinels. s.asking is held.
func (s *Source) watchers() []*watcher {
	all := slices.Clone(s.given)
	for _, w := range s.learnt {
		if !slices.Contains(s.given, w) {
			all = append(all, w)
		}
	}
	return all
}

// learn makes a Sentinel of each address told by most of the given ones. One that fewer know may be invented. Their ids
// count for nothing here: a Sentinel that lies may tell another's. s.asking is held.
func (s *Source) learn() {
	tell := map[string]int{} // by address, how many
	for _, w := range s.given {
		others := slices.Clone(w.others)
		slices.Sort(others)
		for _, addr := range slices.Compact(others) {
			if tell[addr]++; 2*tell[addr] > len(s.given) && s.learnt[addr] == nil {
				s.learnt[addr] = s.at(addr)
			}
		}
	}
}

// at returns the watcher of addr: a given one, or a new one.
func (s *Source) at(addr string) *watcher {
	for _, w := range s.given {
		if w.addr == addr {
			return w
		}
	}
	return newWatcher(addr)
}

// forget drops each learnt Sentinel that does not answer, if none of the others tells of it any more. If none answers,
// it may be we who are cut off. s.asking is held.
func (s *Source) forget() {
	named, answered := map[string]bool{}, false
	for _, w := range s.watchers() {
		if w.who == "" || w.failed.Load() {
			continue
		}
		answered = true
		for _, addr := range w.others {
			named[addr] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, w := range s.learnt {
		if answered && w.failed.Load() && !named[addr] && !s.closed {
			delete(s.learnt, addr)
			s.asked.Go(w.hangUp) // a question may be under way
		}
	}
}

// ask puts one question, in one write, over the connection of the last one or
// a new one. It waits for the last one to end, unless this one is over before.
func (w *watcher) ask(s *Source, over <-chan struct{}) answer {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
	defer cancel()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-over:
		return answer{from: w}
	case <-ctx.Done():
		return answer{from: w, err: errors.New("no answer yet to the last question")}
	}
	for fresh := false; ; fresh = true {
		a, err := w.put(ctx, s)
		w.failed.Store(err != nil)
		if err == nil {
			return a
		}
		var said redis.Error
		if errors.As(err, &said) || errors.Is(err, errUnknownName) {
			return answer{from: w, err: err}
		}
		w.drop()
		if fresh || ctx.Err() != nil { // else the idle connection had died
			return answer{from: w, err: err}
		}
	}
}

func (w *watcher) put(ctx context.Context, s *Source) (answer, error) {
	a := answer{from: w}
	if w.c == nil {
		if err := w.connect(ctx, s); err != nil {
			return a, err
		}
	}
	a.id = w.id
	replies, err := protocol.NewConn(bounded{w.c, ctx}).Pipe(
		protocol.Cmd{"SENTINEL", "get-master-addr-by-name", s.name}, protocol.Cmd{"SENTINEL", "sentinels", s.name})
	if err != nil {
		return a, err
	}
	addr, err := redis.Strings(replies[0], nil)
	switch {
	case errors.Is(err, redis.ErrNil):
		return a, errUnknownName
	case err != nil:
		return a, err
	case len(addr) != 2:
		return a, fmt.Errorf("it answers %q to get-master-addr-by-name", addr)
	}
	a.master = net.JoinHostPort(addr[0], addr[1])
	a.others = others(replies[1])
	return a, nil
}

// connect dials, and asks which Sentinel answers: an address that was learnt may lead to one that was given by name.
// (SENTINEL MYID came with 6.2; a run_id they all have.)
func (w *watcher) connect(ctx context.Context, s *Source) error {
	c, err := s.o.DialSentinel(ctx, w.addr)
	if err != nil {
		return limit.Dialled(err)
	}
	info, err := redis.String(bounded{c, ctx}.Do("INFO"))
	if c.Err() != nil {
		c.Close()
		return err
	}
	id := answers.Info(info, "run_id")
	if err != nil || id == "" {
		id, _ = redis.String(bounded{c, ctx}.Do("SENTINEL", "MYID"))
	}
	w.c, w.id = c, id
	return nil
}

func (w *watcher) drop() {
	if w.c != nil {
		w.c.Close()
		w.c = nil
	}
}

// hangUp closes the connection when no question is under way any more.
func (w *watcher) hangUp() {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	w.drop()
}

// others reads the reply of SENTINEL sentinels: a list of fields and values
// for each. A user without the permission to ask that learns of none.
func others(reply any) []string {
	var addrs []string
	list, _ := redis.Values(reply, nil)
	for _, one := range list {
		m, err := redis.StringMap(one, nil)
		if err == nil && m["ip"] != "" && m["port"] != "" {
			addrs = append(addrs, net.JoinHostPort(m["ip"], m["port"]))
		}
	}
	return addrs
}

// bounded is a connection whose every Do ends with a context, if the connection
// supports contexts.
type bounded struct {
	redis.Conn
	ctx context.Context
}

func (b bounded) Do(name string, args ...any) (any, error) {
	if c, ok := b.Conn.(redis.ConnWithContext); ok {
		return c.DoContext(b.ctx, name, args...)
	}
	return b.Conn.Do(name, args...)
}
