package main

import "testing"

// Another server is not called by the version of the Redis that it is like.
func TestProductIsNamed(t *testing.T) {
	for _, c := range []struct{ kind, own, version, want string }{
		{"redis", "", "7.0.15", "Redis 7.0.15"},
		{"valkey", "8.0.1", "7.2.4", "valkey 8.0.1, like Redis 7.2.4"},
		{"keydb", "", "6.3.4", "keydb, like Redis 6.3.4"},
		{"kvrocks", "2.9.0", "", "kvrocks 2.9.0"},
		{"ssdb", "", "", "ssdb"},
		{"proxy", "", "2.6.11", "a proxy 2.6.11"},
		{"", "", "", "unknown"},
	} {
		if got := product(c.kind, c.own, c.version); got != c.want {
			t.Errorf("%q, own version %q, redis_version %q: %q, want %q", c.kind, c.own, c.version, got, c.want)
		}
	}
}
