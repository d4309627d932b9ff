package probe

import "testing"

// A server's name and version are its own: Valkey 8.0.1 says redis_version:7.2.4, and is no Redis 7.2.4.
func TestProduct(t *testing.T) {
	for _, c := range []struct{ info, name, own string }{
		{"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n", "redis", ""},
		{"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n", "valkey", "8.0.1"}, // as recorded
		{"redis_version:7.4.0\r\nserver_name:redis\r\n", "redis", ""},
		{"redis_version:7.4.0\r\ndragonfly_version:df-v1.25.5\r\n", "dragonfly", "df-v1.25.5"},
		{"redis_version:6.3.4\r\nexecutable:/usr/bin/keydb-server\r\n", "keydb", ""},
		{"server_name:ssdb\r\n", "ssdb", ""},
		{"run_id:1\r\n", "", ""},
	} {
		if name, own, why := product(parseInfo(c.info)); name != c.name || own != c.own || (why == "") != (name == "") {
			t.Errorf("%q: %q, version %q, because %q; want %q, %q", c.info, name, own, why, c.name, c.own)
		}
	}
}
