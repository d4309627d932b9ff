//go:build unix

package main

import (
	"testing"
	"time"
)

func TestAgesInWords(t *testing.T) {
	for idle, want := range map[time.Duration]string{
		unknown: "the server doesn't say", 0: "less than a minute ago", 59 * time.Second: "less than a minute ago",
		time.Minute: "1 minute ago", 119 * time.Second: "1 minute ago", 59 * time.Minute: "59 minutes ago", time.Hour: "1 hour ago",
		47 * time.Hour: "1 day ago", 23 * time.Hour: "23 hours ago", 400 * 24 * time.Hour: "400 days ago",
	} {
		if got := ago(idle); got != want {
			t.Errorf("%v: %q, want %q", idle, got, want)
		}
	}
}
