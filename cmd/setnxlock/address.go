package main

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

// An address is one value of --redis, taken apart.
type address struct {
	network  string // "tcp" or "unix"
	host     string // host:port, or the socket's path
	tls      bool
	user     string
	password string
	db       int

	certified string // the host that the certificate must be for; "": that of the address
}

const addressHint = "it, or SETNXLOCK_REDIS, is host:port, redis://host:port/db, or rediss://host:port/db for TLS, " +
	"with user:password@ before the host if need be, or unix:///path?db=N; " +
	"special characters in the password are written %40 and so on"

// parseAddress takes an argument apart. It refuses a part that it does not know, and its errors
// repeat nothing of the argument: each part may be one of a password.
func parseAddress(arg string) (address, error) {
	bad := func(why string) (address, error) {
		return address{}, exit.Because(exit.Wrong, errors.New("--redis "+why), addressHint)
	}
	if strings.HasPrefix(arg, "/") {
		return address{network: "unix", host: arg}, nil
	}
	if !strings.Contains(arg, "://") {
		host, ok := hostPort(arg)
		if !ok || strings.ContainsAny(arg, "@/?#") {
			return bad("is neither host:port nor a URL")
		}
		return address{network: "tcp", host: host}, nil
	}
	u, err := url.Parse(arg)
	if err != nil {
		return bad("is not a URL that can be read")
	}
	at := address{network: "tcp", tls: u.Scheme == "rediss", user: u.User.Username()}
	db := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "redis", "rediss":
		ok := false
		if at.host, ok = hostPort(u.Host); !ok {
			return bad("has no host, or no number where the port belongs")
		}
	case "unix":
		if u.Host != "" || db == "" {
			return bad("names a socket by another path than an absolute one")
		}
		at.network, at.host, db = "unix", u.Path, ""
	default:
		return bad("has another scheme than redis://, rediss:// and unix://")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if dbs := query["db"]; len(dbs) == 1 && db == "" {
		db = dbs[0]
		delete(query, "db")
	}
	if err != nil || len(query) > 0 || strings.Contains(arg, "#") {
		return bad("has more behind the host than the number of a database, once")
	}
	if db != "" {
		n, err := strconv.ParseUint(db, 10, 31)
		if err != nil {
			return bad("has something else where a database's number belongs")
		}
		at.db = int(n)
	}
	given := false
	if at.password, given = u.User.Password(); given && at.password == "" && at.user != "" {
		return bad("has a user with an empty password")
	}
	return at, nil
}

// hostPort adds the port if it is left out of host:port. The host is not left out.
func hostPort(s string) (at string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port, err = net.SplitHostPort(s + ":6379")
	}
	if port == "" {
		port = "6379"
	}
	n, bad := strconv.ParseUint(port, 10, 16)
	return net.JoinHostPort(host, port), err == nil && bad == nil && n > 0 && host != ""
}

// parseAddresses takes a list apart. TLS is for all of them or for none.
func parseAddresses(list []string) (all []address, err error) {
	for _, arg := range list {
		at, err := parseAddress(arg)
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	return all, alikeInTLS(all)
}

func alikeInTLS(all []address) error {
	for _, at := range all {
		if at.tls != all[0].tls {
			return exit.Because(
				exit.Wrong,
				errors.New("some of the servers are to be asked under TLS and others in plain text"),
				"rediss:// before each of them, or before none",
			)
		}
	}
	return nil
}

// merged is what the addresses of one deployment say together. A part that one of them leaves out
// is as another says.
func merged(all []address) (address, error) {
	of := address{network: "tcp", tls: all[0].tls}
	for _, at := range all {
		same := at.network == of.network
		for _, part := range []struct{ of, at *string }{{&of.user, &at.user}, {&of.password, &at.password}} {
			same = same && (*part.of == "" || *part.at == "" || *part.of == *part.at)
			*part.of = cmp.Or(*part.of, *part.at)
		}
		same = same && (of.db == 0 || at.db == 0 || of.db == at.db)
		of.db = cmp.Or(of.db, at.db)
		if !same {
			return of, exit.Because(
				exit.Wrong, errors.New("the addresses of a cluster differ in more than host and port"), "",
			)
		}
	}
	return of, nil
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
