package race

import (
	"fmt"
	"strings"
)

// A request is a place where a client waits to be scheduled: what it is about
// to do. Between two requests its code runs unnoticed.
type request struct {
	kind requestKind

	// cmds run as one: a MULTI with all that it queues up to its EXEC, or a
	// single command. What is queued touches only its own connection, so that
	// nothing is lost by not stopping there.
	cmds [][]string

	// first and last say where cmds stand in the write that carries them. A
	// write can be lost before it, cut between two of its commands, or its
	// replies be lost after it; these are all the ways, each named once.
	first, last bool

	// along says of a reading of the clock that it notes when an answer came: the client is at
	// it still, and does not stop before it.
	along bool

	server int // of several, the one that it is for; 0: there is only one

	// rest is what follows the first request in its write: if the write is late, all of it is.
	rest [][][]string

	said string // see says
}

type requestKind uint8

const (
	readsClock requestKind = iota // asks for the time
	sends                         // has sent a command, which is yet to run
	works                         // writes to what the lock protects
	ends                          // has made its last attempt
)

// An answer is what the world replies to a request.
type answer struct {
	ms      int64 // readsClock: the client's own time
	replies []any // sends: of each command
	lost    bool  // sends: an error instead, and the connection is dead
}

// groups cuts one pipelined write into requests.
func groups(write [][]string) []request {
	var all []request
	var open [][]string // since a MULTI
	for _, cmd := range write {
		name := strings.ToUpper(cmd[0])
		switch {
		case open != nil:
			open = append(open, cmd)
			if name == "EXEC" || name == "DISCARD" {
				all, open = append(all, request{kind: sends, cmds: open}), nil
			}
		case name == "MULTI":
			open = [][]string{cmd}
		default:
			all = append(all, request{kind: sends, cmds: [][]string{cmd}})
		}
	}
	if open != nil {
		all = append(all, request{kind: sends, cmds: open})
	}
	for i := range all {
		all[i].server = addressed(all[i].cmds)
	}
	for _, r := range all[1:] {
		all[0].rest = append(all[0].rest, r.cmds)
	}
	all[0].first = true
	all[len(all)-1].last = true
	return all
}

// local says when a request touches nothing but its own connection, so that it
// needs no scheduling: it runs along with what stood before it.
func (r *request) local() locality {
	if r.kind != sends || len(r.cmds) != 1 {
		return shared
	}
	switch strings.ToUpper(r.cmds[0][0]) {
	case "MULTI", "UNWATCH", "DISCARD":
		return local
	case "EXEC", "WATCH":
		return shared
	}
	return queued
}

// A locality is when a request is its connection's own affair.
type locality uint8

const (
	shared locality = iota // never
	local                  // always
	queued                 // if the connection is in MULTI
)

func (l locality) is(multi bool) bool { return l == local || l == queued && multi }

// says is what a server gets to see of the request, as a string that two share exactly if that is equal.
func (r *request) says() string {
	if r.said == "" {
		r.said = fmt.Sprintf("%q", r.cmds)
	}
	return r.said
}

// text is the request as a string that two share exactly if they are equal.
func (r *request) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d%t%t", r.kind, r.first, r.last)
	for _, cmd := range r.cmds {
		fmt.Fprintf(&b, "%q", cmd)
	}
	for _, cmds := range r.rest {
		fmt.Fprintf(&b, "+%q", cmds)
	}
	return b.String()
}
