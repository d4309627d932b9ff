package live

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/race/internal/trace"
	"github.com/setnxlock/setnxlock/getsetlock"
)

var (
	tokenForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`0000007([0-9])([0-9]{2})[0-9]7`) })
	stampForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b(?:([0-9]{10})(\.[0-9]{1,15})?|([0-9]{13})|([0-9]{19}))\b`)
	})
)

// decode makes values readable: times as "t=10s" since the run began, tokens as their writer, «C1», or
// «C1.2» in its second attempt.
func decode(s string) string {
	s = stampForm().ReplaceAllStringFunc(s, func(v string) string {
		if tokenForm().MatchString(v) && !strings.Contains(v, ".") {
			return v
		}
		for _, d := range []getsetlock.Dialect{getsetlock.Float, getsetlock.Millis, getsetlock.Nanos} {
			if t, ok := d.Parse(v); ok {
				if since := plan.Millis(t); since > -1e9 && since < 1e9 {
					return "t=" + trace.Seconds(since)
				}
			}
		}
		return v
	})
	return tokenForm().ReplaceAllStringFunc(s, func(v string) string {
		m := tokenForm().FindStringSubmatch(v)
		if n, _ := strconv.Atoi(m[2]); n > 1 {
			return fmt.Sprintf("«C%s.%d»", m[1], n)
		}
		return "«C" + m[1] + "»"
	})
}

// Script shortens an EVAL or EVALSHA for a reader: the script by the first digits of its hash, and no
// number of keys.
func Script(cmd []string, key string) []string {
	if len(cmd) < 4 || !strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
		return cmd
	}
	sha := cmd[1]
	if strings.ToUpper(cmd[0]) == "EVAL" {
		sum := sha1.Sum([]byte(sha))
		sha = hex.EncodeToString(sum[:])
	}
	short := []string{cmd[0], sha[:min(len(sha), 6)] + "…"}
	rest := cmd[3:]
	if rest[0] == key {
		rest = rest[1:]
	}
	return append(short, rest...)
}

// beside cuts the lock's key off an auxiliary key (protocol.Aux): ":readers".
func beside(name, key string) string {
	if middle, ok := strings.CutPrefix(name, key+":"); ok {
		if middle, ok = strings.CutSuffix(middle, ":{"+key+"}"); ok {
			return ":" + middle
		}
	}
	return name
}

// commandText writes a command for a reader: without the lock's key, and after the name of its server,
// if there are several.
func commandText(cmds [][]string, key string) string {
	list := make([]string, len(cmds))
	on := plan.Addressed(cmds)
	key = plan.KeyOn(key, on)
	for i, cmd := range cmds {
		shown := make([]string, 0, len(cmd)+1)
		if on > 0 && i == 0 {
			shown = append(shown, plan.Nth(on))
		}
		cmd = Script(cmd, key)
		for n, a := range cmd {
			if n == 1 && a == key {
				continue
			}
			if a == "" {
				a = `""`
			}
			shown = append(shown, beside(decode(a), key))
		}
		list[i] = strings.Join(shown, " ")
	}
	return strings.Join(list, "; ")
}

// repliesText writes the replies to one request: of a transaction only EXEC's.
func repliesText(cmds [][]string, replies []any) string {
	var list []string
	for i, r := range replies {
		if i < len(cmds) && (r == "QUEUED" || strings.EqualFold(cmds[i][0], "MULTI") && r == "OK") {
			continue
		}
		list = append(list, replyText(r))
	}
	return strings.Join(list, "; ")
}

func replyText(r any) string {
	switch r := r.(type) {
	case nil:
		return "nil"
	case []byte:
		return decode(string(r))
	case string:
		return decode(r)
	case redis.Error:
		word, _, _ := strings.Cut(string(r), " ")
		if word == "NOSCRIPT" {
			return word // the rest says what the client does about it
		}
		return string(r)
	case []any:
		list := make([]string, len(r))
		for i, e := range r {
			list[i] = replyText(e)
		}
		return "[" + strings.Join(list, " ") + "]"
	}
	return fmt.Sprint(r)
}
