package oldredis

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// recorded maps the name of a recording, redis-NAME.jsonl or NAME.jsonl, to a version.
var recorded = map[string]string{
	"1.3.6": "1.2", "2.0.5": "2.0", "2.2.5": "2.2.5", "2.2.15": "2.2", "2.4.18": "2.4", "2.6.11": "2.6",
	"2.6.12": "2.6.12", "2.8.24": "2.8", "3.0.7": "3.0", "5.0.14": "5.0", "7.0.15": "7.0",
	"8.2.3": "8.2", "8.6.2": "8.6", "valkey-8.1.8": "valkey-8.1", "valkey-9.1.2": "valkey-9.1",
}

// unmatched lists the replies that oldredis does not give, by version, recording and step, with the
// reason.
var unmatched = map[string]string{
	"1.2/del of an unreaped key (whole seconds)/4": "the cron of 1.2 runs once a second, and ran in the 60 ms before this DEL",

	"8.6/whole-second expiry: set at .900/8": "active expiry, which reaps a key at its deadline, had not run in the 100 ms before this EXISTS",
}

// A recording holds a real server's answers to the steps of some clients.
type recording struct {
	Name  string
	Start int64 // seconds since 1970
	Steps []step
}

// A step is one client's command with its reply, or a change of the time.
type step struct {
	Client    int
	Cmd       []string
	Reply     json.RawMessage
	AdvanceMS int64 `json:"advance_ms"`
	Lazy      bool
}

// TestRecordings replays the recordings of real servers in testdata, and unreviewed ones, plain or
// gzipped, in the folder that SETNXLOCK_TRANSCRIPTS names.
func TestRecordings(t *testing.T) {
	t.Run("testdata", func(t *testing.T) { replayFolder(t, "testdata", 0) })
	if dir := os.Getenv("SETNXLOCK_TRANSCRIPTS"); dir != "" {
		t.Run("SETNXLOCK_TRANSCRIPTS", func(t *testing.T) { replayFolder(t, dir, 0.0005) })
	}
}

// replayFolder replays a folder's recordings. It fails a version if more than the fraction
// mayDiffer of its replies differ.
func replayFolder(t *testing.T, dir string, mayDiffer float64) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl*"))
	if err != nil || len(files) == 0 {
		t.Errorf("no recordings in %s (%v)", dir, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { replayFile(t, file, mayDiffer) })
	}
}

// replayFile replays the recordings of one version and counts the differences.
func replayFile(t *testing.T, file string, mayDiffer float64) {
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".gz"), ".jsonl")
	name = strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(name, "-lists"), "-options"), "redis-")
	version, ok := recorded[name]
	if !ok {
		t.Fatalf("recordings of Redis %s, which is not an emulated version", name)
	}
	compared, listed, missed := 0, 0, 0
	for _, r := range readRecordings(t, file) {
		for i, diff := range replay(t, version, r) {
			compared++
			if diff == "" {
				continue
			}
			where := fmt.Sprintf("%s/%s/%d", version, r.Name, i)
			if _, known := unmatched[where]; known {
				listed++
				continue
			}
			missed++
			if missed <= 50 {
				t.Logf("%s: %s", where, diff)
			}
		}
	}
	if float64(missed) > mayDiffer*float64(compared) {
		t.Errorf("%d of %d replies differ", missed, compared)
	}
	t.Logf("%s: %d replies compared, %d matched, %d listed as unmatched, %d missed",
		version, compared, compared-listed-missed, listed, missed)
}

func readRecordings(t *testing.T, file string) []recording {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var list []recording
	for d := json.NewDecoder(bufio.NewReader(r)); ; {
		var rec recording
		err := d.Decode(&rec)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, rec)
	}
}

// replay runs a recording. It returns the difference for each step that has a reply, or "".
func replay(t *testing.T, version string, r recording) map[int]string {
	s := must.Get(New(version, Options{Start: time.Unix(r.Start, 0)}))(t)
	defer s.Close()
	clients := make(map[int]redis.Conn)
	diffs := make(map[int]string)
	for i, step := range r.Steps {
		if step.Cmd == nil {
			d := time.Duration(step.AdvanceMS) * time.Millisecond
			if step.Lazy {
				s.AdvanceLazy(d)
			} else {
				s.Advance(d)
			}
			continue
		}
		c := clients[step.Client]
		if c == nil {
			c = s.Dial()
			clients[step.Client] = c
		}
		reply, err := exchange(s, c.(*Conn), step.Cmd)
		if err != nil {
			t.Fatalf("%s/%s/%d: %v", version, r.Name, i, err)
		}
		want := decodeReply(t, step.Reply)
		diffs[i] = ""
		if !sameReply(want, reply, step.Cmd) {
			diffs[i] = fmt.Sprintf("%s: got %s, want %s", strings.Join(step.Cmd, " "), show(reply), show(want))
		}
	}
	return diffs
}

// exchange is Do, but distinguishes a missing array from a missing string.
func exchange(s *Server, c *Conn, cmd []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receive(c.session, cmd)
	if len(c.session.out) != 1 {
		return nil, fmt.Errorf("%d replies to %s, connection %v", len(c.session.out), cmd, c.session.dead)
	}
	reply := c.session.out[0]
	c.session.out = nil
	return reply, nil
}

// decodeReply returns a recorded reply in redigo's types.
func decodeReply(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var r struct {
		Int    *int64
		Bulk   *string
		Status *string
		Error  *string
		Nil    string
		Array  []json.RawMessage
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatalf("reply %s: %v", raw, err)
	}
	switch {
	case r.Int != nil:
		return *r.Int
	case r.Bulk != nil:
		return []byte(*r.Bulk)
	case r.Status != nil:
		return *r.Status
	case r.Error != nil:
		return redis.Error(*r.Error)
	case r.Array != nil:
		list := make([]any, len(r.Array))
		for i, e := range r.Array {
			list[i] = decodeReply(t, e)
		}
		return list
	case r.Nil == "array":
		return nilArray{}
	}
	return nil
}

// sameReply compares replies. A PTTL may differ by 1 ms. Of errors only the first word counts, and
// "unknown command".
func sameReply(want, got any, cmd []string) bool {
	switch w := want.(type) {
	case int64:
		g, ok := got.(int64)
		if ok && strings.EqualFold(cmd[0], "PTTL") {
			return w-g <= 1 && g-w <= 1
		}
		return ok && w == g
	case redis.Error:
		g, ok := got.(redis.Error)
		return ok && errorKind(string(w)) == errorKind(string(g))
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !sameReply(w[i], g[i], cmd) {
				return false
			}
		}
		return true
	}
	return show(want) == show(got)
}

func errorKind(text string) string {
	if strings.HasPrefix(text, "ERR unknown command") {
		return text
	}
	first, _, _ := strings.Cut(text, " ")
	return first
}

// show formats a reply with its type.
func show(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case nilArray:
		return "(array) nil"
	case int64:
		return fmt.Sprintf("(int) %d", r)
	case []byte:
		return fmt.Sprintf("%q", r)
	case string:
		return r
	case redis.Error:
		return "(error) " + string(r)
	case []any:
		parts := make([]string, len(r))
		for i, e := range r {
			parts[i] = show(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprintf("%T %v", reply, reply)
}
