package monitor

import (
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

var (
	lineForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\+?(\d+)\.(\d{6}) \[(\d+) (\S+)\] (".*")$`) })
	namesNone = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\+?\d+\.\d{6} (\(db \d+\) )?"`) })
)

// parse reads what redis-cli MONITOR prints. Lines that are empty or say OK count for nothing.
func parse(text string) ([]line, error) {
	var all []line
	n := 0
	for s := range strings.Lines(text) {
		n++
		s = strings.TrimSpace(s)
		if s == "" || s == "OK" || s == "+OK" {
			continue
		}
		m := lineForm().FindStringSubmatch(s)
		if m == nil {
			if namesNone().MatchString(s) {
				return nil, fmt.Errorf("line %d names no client: MONITOR does so since Redis 2.6, and without it nobody can tell who holds the lock", n)
			}
			return nil, fmt.Errorf("line %d is none of MONITOR's: %.60q", n, s)
		}
		seconds, err1 := strconv.ParseInt(m[1], 10, 64)
		micros, err2 := strconv.ParseInt(m[2], 10, 64)
		db, err3 := strconv.Atoi(m[3])
		args, err := words(m[5])
		if err = errors.Join(err1, err2, err3, err); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, line{time.Unix(seconds, micros*1000), db, m[4], args})
	}
	if all == nil {
		return nil, errors.New("no line of MONITOR's")
	}
	return all, nil
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
