package oldredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
)

// Options of a server. The zero value is a server whose clock is stepped by
// hand.
type Options struct {
	// Clock is the server's clock. If it is nil, the time is Start until Advance or AdvanceLazy
	// moves it.
	Clock clock.Clock

	// Start is where a clock that is stepped by hand begins; the zero value
	// is 2020-01-02 00:00:00 UTC. It is not used with a Clock.
	Start time.Time

	// Refuse names commands that the server does not know, as after rename-command NAME "" in its
	// configuration.
	Refuse []string

	// Forbid names commands that the server answers with NOPERM, as an ACL of Redis 6 or a hosted
	// service does.
	Forbid []string
}

// A Server is one embedded Redis. All its methods may be called from any
// number of goroutines; commands run one at a time, as Redis runs them.
type Server struct {
	mu   sync.Mutex
	name string // the version or profile that it is
	born string // that was given to New
	*quirks
	commands map[string]*command
	profile  *profile
	refuse   map[string]bool
	refused  []string // Options.Refuse
	forbid   map[string]bool

	mini   *miniredis.Miniredis // holds the values, but no deadlines
	spaces [16]*space
	used   int          // spaces from here on are empty
	out    bytes.Buffer // miniredis' replies

	clock   clock.Clock
	offset  time.Duration // added to the clock by Advance
	stepped time.Time     // the clock if there is no Clock
	nano    int64         // the time at which the current command runs
	ms      int64         // the same in milliseconds
	ticked  int64         // when active expiry last ran, in units of quirks.cron
	timers  []*timer

	sessions  map[int]*session
	dialed    int
	waiters   []*waiter         // blocked clients, longest first
	blocking  int               // >0 while commands may not block: inside EXEC
	scripting int               // >0 while a script runs
	watching  int               // number of watches of all sessions
	scripts   map[string]string // by SHA-1; see cacheScript
	full      bool
	closed    bool
	fault     func(conn, n int, cmd []string) Fault
	trace     func(conn int, cmd []string, reply any)
	ports     []net.Listener
	served    sync.WaitGroup
}

// A space is one of the numbered databases.
type space struct {
	n         int
	data      *miniredis.RedisDB
	peer      *server.Peer
	deadlines map[string]int64  // deadlines, in ms since 1970
	empty     map[string]string // emptied keys that still exist, with their type (1.2)
	watchers  map[string][]*watch
}

// Versions returns the versions for New, oldest first. 2.2.5 stands for 2.2.0 to 2.2.9, which refuse SETNX on an
// unreaped key.
func Versions() []string { return slices.Clone(versions) }

// Profiles returns the other names for New: "twemproxy", the proxy in its oldest deployed release, and "noscript", a
// 7.0 with EVAL refused.
func Profiles() []string { return []string{"twemproxy", "noscript"} }

var start = time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)

// New starts a server with the behaviour of version, one of Versions, Profiles or Today.
func New(version string, opts Options) (*Server, error) {
	s := &Server{
		born:     version,
		refused:  opts.Refuse,
		forbid:   lowered(opts.Forbid),
		used:     1,
		clock:    opts.Clock,
		stepped:  opts.Start,
		sessions: make(map[int]*session),
	}
	if err := s.become(version); err != nil {
		return nil, err
	}
	if s.stepped.IsZero() {
		s.stepped = start
	}
	if err := s.openData(); err != nil {
		return nil, err
	}
	s.readClock()
	s.ticked = s.nano / int64(s.quirks.cron)
	return s, nil
}

// Become turns the server into another version, with its data: as after a failover to a replica of that version. It
// keeps connections; [Server.Restart] cuts them. New has the versions that there are.
func (s *Server) Become(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.become(version)
}

func (s *Server) become(version string) error {
	p := profileOf()[version]
	column := version
	if p != nil {
		column = p.version
	}
	m := quirksOf()[column]
	if m == nil {
		return fmt.Errorf("oldredis: no version or profile %q: there are %s", version,
			strings.Join(slices.Concat(versions, Profiles(), today), ", "))
	}
	s.name, s.quirks, s.commands, s.profile, s.refuse = version, m, columns()[column], p, lowered(s.refused)
	if p != nil {
		for _, name := range p.refuse {
			s.refuse[name] = true
		}
	}
	return nil
}

