package sentinel

import (
	"net"
	"strings"
	"testing"
)

// FuzzAnswers: whatever a Sentinel says of the others is read without a panic, and what comes out is an address.
func FuzzAnswers(f *testing.F) {
	f.Add("ip", "127.0.0.1", "port", "26379")
	f.Add("port", "", "ip", "::1")
	f.Add("ip", "h", "ip", "g")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one := []any{[]byte(a), []byte(b), []byte(c), []byte(d)}
		for _, reply := range []any{
			[]any{one}, []any{one, one}, one, []any{one[:3]}, []any{nil}, nil, []byte(a), int64(len(a)), []any{[]any{nil, nil}}, []any{[]any{one, b}}, []any{int64(1), []byte(a)},
		} {
			for _, addr := range others(reply) {
				if host, port, err := net.SplitHostPort(addr); err != nil && !strings.ContainsAny(b+d, "[]:") || err == nil && (host == "" || port == "") {
					t.Errorf("%q: %q, %v", reply, addr, err)
				}
			}
		}
	})
}
