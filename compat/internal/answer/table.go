package answer

import (
	"cmp"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A Row says what one error reply means for a lock. A reply with a row proves that the refused command did not run;
// a reply without a row proves nothing.
type Row struct {
	word string // the first word of the reply
	text string // the beginning of the reply, if its first word is ERR

	// CannotServe is true if this server can't serve us but another connection may lead to a server that can. The
	// connection is useless to every caller.
	CannotServe bool
	// Passes is true if waiting helps.
	Passes bool
	// Remedy tells the user what to do. It is "" where Denied or the caller says so.
	Remedy string
	// About is the cause, for a caller that knows more than Remedy says.
	About About
}

// About names the cause of an error reply; "" is any other cause, or none known.
type About string

const (
	Password   About = "password"   // the server wants a password, or another one
	Replica    About = "replica"    // the server is a replica
	Memory     About = "memory"     // the server's memory is full
	Permission About = "permission" // an ACL forbids the command or the key
	Node       About = "cluster"    // another node of the cluster has the key
)

var rows = []Row{
	{word: "READONLY", CannotServe: true, Passes: true, About: Replica, Remedy: "this is a replica: connect to its master"},
	{word: "MASTERDOWN", CannotServe: true, Passes: true, About: Replica,
		Remedy: "this is a replica that has lost its master: connect to the master"},
	{text: "ERR link with MASTER is down", CannotServe: true, Passes: true, About: Replica, // 2.2 and 2.4
		Remedy: "this is a replica that has lost its master: connect to the master"},
	{word: "LOADING", CannotServe: true, Passes: true, Remedy: "it is loading its data: try again when it has"},
	{word: "UNBLOCKED", CannotServe: true, Passes: true, Remedy: "it became a replica: connect to its master"},
	{text: "ERR max number of clients", CannotServe: true, Passes: true,
		Remedy: "it has as many clients as its maxclients allows"},

	{word: "NOAUTH", CannotServe: true, About: Password, Remedy: "it asks for a password: AUTH"},
	{text: "ERR operation not permitted", CannotServe: true, About: Password, // before 2.8
		Remedy: "it asks for a password: AUTH"},
	{word: "WRONGPASS", CannotServe: true, About: Password, Remedy: "it does not know this user with this password"},
	{text: "ERR invalid password", CannotServe: true, About: Password, Remedy: "it does not know this password"}, // before 6
	{word: "DENIED", CannotServe: true,
		Remedy: "it is in protected mode: it serves its own machine alone until it has a password or a bind"},

	{word: "BUSY", Passes: true, Remedy: "a script has run on it for too long: SCRIPT KILL, or wait"},
	{word: "NOREPLICAS", Passes: true, Remedy: "it has fewer replicas than min-replicas-to-write asks for"},
	{word: "OOM", Passes: true, About: Memory, Remedy: full},
	{text: "ERR command not allowed when used memory > 'maxmemory'", // before 2.8
		Passes: true, About: Memory, Remedy: full},
	{word: "MISCONF", Passes: true,
		Remedy: "it can't save its data and accepts no writes until it can: look at its disk and its log"},

	{word: "CLUSTERDOWN", Passes: true, Remedy: "a part of the cluster has no master: wait for its election, or see CLUSTER INFO"},
	{word: "TRYAGAIN", Passes: true, Remedy: "the cluster is moving the keys of this slot: try again"},
	{word: "MOVED", Passes: true, About: Node, Remedy: node}, {word: "ASK", Passes: true, About: Node, Remedy: node},
	{word: "CROSSSLOT", Remedy: "this is a cluster, and the keys are in different slots: one key, or keys with one {hash tag}"},
	{word: "NOPERM", About: Permission}, // Denied makes the remedy from the text
	{word: "EXECABORT"}, {word: "NOSCRIPT"},
}

const node = "this is a node of a cluster, which has other nodes for other keys: use package cluster"

const full = "the server is over its maxmemory: it needs room, or a higher maxmemory"

// Known returns the row of an error reply, or nil. A reply from within a script has no row: it says nothing about the
// commands that the script ran before.
func Known(err error) *Row {
	e, ok := of(err)
	if !ok || strings.Contains(string(e), "user_script") {
		return nil
	}
	return row(string(e))
}

// execRefused begins the reply to an EXEC that was refused itself (from 7.0 on). The refusal follows, without its ERR.
const execRefused = "EXECABORT Transaction discarded because of: "

func row(said string) *Row {
	if why, ok := strings.CutPrefix(said, execRefused); ok {
		if r := cmp.Or(row(why), row("ERR "+why)); r != nil {
			return r
		}
	}
	word, _, _ := strings.Cut(said, " ")
	for i, r := range rows {
		if r.word == word && word != "" || r.text != "" && strings.HasPrefix(said, r.text) {
			return &rows[i]
		}
	}
	return nil
}

// Passes reports whether waiting helps against an error reply.
func Passes(err error) bool {
	r := Known(err)
	return r != nil && r.Passes
}

// CannotServe reports whether an error reply means: this server can't serve us.
func CannotServe(err error) bool {
	r := Known(err)
	return r != nil && r.CannotServe
}

// Of returns the cause of an error reply, or "".
func Of(err error) About {
	if r := Known(err); r != nil {
		return r.About
	}
	return ""
}

// Among returns the first error for which f holds, in replies and in the replies of their transactions.
func Among(replies []any, f func(error) bool) (redis.Error, bool) {
	for _, r := range replies {
		switch r := r.(type) {
		case redis.Error:
			if f(r) {
				return r, true
			}
		case []any:
			if e, found := Among(r, f); found {
				return e, true
			}
		}
	}
	return "", false
}