// openData starts miniredis without a port.
func (s *Server) openData() error {
	s.mini = miniredis.NewMiniRedis()
	s.mini.Seed(1)
	c, err := s.mini.Dial() // the one way to start it without listening
	if err != nil {
		return fmt.Errorf("oldredis: %w", err)
	}
	c.Close()
	s.mini.Server().SetPreHook(s.inScript)
	for n := range s.spaces {
		s.spaces[n] = &space{
			n:         n,
			data:      s.mini.DB(n),
			deadlines: make(map[string]int64),
			watchers:  make(map[string][]*watch),
		}
	}
	return nil
}

// MustNew starts a server, as New does, but panics on an unknown version.
func MustNew(version string, opts Options) *Server {
	s, err := New(version, opts)
	if err != nil {
		panic(err)
	}
	return s
}

// A TB is what Run needs of a test; *testing.T is one. Package testing itself is not imported, so
// that programs can embed a server too.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Run starts a server for a test, with its clock stepped by hand, and closes it
// when the test ends.
func Run(t TB, version string) *Server {
	t.Helper()
	s, err := New(version, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Version returns the name given to New, or to Become.
func (s *Server) Version() string { return s.name }

// Close stops the server and cuts all connections.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.cutAll()
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, p.Close())
	}
	for _, t := range s.timers {
		t.disarm()
	}
	s.timers = nil
	s.mu.Unlock()
	s.served.Wait()
	s.mini.Close()
	return errors.Join(errs...)
}

// Dial returns a new connection to the server. It uses no socket and no goroutine: commands run on
// the goroutine that calls Do or Flush. It is a *Conn.
func (s *Server) Dial() redis.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Conn{s: s, session: s.accept()}
}

// GetContext returns a new connection, as a pool's GetContext would. It fails
// if ctx is done or the server is closed.
func (s *Server) GetContext(ctx context.Context) (redis.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	return &Conn{s: s, session: s.accept()}, nil
}

// Pool returns a redigo pool of connections to the server, with redigo's defaults: for tests of a lock over a pool.
func (s *Server) Pool() *redis.Pool {
	return &redis.Pool{
		MaxIdle:     3,
		DialContext: s.GetContext,
	}
}

var errClosed = errors.New("oldredis: server closed")

// FlushAll empties the server, as another client's FLUSHALL would.
func (s *Server) FlushAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	for _, db := range s.spaces {
		s.flush(db)
	}
}

// Evict removes a key of database 0, as eviction on a full server does. A WATCH of the key sees a deletion. It reports
// whether the key existed.
func (s *Server) Evict(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	db := s.spaces[0]
	if !s.exists(db, key) {
		return false
	}
	s.drop(db, key)
	s.touch(db, key)
	return true
}

// SetMaxMemoryReached(true) makes the server refuse commands that use more memory, as at its maxmemory without
// eviction; false ends that.
//
// From 2.0 to 2.4 EXEC is refused too, and the connection then stays in MULTI. From 2.6 a write is
// refused when it is queued, and EXEC answers EXECABORT.
func (s *Server) SetMaxMemoryReached(reached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = reached
}

// Contents says which keys survive a restart.
type Contents int

const (
	// Keeping is a restart from a snapshot or log of every write.
	Keeping Contents = iota
	// Empty is a restart of a server that saves nothing.
	Empty
)

// Restart cuts every connection and forgets every script; c says whether the keys survive. To
// emulate a failover to a replica that missed the last writes, call Restart, then Restore a
// Snapshot from before them.
func (s *Server) Restart(c Contents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.cutAll()
	s.scripts = nil
	if c == Empty {
		for _, db := range s.spaces {
			s.flush(db)
		}
	}
}

func lowered(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[strings.ToLower(n)] = true
	}
	return set
}

// peerOf returns the connection to miniredis with db selected.
func (s *Server) peerOf(db *space) *server.Peer {
	if db.peer == nil {
		db.peer = s.newPeer(db)
	}
	return db.peer
}
