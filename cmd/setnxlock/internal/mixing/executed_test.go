package mixing

import (
	"bufio"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

//go:embed testdata/executed.txt
var executed string

// noon is when the challengers poll. A live value's deadline is a minute later; its bytes are not
// UTF-8, as in the original runs.
var noon = time.Unix(1795238730, 0)

// values are the rows: a value on the key, with its TTL.
var values = map[string]struct {
	value string
	ttl   int
}{
	"T-s live":                    {value: "1795238790"},
	"T-s dead":                    {value: "1795238670"},
	"T-f live":                    {value: "1795238790.94"},
	"T-ms live":                   {value: "1795238790058"},
	"T-ms dead":                   {value: "1795238670058"},
	"T-ns live":                   {value: "1795238790058123456"},
	"SEC-PID-TID live":            {value: "1795238790-4711-70123456789"},
	"SEC:PID live":                {value: "1795238790:4711"},
	"UUID:MS live (leading f)":    {value: "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:1795238790058"},
	"T-bin live":                  {value: string(binary.LittleEndian.AppendUint64(nil, 1795238790))},
	"uuid4, TTL 60":               {value: "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab", ttl: 60},
	"uuid4, no TTL":               {value: "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"},
	"hex 94213c24.. TTL 60":       {value: "94213c24e0f911f0a9d30242ac120002", ttl: 60},
	"hex 9e99c1.. TTL 60 (=9e99)": {value: "9e99c124e0f911f0a9d30242ac120002", ttl: 60},
	"host:pid TTL 60":             {value: "web1.example:4711", ttl: 60},
	"1":                           {value: "1"},
	"true":                        {value: "true"},
	"empty, PX 60":                {value: "", ttl: 60},
	"2147483649.0":                {value: "2147483649.0"},
}

// columns are the formats of the clients that were run.
var columns = map[string]string{
	"redis-py 2.9.1": "redis-py-2.9", "retools 0.3": "retools-0.3", "redset 0.5.1": "redset",
	"jedis 1.0.0": "jedis-lock", "jedis master": "jedis-lock-1.0.1", "npm redis-lock 0.0.8": "npm-redis-lock-0.0",
	"node-resque 9.7.1 QL": "node-resque", "redis-mutex 4.0.2": "redis-mutex", "redis-objects 1.3.1": "redis-objects-1.3",
	"redis-objects 1.7.0": "redis-objects-1.7", "resque-lock-timeout": "resque-lock-timeout", "resque-lock 1.1": "resque-lock",
	"PT redis-lock": "PT-redis-lock", "RIA py new": "redis-in-action", "redis-py 2.10.6": "redis-py-2.10",
}

// The models do what the real clients did, cell by cell.
func TestExecuted(t *testing.T) {
	var head []string
	cells, rows := 0, 0
	for s := bufio.NewScanner(strings.NewReader(executed)); s.Scan(); {
		line := s.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, " | ")
		if head == nil {
			head = row
			continue
		}
		on, ok := values[row[0]]
		if !ok || len(row) != len(head) {
			t.Fatalf("row %q: %d cells, want a known value and %d", row[0], len(row), len(head))
		}
		rows++
		for i, want := range row[1:] {
			cells++
			if got := challenge(t, columns[head[i+1]], on.value, on.ttl, want == "stuck"); got != want {
				t.Errorf("%s on the key, %s: %s; the real client: %s", row[0], head[i+1], got, want)
			}
		}
	}
	if rows != len(values) || cells != len(values)*len(columns) {
		t.Errorf("%d rows and %d cells, want %d and %d", rows, cells, len(values), len(values)*len(columns))
	}
}

// challenge lets the model of a client poll once, and returns the result.
func challenge(t *testing.T, format, value string, ttl int, forever bool) string {
	t.Helper()
	f, err := dialect.Lookup(format)
	if err != nil {
		t.Fatal(err)
	}
	s := oldredis.Run(t, "7.0")
	c := s.Dial()
	do(t, c, "SET", "k", value)
	if ttl > 0 {
		do(t, c, "EXPIRE", "k", ttl)
	}
	a := model(f)
	_, err = a.Acquire(protocol.NewConn(c), noon, "k", lease)
	after, _ := redis.String(do(t, c, "GET", "k"), nil)
	left, _ := redis.Int(do(t, c, "TTL", "k"), nil)
	switch same, had := after == value, ttl > 0; {
	case err == nil:
		return "TAKES"
	case !errors.Is(err, protocol.ErrHeld):
		return err.Error()
	case !same && left < 0:
		return "CLOBBER"
	case same && !had && left > 0:
		return "+TTL"
	case !same || had != (left > 0):
		return fmt.Sprintf("left %q with TTL %d", after, left)
	case errors.As(err, new(*Exception)):
		return "throw"
	}
	if forever {
		s.Advance(240 * time.Hour)
		if _, err := a.Acquire(protocol.NewConn(c), noon.Add(240*time.Hour), "k", lease); errors.Is(err, protocol.ErrHeld) {
			return "stuck"
		}
	}
	return "no"
}

// model returns the client of a format, with the first client's tokens.
func model(f dialect.Format) protocol.Algorithm {
	k := client{f, quirksOf()[f.Name], func() string { return "000000710117" }}
	if f.Kind.Timed() {
		return timed{k}
	}
	return tokened{k}
}

func do(t *testing.T, c redis.Conn, cmd string, args ...any) any {
	t.Helper()
	got, err := c.Do(cmd, args...)
	if err != nil {
		t.Fatal(cmd, args, err)
	}
	return got
}
