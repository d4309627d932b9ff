package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

// addressVariable is read where --redis is not given.
const addressVariable = "SETNXLOCK_REDIS"

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

const addressHint = "an address is host:port, redis://host:port/db, or rediss://host:port/db for TLS, " +
	"with user:password@ before the host if need be, or unix:///path?db=N; " +
	"special characters in the password are written %40 and so on"

// parseAddress takes an argument apart: each part of it is read or refused. Its errors name the part,
// and repeat nothing of it: each may be one of a password.
func parseAddress(arg string) (at address, err error) {
	arg = strings.TrimRight(arg, "\r\n") // of a file, or of $(…) in another shell
	scheme, rest, isURL := strings.Cut(arg, "://")
	path := strings.HasPrefix(arg, "/")
	blank := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) && !(path && r == ' ') }
	switch {
	case arg == "":
		return at, errors.New("is empty")
	case strings.ContainsFunc(arg, blank), strings.HasSuffix(arg, " "):
		return at, errors.New("has white space in it")
	case path && strings.Contains(arg, "@"): // of a URL that was cut at a comma of its password
		return at, errors.New("has an @ in a socket's path: write unix:///path, and @ as %40")
	case path:
		return address{network: "unix", host: arg}, nil
	case !isURL && strings.Contains(arg, "@"):
		return at, errors.New("has a user or a password without redis:// before it")
	case !isURL && strings.ContainsAny(arg, "/?#"):
		return at, errors.New("has a path, a query or a fragment without redis:// before it")
	case !isURL:
		at.network = "tcp"
		at.host, err = hostPort(arg)
		return at, err
	}
	switch strings.ToLower(scheme) {
	case "redis", "rediss":
		at.network, at.tls = "tcp", strings.EqualFold(scheme, "rediss")
	case "unix":
		at.network = "unix"
	default:
		return at, errors.New("has another scheme than redis://, rediss:// and unix://")
	}
	return at, at.readURL(rest)
}

// readURL reads an address from behind its scheme on.
func (at *address) readURL(rest string) (err error) {
	rest, query, asks := strings.Cut(rest, "?")
	if strings.Contains(rest+query, "#") {
		return errors.New("has a fragment (#): in a password write # as %23")
	}
	end := strings.IndexByte(rest+"/", '/')
	authority, path := rest[:end], rest[end:]
	if strings.Contains(path+query, "@") {
		return errors.New("has an @ behind its host: in a password write / as %2F, and ? as %3F")
	}
	from := strings.LastIndexByte(authority, '@') + 1
	if err := at.readUser(strings.TrimSuffix(authority[:from], "@")); err != nil {
		return err
	}
	host, db := authority[from:], strings.TrimPrefix(path, "/")
	if at.network == "unix" {
		if host != "" || db == "" {
			return errors.New("needs an absolute path of a socket")
		}
		if at.host, err = url.PathUnescape(path); err != nil || strings.ContainsRune(at.host, 0) {
			return errors.New("has a % in its path that encodes nothing: write % as %25")
		}
		return at.readDatabase("", query, asks)
	}
	if strings.HasPrefix(host, "[") {
		host = strings.Replace(host, "%25", "%", 1) // before the zone
	}
	if at.host, err = hostPort(host); err != nil {
		return err
	}
	return at.readDatabase(db, query, asks)
}

// readUser reads the user and the password before the @.
func (at *address) readUser(info string) (err error) {
	if strings.Contains(info, "@") {
		return errors.New("has several @ before its host: in a password write @ as %40")
	}
	user, password, given := strings.Cut(info, ":")
	if at.user, err = url.PathUnescape(user); err == nil {
		at.password, err = url.PathUnescape(password)
	}
	switch {
	case err != nil:
		return errors.New("has a % in its user or password that encodes nothing: write % as %25")
	case given && password == "" && user != "":
		return errors.New("has a user with an empty password")
	}
	return nil
}

// readDatabase reads the database behind the host: /2 or ?db=2.
func (at *address) readDatabase(db, query string, asks bool) error {
	if asks {
		key, value, _ := strings.Cut(query, "=")
		switch {
		case strings.Contains(query, "&"):
			return errors.New("has a query of several parts: only ?db=N is allowed")
		case key != "db":
			return errors.New("has an unknown query key: only ?db=N is allowed")
		case db != "":
			return errors.New("has two databases, in its path and in its query")
		}
		if db = value; db == "" {
			db = "none"
		}
	}
	if db == "" {
		return nil
	}
	n, err := strconv.ParseUint(db, 10, 31)
	if err != nil {
		return errors.New("has a database that is not a number")
	}
	at.db = int(n)
	return nil
}

// hostPort adds the port if it is left out of host:port. The host is not left out.
func hostPort(s string) (at string, err error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port, err = net.SplitHostPort(s + ":6379")
	}
	if port == "" {
		port = "6379"
	}
	odd := func(r rune) bool {
		return r < utf8.RuneSelf && !strings.ContainsRune(".-_", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	n, bad := strconv.ParseUint(port, 10, 16)
	switch ip := strings.HasPrefix(s, "["); {
	case err != nil:
		return "", errors.New("has brackets or colons beside those of host:port or [IPv6]:port")
	case host == "":
		return "", errors.New("has no host")
	case bad != nil || n == 0:
		return "", errors.New("has a port that is not a number from 1 to 65535")
	case ip && !isIP(host), !ip && strings.ContainsFunc(host, odd):
		return "", errors.New("has a host with characters that no host name has")
	}
	return net.JoinHostPort(host, port), nil
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// parseAddresses takes a list apart, of the flag or variable of that name. TLS is for all addresses or for
// none.
func parseAddresses(of string, list []string) (all []address, err error) {
	for _, arg := range list {
		at, err := parseAddress(arg)
		if err != nil {
			err = fmt.Errorf("%s %w", of, err)
			return nil, exit.Because(exit.Wrong, err, addressHint)
		}
		all = append(all, at)
	}
	return all, alikeInTLS(all)
}

func alikeInTLS(all []address) error {
	for _, at := range all {
		if at.tls != all[0].tls {
			return exit.Misuse("some addresses have TLS (rediss://) and others have none",
				"rediss:// before each of them, or before none")
		}
	}
	return nil
}

// merged joins the addresses of one deployment. A part that one of them leaves out is taken from another.
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
			return of, exit.Misuse("the addresses of a cluster differ in more than host and port", "")
		}
	}
	return of, nil
}

// addresses hold the flag's value: the first one given replaces the default, each further one is added. A
// comma in a password is written %2C.
type addresses struct {
	list  []string
	given bool
}

func (a *addresses) Type() string   { return "address" }
func (a *addresses) String() string { return strings.Join(a.list, ",") }

// from names the flag or the variable of the addresses.
func (a *addresses) from() string {
	if a.given {
		return "--redis"
	}
	return addressVariable
}

func (a *addresses) Set(s string) error {
	if !a.given {
		a.list, a.given = nil, true
	}
	a.list = append(a.list, strings.Split(s, ",")...)
	return nil
}
