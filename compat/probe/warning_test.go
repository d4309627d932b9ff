package probe

import "testing"

// Who restarts a Redis before 2.6.14 that has an AOF may find expired keys without a TTL.
func TestEndlessKeys(t *testing.T) {
	for _, test := range []struct {
		kind, version, aof string
		want               bool
	}{
		{"redis", "2.4.18", "yes", true},
		{"redis", "2.6.13", "yes", true},
		{"redis", "2.6.13", "no", false},
		{"redis", "2.6.14", "yes", false},
		{"redis", "7.0.15", "yes", false},
		{"redis", "", "yes", false}, // nobody knows
		{"pika", "2.6.13", "yes", false},
	} {
		p := &prober{r: &Report{Kind: test.kind, Version: test.version}, conf: map[string]string{"appendonly": test.aof}}
		got := false
		p.configured(func(id, _ string, _ ...any) { got = got || id == WarnEndlessKeys })
		if got != test.want {
			t.Errorf("%+v: warned %v", test, got)
		}
	}
}
