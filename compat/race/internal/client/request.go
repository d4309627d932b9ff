package client

import (
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A Request is a place where a client waits to be scheduled: what it is about
// to do. Between two requests its code runs unnoticed.
type Request struct {
	Kind RequestKind

	// cmds run as one: a MULTI with all that it queues up to its EXEC, or a
	// single command. What is queued touches only its own connection, so that
	// nothing is lost by not stopping there.
	Cmds [][]string

	// first and last say where cmds stand in the write that carries them. A
	// write can be lost before it, cut between two of its commands, or its
	// replies be lost after it; these are all the ways, each named once.
	First, Last bool

	// along says of a reading of the clock that it notes when an answer came: the client is at
	// it still, and does not stop before it.
	Along bool

	Server int // of several, the one that it is for; 0: there is only one

	// rest is what follows the first request in its write: if the write is late, all of it is.
	Rest [][][]string

	Said string // see says
}

// A RequestKind is what a client waits for.
type RequestKind uint8

const (
	ReadsClock RequestKind = iota // asks for the time
	Sends                         // has sent a command, which is yet to run
	Works                         // writes to what the lock protects
	Ends                          // has made its last attempt
)

// An Answer is what the world replies to a request.
type Answer struct {
	Now     int64 // readsClock: the client's own time
	Replies []any // sends: of each command
	Lost    bool  // sends: an error instead, and the connection is dead
}

// groups cuts one pipelined write into requests.
func groups(write [][]string) []Request {
	var all []Request
	var open [][]string // since a MULTI
	for _, cmd := range write {
		name := strings.ToUpper(cmd[0])
		switch {
		case open != nil:
			open = append(open, cmd)
			if name == "EXEC" || name == "DISCARD" {
				all, open = append(all, Request{Kind: Sends, Cmds: open}), nil
			}
		case name == "MULTI":
			open = [][]string{cmd}
		default:
			all = append(all, Request{Kind: Sends, Cmds: [][]string{cmd}})
		}
	}
	if open != nil {
		all = append(all, Request{Kind: Sends, Cmds: open})
	}
	for i := range all {
		all[i].Server = plan.Addressed(all[i].Cmds)
	}
	for _, r := range all[1:] {
		all[0].Rest = append(all[0].Rest, r.Cmds)
	}
	all[0].First = true
	all[len(all)-1].Last = true
	return all
}

// Local reports whether a request touches nothing but its own connection, and needs no scheduling: it
// runs along with the one before it.
func (r *Request) Local() Locality {
	if r.Kind != Sends || len(r.Cmds) != 1 {
		return Shared
	}
	switch strings.ToUpper(r.Cmds[0][0]) {
	case "MULTI", "UNWATCH", "DISCARD":
		return local
	case "EXEC", "WATCH":
		return Shared
	}
	return queued
}

// A Locality is when a request is its connection's own affair.
type Locality uint8

const (
	Shared Locality = iota // never
	local                  // always
	queued                 // if the connection is in MULTI
)

// Is reports whether a request runs along on a connection, in MULTI or not.
func (l Locality) Is(multi bool) bool { return l == local || l == queued && multi }

// Says writes the request for the server's eyes, as equal strings for equal requests.
func (r *Request) Says() string {
	if r.Said == "" {
		r.Said = fmt.Sprintf("%q", r.Cmds)
	}
	return r.Said
}

// Text writes the request, as equal strings for equal requests.
func (r *Request) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d%t%t", r.Kind, r.First, r.Last)
	for _, cmd := range r.Cmds {
		fmt.Fprintf(&b, "%q", cmd)
	}
	for _, cmds := range r.Rest {
		fmt.Fprintf(&b, "+%q", cmds)
	}
	return b.String()
}
