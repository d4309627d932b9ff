package main

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
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
			if strings.Contains(text, secret) || strings.Contains(text, password) {
				t.Errorf("%q: in the %s: %s", line, where, text)
			}
		}
		if once := scrubbed(line); scrubbed(once) != once {
			t.Errorf("%q: %q, and again %q", line, once, scrubbed(once))
		}
	})
}

// Each part of an address is refused or read: a word that is put anywhere into one, behind any mark, stands in what
// was read. No error repeats it: it may be one of a password.
func TestNoPartIsIgnored(t *testing.T) {
	hosts := 0
	for _, whole := range []string{
		"h", "h:1", "[::1]:1", "redis://h", "redis://h:1/2", "rediss://u:p@h:1/2", "redis://:p@h?db=2", "redis://p@h",
		"unix:///s", "unix://u:p@/s?db=2", "/s",
	} {
		for at := range len(whole) + 1 {
			for _, mark := range strings.Split("|#|?|/|//|:|@|,|&|?x=|&db=|?db=|[|]| ", "|") {
				for _, word := range []string{"sesame", "7353"} {
					arg := whole[:at] + mark + word + whole[at:]
					for _, one := range strings.Split(arg, ",") {
						read, err := parseAddress(one)
						switch {
						case err == nil && !strings.Contains(one, word):
						case err == nil && !strings.Contains(fmt.Sprintf("%+v", read), word):
							t.Errorf("%q: %+v", one, read)
						case err != nil && strings.Contains(err.Error(), word):
							t.Errorf("%q: %v", one, err)
						case err == nil:
							hosts++
						}
					}
				}
			}
		}
	}
	if hosts < 100 {
		t.Errorf("%d were read, of all", hosts)
	}
	for _, arg := range []string{
		"", ":6379", "redis://", "redis:///2", "redis://:p@", "redis://#p@h", "redis://u:@h", "h:0", "h:65536", "h:x",
		"redis://h/2?db=2", "redis://h?db=2&db=3", "redis://h/-1", "unix://", "redis://h?db=", "redis://h?", "redis://h?db",
		"redis://h?DB=1", " h", "h ", "h\t:1", "\nh", "redis://:a b@h", "redis://:a@b@h", "redis://:a%@h", "/s@h", "/s ", "::1",
		"redis://[h]", "redis://h%41", "redis://[::1", "unix:///s%0", "redis://h//", "redis://h/1/", "redis+tls://h",
	} {
		if at, err := parseAddress(arg); err == nil {
			t.Errorf("%q: %+v", arg, at)
		}
	}
	for arg, want := range map[string]address{
		"h\n": {network: "tcp", host: "h:6379"}, "redis://u:p@h:1/2\r\n": {network: "tcp", host: "h:1", user: "u", password: "p", db: 2},
		"rediss://:%40%2F%3a@[fe80::1%25lo]:1?db=3": {network: "tcp", tls: true, host: "[fe80::1%lo]:1", password: "@/:", db: 3},
		"redis://:a:b&c=d\"<>^{|}é@h":               {network: "tcp", host: "h:6379", password: "a:b&c=d\"<>^{|}é"},
		"unix://u:p@/a%20b%40c?db=4":                {network: "unix", host: "/a b@c", user: "u", password: "p", db: 4},
		"/a b\n":                                    {network: "unix", host: "/a b"}, "REDIS://h/": {network: "tcp", host: "h:6379"},
	} {
		if at, err := parseAddress(arg); err != nil || at != want {
			t.Errorf("%q: %+v, %v", arg, at, err)
		}
	}
}

// A user and a password come from the address, or from the flags and the environment: neither is read and ignored.
func TestLogin(t *testing.T) {
	for _, test := range []struct{ at, user, password, want string }{ // want: user:password; "": refused
		{"redis://h", "", "", ":"}, {"redis://pw@h", "", "", ":pw"}, {"redis://:pw@h", "", "", ":pw"}, {"redis://u:pw@h", "", "", "u:pw"},
		{"redis://h", "", "pw", ":pw"}, {"redis://h", "u", "pw", "u:pw"}, {"redis://u@h", "", "pw", "u:pw"}, {"redis://u@h", "u", "pw", "u:pw"},
		{"redis://:pw@h", "u", "", "u:pw"}, {"redis://:pw@h", "u", "other", "u:pw"}, {"redis://u:pw@h", "u", "", "u:pw"},
		{"redis://u:pw@h", "v", "", ""}, {"redis://u:pw@h", "v", "other", ""}, {"redis://u@h", "v", "pw", ""}, {"redis://h", "u", "", ""}, {"redis://u@h", "u", "", ""},
	} {
		s := &secrets{user: test.user, password: test.password}
		at, err := s.login(must.Get(parseAddress(test.at))(t))
		if got := at.user + ":" + at.password; (err != nil) != (test.want == "") || err == nil && got != test.want {
			t.Errorf("%s, --user %q, password %q: %q, %v; want %q", test.at, test.user, test.password, got, err, test.want)
		}
	}
}
