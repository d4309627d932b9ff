package plan

import (
	"fmt"
	"strings"
	"time"
)

// Epoch is when every run begins: the start of a second, with the ten digits
// that times of our days have.
var Epoch = time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)

// Instant adds ms to the Epoch.
func Instant(ms int64) time.Time { return Epoch.Add(time.Duration(ms) * time.Millisecond) }

// Millis counts from the Epoch to an instant.
func Millis(t time.Time) int64 { return t.Sub(Epoch).Milliseconds() }

// Token returns a client's n-th token of an attempt (both counted from 0): twelve digits, the first
// six zeros so they weigh nothing in a timestamp.
func Token(client, attempt, n int) string {
	return fmt.Sprintf("0000007%d%02d%d7", client+1, attempt+1, n%10)
}

// EachToken replaces the client's digit in every token of s.
func EachToken(s string, f func(client int) byte) string {
	const mark = "0000007"
	at := strings.Index(s, mark)
	if at < 0 {
		return s
	}
	b := []byte(s)
	for at >= 0 && at+12 <= len(b) {
		if c := b[at+7]; c >= '1' && c <= '9' && b[at+11] == '7' {
			b[at+7] = f(int(c - '1'))
		}
		next := strings.Index(s[at+12:], mark)
		if next < 0 {
			break
		}
		at += 12 + next
	}
	return string(b)
}
