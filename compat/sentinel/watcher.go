package sentinel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// errUnknownName means that a Sentinel watches no master of this name.
var errUnknownName = errors.New("it knows no master of this name")

// A watcher is one Sentinel and our connection to it.
type watcher struct {
	addr string

	mu sync.Mutex // held for the length of a question
	c  redis.Conn // nil: none
	id string     // of the process at the other end
}

// An answer is what one Sentinel said.
type answer struct {
	from   string   // the watcher's address
	id     string   // the Sentinel's: one that is known by two addresses votes once
	master string   // host:port
	others []string // the other Sentinels that it knows
	err    error
}

// ask asks all Sentinels at once, so that a dead one costs nothing, and
// returns the server that enough of them name. s.asking is held.
func (s *Source) ask(ctx context.Context) (string, error) {
	all := s.watchers()
	answers := make(chan answer, len(all))
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", errClosed
	}
	s.asked.Add(len(all))
	s.mu.Unlock()
	for _, w := range all {
		go func() {
			defer s.asked.Done()
			answers <- w.ask(s)
		}()
	}
	votes := map[string]map[string]bool{}
	said := map[string]error{}
	for range all {
		select {
		case a := <-answers:
			if said[a.from] = a.err; a.err != nil {
				continue
			}
			if votes[a.master] == nil {
				votes[a.master] = map[string]bool{}
			}
			votes[a.master][a.id] = true
			s.learn(a.others)
			if len(votes[a.master]) >= s.o.Agree {
				return a.master, nil
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return "", disagreement(s.name, s.o.Agree, votes, said)
}

// disagreement tells who named which server, and who none. It is hopeless if
// all refused: then asking again gives the same.
func disagreement(name string, agree int, votes map[string]map[string]bool, said map[string]error) error {
	var words []string
	for master, ids := range votes {
		words = append(words, fmt.Sprintf("%d named %s", len(ids), master))
	}
	refused := len(votes) == 0
	for from, err := range said {
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
	return err
}

// watchers are all Sentinels that we know. s.asking is held.
func (s *Source) watchers() []*watcher {
	all := slices.Clone(s.given)
	for _, w := range s.learnt {
		all = append(all, w)
	}
	return all
}

// learn adds the Sentinels at addrs. They stand in for those given that are
// gone. s.asking is held.
func (s *Source) learn(addrs []string) {
	for _, addr := range addrs {
		if s.learnt[addr] == nil && !slices.ContainsFunc(s.given, func(w *watcher) bool { return w.addr == addr }) {
			s.learnt[addr] = &watcher{addr: addr}
		}
	}
}

// ask puts one question, in one write, over the connection of the last one or
// a new one.
func (w *watcher) ask(s *Source) answer {
	if !w.mu.TryLock() {
		return answer{from: w.addr, err: errors.New("no answer yet to the last question")}
	}
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
	defer cancel()
	for fresh := false; ; fresh = true {
		a, err := w.question(ctx, s)
		if err == nil {
			return a
		}
		var said redis.Error
		if errors.As(err, &said) || errors.Is(err, errUnknownName) {
			return answer{from: w.addr, err: err}
		}
		w.drop()
		if fresh || ctx.Err() != nil { // else the idle connection had died
			return answer{from: w.addr, err: err}
		}
	}
}

func (w *watcher) question(ctx context.Context, s *Source) (answer, error) {
	a := answer{from: w.addr}
	if w.c == nil {
		if err := w.connect(ctx, s); err != nil {
			return a, err
		}
	}
	a.id = w.id
	replies, err := compat.NewConn(bounded{w.c, ctx}).Pipe(
		compat.Cmd{"SENTINEL", "get-master-addr-by-name", s.name}, compat.Cmd{"SENTINEL", "sentinels", s.name})
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

// connect dials, and asks who it is that answers: an address that was learnt
// may lead to a Sentinel that was given by name. (SENTINEL MYID came with 6.2;
// a run_id they all have.)
func (w *watcher) connect(ctx context.Context, s *Source) error {
	c, err := s.o.DialSentinel(ctx, w.addr)
	if err != nil {
		return err
	}
	info, err := redis.String(bounded{c, ctx}.Do("INFO"))
	if c.Err() != nil {
		c.Close()
		return err
	}
	w.c, w.id = c, w.addr // a Sentinel that lets us not see INFO is its address
	if id := field(info, "run_id"); err == nil && id != "" {
		w.id = id
	}
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
	w.mu.Lock()
	defer w.mu.Unlock()
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

// field is one of INFO's.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
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
