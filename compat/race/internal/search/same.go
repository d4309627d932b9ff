package search

import (
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
)

// What a client does is what another one that is alike does under other names. So the code of the
// first of them is run for all: a client's node has a sameNode among the first one's, and what leads on
// from it is looked up there, with the two clients' names exchanged.

// mirror runs a client by an earlier one of its kind.
func (rs *Runs) mirror(n, input uint32) edge {
	client := rs.nodes[n].client
	there := rs.child(rs.sameNode(n), rs.swapInput(client, input))
	return edge{to: rs.counterpart(client, there.to, n, input), closed: there.closed(), results: rs.ended[there.rest>>1]}
}

// sameNode returns the first client's node of the same kind as n.
func (rs *Runs) sameNode(n uint32) uint32 {
	at := &rs.nodes[n]
	if at.orphan {
		return rs.roots[rs.sort(int(at.client))][at.Attempt]
	}
	return at.sameNode - 1
}

// counterpart finds a client's node with a given sameNode, from n by an input.
func (rs *Runs) counterpart(who uint8, there, n, input uint32) uint32 {
	node := rs.nodes[there]
	if node.orphan {
		return rs.roots[who][node.Attempt]
	}
	to, ok := rs.sameNodes[[2]uint32{uint32(who), there}]
	if !ok {
		node.sameNode, node.client, node.parent, node.input = 1+there, who, n, input
		swap := rs.swap(who)
		node.Value = swap.text(node.Value)
		if node.kind == client.Sends {
			node.req = rs.request(swap.request(rs.requests[node.req]))
		}
		to = rs.add(node)
		rs.sameNodes[[2]uint32{uint32(who), there}] = to
	}
	return to
}

// swap exchanges a client's name and its sameNode's.
func (rs *Runs) swap(client uint8) *rename {
	var r rename
	for i := range r.to {
		r.to[i] = uint8(i)
	}
	sameNode := rs.sort(int(client))
	r.to[client], r.to[sameNode] = uint8(sameNode), client
	return &r
}

func (rs *Runs) swapInput(client uint8, in uint32) uint32 {
	if in == inputLost || in == inputWrote || isClock(in) {
		return in
	}
	return rs.swapped[client].Find(in, &rs.frozen, func() uint32 { return rs.replies.rename(in, rs.swap(client)) })
}
