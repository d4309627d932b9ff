package main

import (
	"net"
	"net/url"
	"strings"
	"testing"
)

// FuzzAddress: whatever is given as an address is taken apart or refused, without a panic; and no
// password that stands in it, as it is or escaped, is in an error, in a hint or in a log.
func FuzzAddress(f *testing.F) {
	for _, s := range [][4]string{
		{"redis", "", "sesame", "h:6379/0"}, {"rediss", "app", "p@ss:w/rd?#", "[::1]:1"}, {"unix", "u", "%zz", "/run/redis.sock?db=1"}, {"http", "a", "b c", "h"}, {"redis", "a", "sesame", "h:port"},
		{"redis", "a", "sesame", "h/db"}, {"m@redis", "", "sesame", "s1:1,s2"}, {"", "", "sesame", "h"}, {"redis", "", "sesame,sesame", "h"}, {"redis", "a", "se'sa\"me", "h"},
		{"redis", "a,b", "sesame", "h"}, {"redis", "u", "sesame,q'r", "h"}, {"redis", "", "", "a:1,b:sesame@h"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, scheme, user, password, host string) {
		escaped := url.UserPassword(user, password).String()
		_, secret, _ := strings.Cut(escaped, ":")
		line := scheme + "://" + escaped + "@" + host
		at, err := parseAddress(line)
		switch {
		case err == nil && at.network == "tcp":
			if h, port, err := net.SplitHostPort(at.host); err != nil || h == "" || port == "" {
				t.Errorf("%q: %q, %v", line, at.host, err)
			}
		case err == nil && (at.network != "unix" || at.host == ""):
			t.Errorf("%q: %+v", line, at)
		}
		// A short password, or one that stands elsewhere too, is no proof.
		if len(password) < 4 || strings.Contains(scheme+user+host, password) || strings.Contains(scheme+user+host, secret) || strings.Contains(addressHint, secret) || strings.Contains(addressHint, password) {
			return
		}
		told := map[string]string{"log": scrubbed("dial " + line + ": refused"), "hint": shown(line)}
		if err != nil {
			told["error"] = err.Error()
		}
		for where, text := range told {
			text = strings.Replace(text, "--redis is neither host:port nor a URL", "", 1)
			if strings.Contains(text, secret) || strings.Contains(text, password) {
				t.Errorf("%q: in the %s: %s", line, where, text)
			}
		}
		if once := scrubbed(line); scrubbed(once) != once {
			t.Errorf("%q: %q, and again %q", line, once, scrubbed(once))
		}
	})
}
