package main

import (
	"slices"
	"strings"
	"sync"

	"github.com/setnxlock/setnxlock/compat/locks"
)

// eviction is which keys a server drops when its memory is full.
type eviction int

const (
	evictsNone eviction = iota // or it doesn't say
	evictsVolatile
	evictsAll
)

// dangers are the reasons for which two clients may hold a lock at once on a server: where
// doctor says UNSAFE, and run warns.
func dangers(name string, drops eviction) (list []string) {
	if l, _ := locks.Get(name); l.Flaw != "" {
		list = append(list, l.Name+": "+l.Flaw)
	}
	if drops == evictsAll || drops == evictsVolatile && !strings.HasPrefix(name, "getset:") {
		list = append(list, "it may drop held locks when its memory is full: set maxmemory-policy noeviction")
	}
	return list
}

// A caution warns of dangers, of each once. Nil warns of none.
type caution struct {
	say  func(format string, args ...any)
	mu   sync.Mutex
	said []string
}

func (c *caution) warn(n node, list []string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, why := range list {
		if text := n.name + ": " + why; !slices.Contains(c.said, text) {
			c.said = append(c.said, text)
			c.say("UNSAFE on %s", text)
		}
	}
}
