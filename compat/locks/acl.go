package locks

import (
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/ability"
)

// commands are what each lock sends to a server that has ACLs (6.0 and later), its check of the
// server, fences and what runs inside its scripts included.
var commands = map[string]string{
	"set:ifeq":           "get set psetex pexpire pttl del exists incr multi exec discard delex",
	"set:lua":            "get set psetex pexpire pttl del exists incr eval evalsha",
	"set:script":         "get psetex pexpire pttl del exists incr eval evalsha",
	"set:watch":          "get set psetex pexpire pttl del incr" + transactions,
	"tx:renamed":         tokens60 + " renamenx",
	"tx:guarded":         tokens60,
	"tx:classic":         tokens60 + " ttl",
	"tx:renamed/listcas": tokens60 + " renamenx" + lists,
	"tx:guarded/listcas": tokens60 + lists + " renamenx",
	"getset:guarded":     times60,
	"getset:patient":     times60,
	"getset:two-keys":    "get set setex del msetnx incr" + transactions,
	"getset:listed":      "get setnx ttl del incr multi exec discard" + lists + " renamenx",
	"getset:classic":     "get setnx getset ttl del incr multi exec discard",
	"rw:read":            readers,
	"rw:write":           readers,
	"semaphore":          "get mget setex setnx psetex pexpire expire pttl del incr" + transactions,
	"bridge":             tokens60 + " ttl",
}

const (
	transactions = " watch unwatch multi exec discard"
	lists        = " set rpush sort lrem rpoplpush rename msetnx"
	tokens60     = "get setnx psetex pexpire pttl del incr" + transactions
	times60      = "get setnx getset setex ttl del incr" + transactions
	readers      = "get psetex pexpire expire expireat pttl ttl setex setnx del incr time zadd zcard zunionstore zrem zremrangebyscore zrevrange zscore" + transactions
)

// Commands returns every command of the lock to a server with ACLs (Redis 6), including its check of the server, fences
// and the commands inside its scripts. nil: it is made of other locks, see About.
func (l Lock) Commands() []string {
	return slices.Sorted(slices.Values(strings.Fields(commands[l.Name])))
}

// OnValkey returns the differences to ACL's rules for Valkey; "": none. A server refuses rules with commands that it
// lacks.
func (l Lock) OnValkey() string {
	if slices.Contains(l.OneOf, ability.DelIfEq) {
		return "+delifeq in place of +delex"
	}
	return ""
}

// ACL returns the rules for ACL SETUSER, after the user's name and password. They allow this lock on the keys that
// begin with prefix, and nothing else (Redis 6).
func (l Lock) ACL(prefix string) string {
	rules := []string{"resetkeys", "~" + prefix + "*", "resetchannels", "-@all"}
	switch {
	case slices.Contains(l.Commands(), "sort"): // since 7.0 its GET wants all keys
		rules[1] = "~*"
	case l.Name == "getset:two-keys": // the fleet's names, and beside the key what tries the server out
		rules = slices.Insert(rules, 2, "~lock:owner:"+prefix+"*", "~lock:expire:"+prefix+"*")
	}
	for _, c := range l.Commands() {
		rules = append(rules, "+"+c)
	}
	return strings.Join(rules, " ")
}
