package stock

import (
	"reflect"
	"slices"

	"github.com/gomodule/redigo/redis"
)

// shareable are the connections of which one goroutine may receive while another sends: redigo's, and those of this
// module's embedded server and network.
var shareable = []string{"*redis.conn", "*oldredis.Conn", "*faulty.Conn"}

// Shareable reports that c, which a redis.Pool has handed out, is a connection that bears to be shared: not one of the
// program's own. A redigo whose pool looks otherwise than the ones that are known says no.
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
