package simulate

import (
	"maps"
	"testing"
)

// Shrink returns a run that breaks a promise as c does, without unneeded faults and sections. tries
// is the most runs that Shrink may try.
func Shrink(t *testing.T, c Config, tries int) (Config, Report) {
	t.Helper()
	c.Skip = maps.Clone(c.Skip)
	if c.Skip == nil {
		c.Skip = map[string]bool{}
	}
	best := Run(t, c)
	breaks := func(c Config) bool {
		if tries--; tries < 0 {
			return false
		}
		r := Run(t, c)
		if len(r.Broken) == 0 {
			return false
		}
		best = r
		return true
	}
	for c.Sections > 1 {
		less := c
		if less.Sections = c.Sections / 2; !breaks(less) {
			break
		}
		c = less
	}
	for _, less := range []func(c *Config){
		func(c *Config) { c.Workers = 1 }, func(c *Config) { c.Lockers = 1 }, func(c *Config) { c.Keys = 1 },
		func(c *Config) { c.Skew = 0 }, func(c *Config) { c.Keep = 0 },
		func(c *Config) { c.Pool = 0 }, func(c *Config) { c.Processes = 2 },
	} {
		tried := c
		if less(&tried); breaks(tried) {
			c = tried
		}
	}
	// Halves, quarters, … of the faults, down to single ones.
	for size := len(best.Faults); size >= 1; size /= 2 {
		for at := 0; at < len(best.Faults); {
			tried := c
			tried.Skip = maps.Clone(c.Skip)
			for _, id := range best.Faults[at:min(at+size, len(best.Faults))] {
				tried.Skip[id] = true
			}
			if breaks(tried) {
				c = tried // at now indexes the next faults
			} else {
				at += size
			}
		}
	}
	c.Trace = true
	return c, Run(t, c)
}
