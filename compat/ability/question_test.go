package ability

import (
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// What replies mean: a status is no text, an error fits only what is for one, and what makes a key may be
// one command or two, in seconds or in milliseconds.
func TestFits(t *testing.T) {
	one, two := "SETEX $1 60 $2", "SET $1 $2; EXPIRE $1 60"
	for _, test := range []struct {
		look    string
		replies []any
		made    string
		millis  bool
		spared  bool
		want    bool
	}{
		{look: "1 0 *", replies: []any{int64(1), int64(0), "OK"}, spared: true, want: true},
		{look: "1 0 *", replies: []any{int64(1), int64(1), "OK"}, spared: true},
		{look: "1 0 *", replies: []any{int64(1), int64(0), redis.Error("ERR")}},
		{look: "1 0 ?", replies: []any{int64(1), int64(0), redis.Error("ERR")}, want: true},
		{look: "! ?", replies: []any{redis.Error("ERR"), nil}},
		{look: "! ?", replies: []any{redis.Error("ERR"), nil}, spared: true, want: true},
		{look: `"old"`, replies: []any{[]byte("old")}, spared: true, want: true},
		{look: "OK", replies: []any{[]byte("OK")}, spared: true},
		{look: `"old"`, replies: []any{"old"}, spared: true},
		{look: "nil", replies: []any{nil}, spared: true, want: true},
		{look: "OK 1..60 *", replies: []any{"OK", int64(60), int64(1)}, spared: true, want: true},
		{look: "OK 1..60 *", replies: []any{"OK", int64(0), int64(1)}, spared: true},
		{look: "OK 1..60 *", replies: []any{"OK", int64(61), int64(1)}, spared: true},
		{look: "OK 1..60 *", replies: []any{"OK", int64(61), int64(1)}, millis: true, spared: true, want: true},
		{look: "+ 1 61..120 *", replies: []any{"OK", int64(1), int64(60001), int64(1)}, made: one, millis: true, spared: true, want: true},
		{look: "+ 1 61..120 *", replies: []any{"OK", int64(1), int64(60000), int64(1)}, made: one, millis: true, spared: true},
		{look: "+ 0", replies: []any{"OK", int64(1), int64(0)}, made: two, spared: true, want: true},
		{look: "", replies: []any{"anything"}, spared: true, want: true},
		{look: "", replies: []any{redis.Error("ERR")}},
	} {
		q := New(nil, "key", "other", test.millis)
		q.made = test.made
		said := make([]string, len(test.replies))
		for i, r := range test.replies {
			said[i] = word(r)
		}
		if q.fits(test.look, said, test.spared) != test.want {
			t.Errorf("%+v: want %v", test, test.want)
		}
	}
}

// Each question fits its own replies: as many words as replies, wherever a key is made, and the last command
// removes a scratch key.
func TestQuestionsFitTheirReplies(t *testing.T) {
	for _, row := range table {
		for _, made := range []string{"SETEX $1 60 $2", "SET $1 $2; EXPIRE $1 60"} {
			q := New(nil, "key", "other", true)
			q.made = made
			cmds := q.commands(row.cmds)
			for _, m := range row.means {
				if n := len(q.words(m.look)); m.look != "" && n != len(cmds) {
					t.Errorf("%s: %q has %d words for %d commands", row.name, m.look, n, len(cmds))
				}
			}
			if n := len(cmds); n > 0 && cmds[n-1][0] != "DEL" {
				t.Errorf("%s: %v is not a DEL", row.name, cmds[n-1])
			}
			if (row.by == nil) != (len(cmds) > 0) {
				t.Errorf("%s is asked in two ways, or in none", row.name)
			}
		}
	}
	if _, err := New(protocol.NewConn(dead{}), "key", "other", false).Ask(Setnx); !errors.Is(err, errDead) {
		t.Errorf("over a dead connection: %v", err)
	}
}

var errDead = errors.New("dead")

type dead struct{ redis.Conn }

func (dead) Err() error                     { return errDead }
func (dead) Do(string, ...any) (any, error) { return nil, errDead }
func (dead) Send(string, ...any) error      { return errDead }
func (dead) Flush() error                   { return errDead }
func (dead) Close() error                   { return nil }
