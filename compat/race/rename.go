package race

import "github.com/setnxlock/setnxlock/compat/oldredis"

// A rename is one way to rename the clients, with what was found about it.
type rename struct {
	to       [maxClients]uint8 // the new name of each
	nodes    names[uint32]
	contents names[uint32]
	inputs   names[uint32]
	conns    names[uint16]
	requests names[uint32]
}

// packed is a renaming as an index.
func packed(to [maxClients]uint8) int {
	return int(to[0]) | int(to[1])<<2 | int(to[2])<<4 | int(to[3])<<6
}

func unpacked(n uint8) *rename {
	return &rename{to: [maxClients]uint8{n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6}}
}

// text renames the clients in a text.
func (r *rename) text(s string) string {
	return eachToken(s, func(client int) byte {
		if client < maxClients {
			return '1' + r.to[client]
		}
		return '1' + byte(client)
	})
}

// request returns of with its clients renamed.
func (r *rename) request(of request) request {
	of.said = ""
	of.cmds = r.commands(of.cmds)
	rest := make([][][]string, len(of.rest))
	for i, cmds := range of.rest {
		rest[i] = r.commands(cmds)
	}
	if len(rest) > 0 {
		of.rest = rest
	}
	return of
}

// connection returns what a server knows of a connection, with its clients renamed.
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
