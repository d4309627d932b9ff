package race

import (
	"maps"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// An entry of the registry makes an algorithm whose values are token's.
type entry struct {
	make func(c *Config, token func() string) compat.Algorithm
	bare bool   // it only makes sense without the Locker
	says string // one line

	// margin is how much longer than its value says it leaves a lease alone.
	margin time.Duration
}

// Algorithms returns the names that Config.Algorithm takes, sorted.
func Algorithms() []string { return slices.Sorted(maps.Keys(registry)) }

// Describe says what an algorithm of the registry is, in a line.
func Describe(name string) string { return registry[name].says }

var registry = map[string]entry{
	"getset:classic": {says: "SETNX and a timestamp, taken over by GETSET, as published",
		make: func(c *Config, token func() string) compat.Algorithm {
			return getsetlock.Classic{Options: stamps(c, token)}
		}},
	"getset:guarded": {says: "the same, taken over and released under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return getsetlock.Guarded{Options: stamps(c, token)}
		}},
	"getset:classic/seconds": {says: "getset:classic with whole seconds, as on the SETNX page",
		make: func(c *Config, token func() string) compat.Algorithm {
			o := stamps(c, token)
			o.Dialect = getsetlock.Seconds
			return getsetlock.Classic{Options: o}
		}},
	"getset:classic/margin": {says: "getset:classic that leaves others' leases alone for 5 s more", margin: 5 * time.Second,
		make: func(c *Config, token func() string) compat.Algorithm {
			o := stamps(c, token)
			o.Dialect.Margin = 5 * time.Second
			return getsetlock.Classic{Options: o}
		}},
	"getset:guarded/margin": {says: "getset:guarded that leaves others' leases alone for 5 s more", margin: 5 * time.Second,
		make: func(c *Config, token func() string) compat.Algorithm {
			o := stamps(c, token)
			o.Dialect.Margin = 5 * time.Second
			return getsetlock.Guarded{Options: o}
		}},
	"tx:classic": {says: "SETNX, then EXPIRE; released under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token)}
		}},
	"tx:classic/published": {says: "the same, with the published TTL repair",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token), TTLRepair: txlock.RepairPublished}
		}},
	"tx:classic/never": {says: "the same, without any TTL repair",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token), TTLRepair: txlock.RepairNever}
		}},
	"tx:guarded": {says: "SETEX under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Guarded{Options: tokens(c, token)}
		}},
	"tx:renamed": {says: "SETEX to another name, RENAMENX",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Renamed{Options: tokens(c, token)}
		}},
}

func init() { maps.Copy(registry, broken) }

func stamps(c *Config, token func() string) getsetlock.Options {
	return getsetlock.Options{Fence: c.Fence, Nonce: token}
}

func tokens(c *Config, token func() string) txlock.Options {
	return txlock.Options{Fence: c.Fence, Token: token}
}
