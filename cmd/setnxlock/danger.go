package main

import (
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat/locks"
)

// eviction is a server's choice of keys to drop when its memory is full.
type eviction int

const (
	evictsNone eviction = iota // or it doesn't say
	evictsVolatile
	evictsAll
)

// dangers lists why two clients may hold a lock at once on a server: doctor says UNSAFE there, and run warns.
func dangers(name string, drops eviction) (list []string) {
	if l, _ := locks.Get(name); l.Flaw != "" {
		list = append(list, l.Name+": "+l.Flaw)
	}
	if drops == evictsAll || drops == evictsVolatile && !strings.HasPrefix(name, "getset:") {
		list = append(list, "it may drop held locks when its memory is full: set maxmemory-policy noeviction")
	}
	return list
}

// warn prints the dangers of a lock on a server, if run is cautious.
func (a *app) warn(n node, list []string) {
	if !a.cautious {
		return
	}
	for _, why := range list {
		a.remind(n, fmt.Sprintf("UNSAFE on %s: %s", n.name, why))
	}
}
