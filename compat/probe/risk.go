package probe

import (
	"slices"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// risks lists the risks of a lock on this server.
func risks(l locks.Lock, r Report, o Options) []string {
	var list []string
	switch {
	case l.Family() == "getset":
		list = timestampRisks(r, o)
	case slices.Contains(l.Needs, ability.Watch):
		list = watchRisks(r)
	default:
		list = tokenRisks(r)
	}
	switch l.Name {
	case "getset:listed":
		list = append(list,
			"over its maxmemory the server refuses what makes lists, and a lock can then neither be extended nor released before its end",
			"beside clients of the published lock, which overwrite and delete without comparing, it is only as safe as they are")
	case "getset:classic":
		list = append(list,
			"a client that pauses between the GET and the DEL of its release, past the end of its lease, deletes the lock of the next one",
			"a client that comes second to a takeover writes its own time over the winner's, who then can't extend or release")
	}
	return list
}

// late is the risk of every lock that has a lease.
const late = "a holder that pauses past the end of its lease and writes on is not stopped by the lock, only by a fence that is looked at where it writes"

func tokenRisks(r Report) []string {
	risks := []string{late}
	if !r.Can(ability.Milliseconds) {
		risks = append(risks, "leases are whole seconds on the server, and a dead holder's key stays up to a second longer than its ttl")
	}
	return risks
}

// watchRisks lists the risks of tokens compared under WATCH.
func watchRisks(r Report) []string {
	return append(tokenRisks(r), "over its maxmemory the server may refuse transactions, as 2.0 to 2.4 and 5.0 and later do, and a lock can then neither be extended nor released before its end")
}

func timestampRisks(r Report, o Options) []string {
	agree := "the clients' clocks must agree to less than a lease has left when it is released or extended: one that is fast by more takes a lock that is held; a dialect's Margin waits longer"
	if o.Dialect.Margin > 0 {
		agree = "the clients' clocks must agree to within " + o.Dialect.Margin.String() + " and what a lease has left: one that is fast by more takes a lock that is held"
	}
	risks := []string{late, agree}
	if o.Dialect != (getsetlock.Dialect{}) && !o.Dialect.Nonce {
		risks = append(risks, "two clients can write the same time, so a reply that was lost can't be resolved by reading the key")
	}
	if !r.Can(ability.SetnxOnTTL) {
		risks = append(risks, "if a client gives a key a TTL, the next SETNX deletes the key")
	}
	if !r.Can(ability.GetsetAndTTL) {
		risks = append(risks, "if a client gives a key a TTL, the key keeps it through a takeover and ends early")
	}
	return risks
}

// risk adds the risks of a lock on this server. It is not safe where the server may drop its key.
func (c *Choice) risk(l locks.Lock, r Report, o Options) {
	c.Risks = risks(l, r, o)
	endless := l.Family() == "getset" // its keys have no TTL
	for _, w := range r.Warnings {
		switch w.ID {
		case WarnEvictionVolatile, WarnEndlessKeys:
			if endless {
				continue
			}
		case WarnEvictionAll, WarnNoPersistence, WarnFailover, WarnCluster, WarnProxy:
		default:
			continue
		}
		c.Risks = append(c.Risks, w.Text)
		c.Safe = c.Safe && w.ID != WarnEvictionAll && w.ID != WarnEvictionVolatile
	}
}
