package stock

import (
	"reflect"
	"slices"

	"github.com/gomodule/redigo/redis"
)

// shareable lists the types of connections that allow one goroutine to receive while another sends: redigo's,
// and the types of this module's embedded server and network.
var shareable = []string{"*redis.conn", "*oldredis.Conn", "*faulty.Conn"}

// Shareable reports whether steps may share c, a connection from a redis.Pool. It returns false for a program's
// own type of connection, and for a redigo with a pool of unknown structure.
func Shareable(c redis.Conn) bool {
	v := reflect.ValueOf(c)
	for _, name := range []string{"pc", "c"} { // (*activeConn).pc.c
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return false
		}
		if v = v.Elem().FieldByName(name); !v.IsValid() {
			return false
		}
	}
	return v.Kind() == reflect.Interface && !v.IsNil() && slices.Contains(shareable, v.Elem().Type().String())
}
