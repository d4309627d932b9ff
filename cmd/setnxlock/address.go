package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// An address is one value of --redis, taken apart.
type address struct {
	network  string // "tcp" or "unix"
	host     string // host:port, or the socket's path
	tls      bool
	user     string
	password string
	db       int
}

const addressHint = "it is host:port, redis://host:port/db, or rediss://host:port/db for TLS, with user:password@ before the host if need be, or unix:///path?db=N"

// parseAddress takes an argument apart. Its errors don't repeat the argument, which may
// hold a password.
func parseAddress(arg string) (address, error) {
	bad := func(format string, args ...any) (address, error) {
		return address{}, &failure{statusUsage, fmt.Errorf("--redis "+format, args...), addressHint}
	}
	if strings.HasPrefix(arg, "/") {
		return address{network: "unix", host: arg}, nil
	}
	if !strings.Contains(arg, "://") {
		if strings.ContainsAny(arg, "@/") {
			return bad("is neither host:port nor a URL")
		}
		bare := strings.Trim(arg, "[]")
		if _, _, err := net.SplitHostPort(arg); err != nil && strings.Contains(bare, ":") && !strings.HasPrefix(arg, "[") {
			return bad("%q is not host:port", arg)
		}
		return address{network: "tcp", host: hostPort(arg)}, nil
	}
	u, err := url.Parse(arg)
	if err != nil {
		return address{}, &failure{statusUsage, errors.New("--redis is not a URL that can be read"), addressHint + "; special characters in the password are written %40 and so on"}
	}
	at := address{network: "tcp", host: hostPort(u.Host), tls: u.Scheme == "rediss"}
	db := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "redis", "rediss":
	case "unix":
		if u.Host != "" || db == "" {
			return bad("names a socket by another path than an absolute one")
		}
		at.network, at.host, db = "unix", u.Path, u.Query().Get("db")
	default:
		return bad("is a %s:// URL", u.Scheme)
	}
	if db != "" {
		if at.db, err = strconv.Atoi(db); err != nil || at.db < 0 {
			return bad("has %q where a database's number belongs", db)
		}
	}
	at.user = u.User.Username()
	at.password, _ = u.User.Password()
	return at, nil
}

// hostPort adds what is left out of host:port.
func hostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), ""
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "6379"
	}
	return net.JoinHostPort(host, port)
}

// addresses are the flag's value: what is given first replaces the default, what
// follows is added. A comma in a password is written %2C.
type addresses struct {
	list  []string
	given bool
}

func (a *addresses) Type() string   { return "address" }
func (a *addresses) String() string { return strings.Join(a.list, ",") }

func (a *addresses) Set(s string) error {
	if !a.given {
		a.list, a.given = nil, true
	}
	a.list = append(a.list, strings.Split(s, ",")...)
	return nil
}
