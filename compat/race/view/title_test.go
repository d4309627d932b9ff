package view

import "testing"

func TestTitled(t *testing.T) {
	for in, want := range map[string]string{
		"Choosing a lock":                "Choosing a Lock",
		"Mixing: what may share a key":   "Mixing: What May Share a Key",
		"The command":                    "The Command",
		"txlock: a token and a TTL":      "txlock: A Token and a TTL",
		"FAQ":                            "FAQ",
		"Interop: with the real clients": "Interop: With the Real Clients",
	} {
		if got := Titled(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
