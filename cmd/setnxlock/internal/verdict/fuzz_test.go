package verdict_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// FuzzJudge: whatever stands on a key, it is judged without a panic; it is free or dead if an
// attempt would have it; what has a TTL is never dead by the look of it; and nothing that a terminal
// would obey is in the words about it.
func FuzzJudge(f *testing.F) {
	for _, v := range []string{
		"", "1795238700", "1795238760.123456789012345", "1795238700000", hexToken, uuid, "setnxlock:web1:47/x:" + hexToken, "hello", "1", "\x1b[2J", "\x00\x00\x00\x00\x6b\x01\x02\x03",
		"w:" + hexToken, "host:47", `{"a":1}`, "1795238700-4711-70123", "\xff\xfe", "setnxlock:\x1b]0;x\x07:47:" + hexToken,
	} {
		f.Add("lock:job", v, "string", int64(-1))
		f.Add("{a}:fence:x", v, "hash", int64(30e9))
	}
	f.Fuzz(func(t *testing.T, key, value, kind string, ttl int64) {
		now := time.Unix(1795238718, 0).UTC()
		c := verdict.Content{Key: key, Value: value, Type: kind, TTL: time.Duration(ttl)}
		if ttl < 0 {
			c.TTL = protocol.NoTTL
		}
		for _, l := range []verdict.Lens{{}, {Time: &getsetlock.Seconds}, {Time: &getsetlock.Float}, {Tokens: true}} {
			for _, lock := range []verdict.Lock{verdict.Plain, verdict.Theirs} {
				c.Lock = lock
				v := l.Judge(c, now)
				if v.Obtainable && v.Status != protocol.StatusFree && v.Status != protocol.StatusDead {
					t.Errorf("%+v is %s, and can be had", c, v.Status)
				}
				if l == (verdict.Lens{}) && v.Status == protocol.StatusDead && c.TTL > 0 {
					t.Errorf("%+v lives for %v, and is dead", c, c.TTL)
				}
				words := strings.Join(append(v.Why, v.Wrong...), "\n") + v.Refusal()
				if i := strings.IndexFunc(words, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
					t.Errorf("%+v: %q", c, words)
				}
			}
		}
		verdict.Beside(key)
	})
}
