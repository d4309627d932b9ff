package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
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

// eviction asks for what a probe would have learned of it.
func (a *app) eviction(ctx context.Context, n node) eviction {
	c, err := n.source.Get(ctx, "")
	if err != nil {
		return evictsNone
	}
	defer c.Close()
	c.Send("CONFIG", "GET", "maxmemory")        //nolint:errcheck // Do tells
	c.Send("CONFIG", "GET", "maxmemory-policy") //nolint:errcheck
	replies, err := redis.Values(c.Do(""))
	if err != nil || len(replies) != 2 {
		return evictsNone
	}
	limit, err := redis.Strings(replies[0], nil)
	policy, policyErr := redis.Strings(replies[1], nil)
	if err == nil && policyErr == nil && len(limit) == 2 && len(policy) == 2 {
		return evictionBy(limit[1], policy[1])
	}
	info, err := redis.String(c.Do("INFO", "memory")) // where CONFIG is refused
	if err != nil {
		return evictsNone
	}
	said := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		said[name] = value
	}
	return evictionBy(said["maxmemory"], said["maxmemory_policy"])
}

func evictionBy(limit, policy string) eviction {
	switch {
	case limit == "0" || limit == "" || policy == "noeviction" || policy == "":
		return evictsNone
	case strings.HasPrefix(policy, "allkeys"):
		return evictsAll
	}
	return evictsVolatile
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
