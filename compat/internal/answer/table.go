package answer

import (
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A Row is what one answer of a server's means for a lock. The command that it answers did not run: a row of this
// table says no less. Of an answer without a row nothing is known.
type Row struct {
	word string // the first of the answer
	text string // or how the whole begins, where that word is ERR

	// Elsewhere says that this connection leads to a server that can't serve us, whereas another connection may: it is
	// of no use to anybody.
	Elsewhere bool
	// Passes says that waiting cures it.
	Passes bool
	// Remedy is what cures it; "": Denied says it, or whoever asked.
	Remedy string
	// About is what it is about, for a caller that knows more than Remedy says.
	About About
}

// About is what an answer is about; "": it has no row, or it is about something else.
type About string

const (
	Password   About = "password"   // the server doesn't let us in
	Replica    About = "replica"    // it is one
	Memory     About = "memory"     // it is full
	Permission About = "permission" // an ACL forbids it
	Node       About = "cluster"    // another node of the cluster has the key
)

var rows = []Row{
	{word: "READONLY", Elsewhere: true, Passes: true, About: Replica, Remedy: "this is a replica: connect to its master"},
	{word: "MASTERDOWN", Elsewhere: true, Passes: true, About: Replica,
		Remedy: "this is a replica that has lost its master: connect to the master"},
	{text: "ERR link with MASTER is down", Elsewhere: true, Passes: true, About: Replica, // 2.2 and 2.4
		Remedy: "this is a replica that has lost its master: connect to the master"},
	{word: "LOADING", Elsewhere: true, Passes: true, Remedy: "it is loading its data: try again when it has"},
	{word: "UNBLOCKED", Elsewhere: true, Passes: true, Remedy: "it became a replica: connect to its master"},
	{text: "ERR max number of clients", Elsewhere: true, Passes: true,
		Remedy: "it has as many clients as its maxclients allows"},

	{word: "NOAUTH", Elsewhere: true, About: Password, Remedy: "it asks for a password: AUTH"},
	{text: "ERR operation not permitted", Elsewhere: true, About: Password, // before 2.8
		Remedy: "it asks for a password: AUTH"},
	{word: "WRONGPASS", Elsewhere: true, About: Password, Remedy: "it does not know this user with this password"},
	{text: "ERR invalid password", Elsewhere: true, About: Password, Remedy: "it does not know this password"}, // before 6
	{word: "DENIED", Elsewhere: true,
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
	{word: "NOPERM", About: Permission}, // what it forbids its text says: see Denied
	{word: "EXECABORT"}, {word: "NOSCRIPT"},
}

const node = "this is a node of a cluster, which has other nodes for other keys: use package cluster"

const full = "the server is over its maxmemory: it needs room, or a higher maxmemory"

// Known returns the row of a server's answer; nil: it has none, or err is no server's answer. What a command inside a
// script was answered says nothing about those that ran before it there.
func Known(err error) *Row {
	e, ok := of(err)
	if !ok || strings.Contains(string(e), "user_script") {
		return nil
	}
	return row(string(e))
}

func row(said string) *Row {
	word, _, _ := strings.Cut(said, " ")
	for i, r := range rows {
		if r.word == word && word != "" || r.text != "" && strings.HasPrefix(said, r.text) {
			return &rows[i]
		}
	}
	return nil
}

// Passes reports that the server's answer is one that waiting cures.
func Passes(err error) bool {
	r := Known(err)
	return r != nil && r.Passes
}

// Elsewhere reports that the server's answer is that of one which can't serve us.
func Elsewhere(err error) bool {
	r := Known(err)
	return r != nil && r.Elsewhere
}

// Of returns what the server's answer is about.
func Of(err error) About {
	if r := Known(err); r != nil {
		return r.About
	}
	return ""
}

// Among returns the first of replies that has a row for which f holds, transactions' replies included.
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
