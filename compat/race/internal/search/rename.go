package search

import (
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A rename is one way to rename the clients, with what was found about it.
type rename struct {
	to       [plan.MaxClients]uint8 // the new name of each
	nodes    memo.Names[uint32]
	contents memo.Names[uint32]
	inputs   memo.Names[uint32]
	conns    memo.Names[uint16]
	requests memo.Names[uint32]
}

// packed numbers a renaming.
func packed(to [plan.MaxClients]uint8) int {
	return int(to[0]) | int(to[1])<<2 | int(to[2])<<4 | int(to[3])<<6
}

func unpacked(n uint8) *rename {
	return &rename{to: [plan.MaxClients]uint8{n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6}}
}

// text renames the clients in a text.
func (r *rename) text(s string) string {
	return plan.EachToken(s, func(client int) byte {
		if client < plan.MaxClients {
			return '1' + r.to[client]
		}
		return '1' + byte(client)
	})
}

// request returns of with its clients renamed.
func (r *rename) request(of client.Request) client.Request {
	of.Said = ""
	of.Cmds = r.commands(of.Cmds)
	rest := make([][][]string, len(of.Rest))
	for i, cmds := range of.Rest {
		rest[i] = r.commands(cmds)
	}
	if len(rest) > 0 {
		of.Rest = rest
	}
	return of
}

// connection renames the clients in a server's knowledge of a connection.
func (r *rename) connection(st oldredis.ConnState) oldredis.ConnState {
	watched := make([]oldredis.WatchedKey, len(st.Watched))
	for i, w := range st.Watched {
		w.Key = r.text(w.Key)
		watched[i] = w
	}
	st.Watched, st.Queue = watched, r.commands(st.Queue)
	return st
}

func (r *rename) commands(cmds [][]string) [][]string {
	list := make([][]string, len(cmds))
	for i, cmd := range cmds {
		for _, a := range cmd {
			list[i] = append(list[i], r.text(a))
		}
	}
	return list
}
