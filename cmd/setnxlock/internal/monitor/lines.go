package monitor

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A line is a command as MONITOR prints it.
type line struct {
	at     time.Time
	db     int
	client string // an address; "lua": the script of the line before sends it
	args   []string
}

// The text before a line of MONITOR's (a container's time stamp, the name of its service) has no quotes: else
// it is an argument.
var forms = sync.OnceValue(func() (f struct{ line, unnamed, begun, holder *regexp.Regexp }) {
	f.line = regexp.MustCompile(`^(?:[^"]*[\s|])??\+?(\d+)\.(\d{6}) \[(\d+) (\S+)\] (".*")$`)
	f.unnamed = regexp.MustCompile(`^\+?\d+\.\d{6} (\(db \d+\) )?"`)
	f.begun = regexp.MustCompile(`^(?:[^"]*[\s|])?\+?\d+\.\d{6} \[\d+ \S+\] "`)
	// What Redisson calls a holder: a client's UUID and a thread, and for a writer a word.
	f.holder = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:[0-9]+(:write)?$`)
	return f
})

// A Skipped counts the lines of a log that are not MONITOR's, or are cut off.
type Skipped struct {
	Lines int    `json:"lines"`
	First string `json:"first,omitempty"` // where, and how it begins
	Last  bool   `json:"last,omitempty"`  // the last line is cut off within a command
}

// parse reads the output of redis-cli MONITOR, among other lines. Lines that are empty or say OK count for
// nothing.
func parse(text string) ([]line, Skipped, error) {
	var all []line
	var skipped Skipped
	var unnamed, why error
	n := 0
	for s := range strings.Lines(text) {
		n++
		s = strings.TrimSpace(s)
		if s == "" || s == "OK" || s == "+OK" {
			continue
		}
		l, err := readLine(s)
		if err == nil {
			all, skipped.Last = append(all, l), false
			continue
		}
		if forms().unnamed.MatchString(s) && unnamed == nil {
			unnamed = fmt.Errorf("line %d names no client, and without it the holder is unknown: MONITOR names clients since Redis 2.6", n)
		}
		if skipped.Lines++; skipped.Lines == 1 {
			skipped.First, why = fmt.Sprintf("line %d: %.60q", n, s), fmt.Errorf("line %d %w", n, err)
		}
		skipped.Last = forms().begun.MatchString(s)
	}
	if all == nil {
		return nil, skipped, cmp.Or(unnamed, why, errors.New("the log has no line of MONITOR's"))
	}
	return all, skipped, nil
}

// readLine reads one line.
func readLine(s string) (line, error) {
	m := forms().line.FindStringSubmatch(s)
	if m == nil {
		return line{}, fmt.Errorf("is none of MONITOR's: %.60q", s)
	}
	seconds, err1 := strconv.ParseInt(m[1], 10, 64)
	micros, err2 := strconv.ParseInt(m[2], 10, 64)
	db, err3 := strconv.Atoi(m[3])
	args, err4 := words(m[5])
	return line{time.Unix(seconds, micros*1000), db, m[4], args}, errors.Join(err1, err2, err3, err4)
}

// words reads quoted arguments as Redis writes them: \xHH, \n, \r, \t, \a, \b, \\ and \".
func words(s string) ([]string, error) {
	var list []string
	for s != "" {
		if s[0] != '"' {
			return nil, fmt.Errorf("%.20q is no quoted argument", s)
		}
		var b strings.Builder
		i := 1
		for ; i < len(s) && s[i] != '"'; i++ {
			if s[i] != '\\' || i+1 == len(s) {
				b.WriteByte(s[i])
				continue
			}
			i++
			if at := strings.IndexByte("nrtab", s[i]); at >= 0 {
				b.WriteByte("\n\r\t\a\b"[at])
				continue
			}
			if s[i] == 'x' && i+2 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					i += 2
					continue
				}
			}
			b.WriteByte(s[i])
		}
		if i == len(s) {
			return nil, errors.New("an argument does not end")
		}
		list = append(list, b.String())
		s = strings.TrimPrefix(s[i+1:], " ")
	}
	return list, nil
}
