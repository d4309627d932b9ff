package oldredis

import (
	"bufio"
	"slices"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

// Replies have redigo's types: int64, string for a status, []byte for a bulk string, nil for a
// missing one, []any, redis.Error. Only a missing array has its own type, because it is encoded
// differently; redigo's clients see nil.
type nilArray struct{}

var (
	replyOK     any = "OK"
	replyQueued any = "QUEUED"
)

func isNil(reply any) bool {
	if reply == nil {
		return true
	}
	_, ok := reply.(nilArray)
	return ok
}

func bulk(s string) any { return []byte(s) }

// forClient returns the reply as redigo gives it to its caller.
func forClient(reply any) any {
	switch r := reply.(type) {
	case nilArray:
		return nil
	case []any:
		for i, e := range r {
			if _, missing := e.(nilArray); missing {
				r = slices.Clone(r)
				r[i] = nil
			}
		}
		return r
	}
	return reply
}

// writeReply encodes a reply.
func writeReply(w *bufio.Writer, reply any) {
	switch r := reply.(type) {
	case nil:
		w.WriteString("$-1\r\n")
	case nilArray:
		w.WriteString("*-1\r\n")
	case int64:
		writeLine(w, ':', strconv.FormatInt(r, 10))
	case string:
		writeLine(w, '+', r)
	case redis.Error:
		writeLine(w, '-', string(r))
	case []byte:
		writeLine(w, '$', strconv.Itoa(len(r)))
		w.Write(r)
		w.WriteString("\r\n")
	case []any:
		writeLine(w, '*', strconv.Itoa(len(r)))
		for _, e := range r {
			writeReply(w, e)
		}
	}
}

func writeLine(w *bufio.Writer, kind byte, s string) {
	w.WriteByte(kind)
	w.WriteString(s)
	w.WriteString("\r\n")
}
