package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/textfile"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A cache keeps the servers' answers in a file in the user's cache directory: the next setnxlock need not ask
// a known server. It only saves time: a file that can't be read, written or understood is as good as none.
type cache struct {
	probe.Memory
	reminder
	read sync.Once
	path string // "": there is nowhere to keep it

	believed []probe.Report // what was not asked again, for the lock in use

	contradicted atomic.Bool // a server refused what it was remembered to allow
}

// remembered returns the cache, and reads it on the first call: several servers are asked at once.
func (a *app) remembered() *cache {
	a.known.read.Do(func() {
		dir, err := os.UserCacheDir()
		if err != nil {
			return
		}
		a.known.path = filepath.Join(dir, "setnxlock", "servers.json")
		b, err := os.ReadFile(a.known.path)
		if err == nil {
			err = a.known.load(b)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			a.log().Debug("what servers answered before can't be read, and is asked again", "file", a.known.path, "error", err)
		}
	})
	return a.known
}

// A cacheFile is the file's form.
type cacheFile struct {
	Servers json.RawMessage      `json:"servers"`
	Said    map[string]time.Time `json:"said,omitempty"`
}

func (c *cache) load(b []byte) error {
	var f cacheFile
	err := json.Unmarshal(b, &f)
	if err == nil && f.Servers != nil {
		err = json.Unmarshal(f.Servers, &c.Memory)
	}
	c.said = f.Said
	return err
}

// save writes the file anew.
func (c *cache) save() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == "" || !c.Changed() && !c.fresh {
		return nil
	}
	c.fresh = false
	servers, err := json.Marshal(&c.Memory)
	if err != nil {
		return err
	}
	b, err := json.Marshal(cacheFile{servers, c.said})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(c.path), 0o700)
	}
	if err == nil {
		err = textfile.Replace(c.path, b, 0o600)
	}
	return err
}

// contradict forgets the remembered answers of the servers of the lock in use: they refused to extend or to
// release it. A lock that is taken by one plain command shows its permissions only then.
func (a *app) contradict() {
	a.known.mu.Lock()
	believed := a.known.believed
	a.known.mu.Unlock()
	for _, r := range believed {
		a.known.Forget(r)
	}
	a.keep()
}

// keep writes the cache to its file.
func (a *app) keep() {
	if err := a.known.save(); err != nil {
		a.log().Debug("what the server answered can't be kept", "file", a.known.path, "error", err)
	}
}

// A rememberedLock was found safe on its server: its check asks only whether that server is still there. A
// refused command makes it forget the server, for run to ask anew, and its own check gives the reason.
type rememberedLock struct {
	protocol.Algorithm
	a *app
	r probe.Report
}

func (s *rememberedLock) Traits() protocol.Traits {
	t := s.Algorithm.Traits()
	if check := t.Check; check != nil {
		t.Check = func(c *protocol.Conn, key string) error {
			if s.r.SameServer(c) {
				return nil
			}
			s.a.known.Forget(s.r) // it was replaced, or several are behind its address: a later run asks
			s.a.keep()
			return check(c, key)
		}
	}
	return t
}

func (s *rememberedLock) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := s.Algorithm.Acquire(c, now, key, ttl)
	var refused redis.Error
	if !errors.As(err, &refused) || errors.Is(err, protocol.ErrHeld) || errors.Is(err, protocol.ErrForeign) {
		return l, err
	}
	s.a.known.Forget(s.r)
	s.a.known.contradicted.Store(true)
	s.a.keep()
	d := denial(refused)
	if check := s.Algorithm.Traits().Check; check != nil && (d == nil || d.About != "cluster") {
		if why := check(c, key); why != nil {
			return l, protocol.Refused.Mark(why)
		}
	}
	return l, err
}
