package embedded

import (
	"fmt"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

// ReplyKey returns equal strings for equal replies, and for no others.
func ReplyKey(v any) string { return string(appendReply(make([]byte, 0, 64), v)) }

func appendReply(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, '-')
	case int64:
		return strconv.AppendInt(append(b, ':'), v, 10)
	case []byte:
		return append(strconv.AppendInt(append(b, '$'), int64(len(v)), 10), v...)
	case string:
		return append(strconv.AppendInt(append(b, '+'), int64(len(v)), 10), v...)
	case redis.Error:
		return append(strconv.AppendInt(append(b, '!'), int64(len(v)), 10), v...)
	case []any:
		b = append(b, '[')
		for _, e := range v {
			b = append(appendReply(b, e), ' ')
		}
		return append(b, ']')
	}
	return fmt.Appendf(b, "%T%v", v, v)
}
