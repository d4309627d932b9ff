package probe

import (
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// The IDs of warnings.
const (
	WarnReplica          = "replica"             // not the master: what is written here, if at all, excludes nobody
	WarnWriteRefused     = "write-refused"       // the first write was refused
	WarnMemoryFull       = "memory-full"         // by maxmemory
	WarnEvictionVolatile = "eviction-volatile"   // keys with a TTL may be dropped: token locks
	WarnEvictionAll      = "eviction-allkeys"    // any key may be dropped: all locks
	WarnNoPersistence    = "no-persistence"      // a restart forgets all locks
	WarnEndlessKeys      = "aof-drops-ttl"       // a restart brings expired keys back, without a TTL: token locks
	WarnIdleTimeout      = "idle-timeout"        // idle connections are closed
	WarnProxy            = "proxy"               // more than one server may answer
	WarnCluster          = "cluster"             // keys live on several nodes
	WarnFailover         = "failover"            // replicas follow at a distance
	WarnConfigUnknown    = "config-unknown"      // some of the above could not be learned
	WarnGetsetKeepsTTL   = "getset-keeps-ttl"    // a timestamp lock that ever got a TTL keeps it
	WarnClosesConnection = "closes-connection"   // on commands that it doesn't know
	WarnSetnxDeletes     = "setnx-on-volatile"   // SETNX deletes a key that has a TTL
	WarnNoInfo           = "version-not-learned" // INFO is refused or lacks it
	WarnNoRole           = "role-not-learned"    // INFO and ROLE are refused or lack it
)

// warnings draws the conclusions.
func warnings(p *prober) []Warning {
	var list []Warning
	warn := func(id, format string, args ...any) {
		list = append(list, Warning{id, fmt.Sprintf(format, args...)})
	}
	r := p.r

	if r.Role == "replica" {
		warn(WarnReplica, "it is a replica: a lock taken here excludes nobody; ask its master%s", at(r.Master))
	}
	switch {
	case answer.Of(r.Refused) == answer.Memory:
		warn(WarnMemoryFull, "it has reached its maxmemory and refuses writes: no lock can be taken, and the rest could not be learned")
	case !r.Writable && r.Role != "replica":
		warn(WarnWriteRefused, "the first write failed (%v): the rest could not be learned", r.Refused)
	}
	asked := func(a ability.Ability) bool { return r.Answers[a].Verdict != ability.NotAsked }
	if r.Can(ability.Setnx) && asked(ability.SetnxOnTTL) && !r.Can(ability.SetnxOnTTL) {
		warn(WarnSetnxDeletes, "SETNX deletes a key that has a TTL and takes it: no key that serves as a lock may have one")
	}
	switch keeps := r.Answers[ability.GetsetAndTTL].Verdict; {
	case !r.Can(ability.Getset):
	case keeps == ability.No:
		warn(WarnGetsetKeepsTTL, "GETSET keeps the TTL: a timestamp lock whose key ever got one ends early")
	case keeps != ability.Yes:
		warn(WarnGetsetKeepsTTL, "it could not be learned whether GETSET takes a TTL away: if it does not, a timestamp lock whose key ever got one ends early")
	}
	if r.Kind == "proxy" {
		warn(WarnProxy, "it seems to be a proxy (%s): it may send a request twice, or to a server that has just come up empty, without saying so", r.Why)
	}
	if len(p.closers) > 0 {
		warn(WarnClosesConnection, "it closes the connection when asked for %s: a pool must not check its connections by a command that the server refuses", strings.Join(p.closers, ", "))
	}
	if p.info["cluster_enabled"] == "1" || p.info["redis_mode"] == "cluster" {
		warn(WarnCluster, "it is a node of a cluster: each key lives on one of several, and a failover may lose the newest locks")
	}
	if n := p.info["connected_slaves"]; n != "" && n != "0" {
		warn(WarnFailover, "%s replicas follow it at a distance: a failover may lose the newest locks", n)
	}
	if r.Version == "" {
		warn(WarnNoInfo, "INFO does not say the version")
	}
	if r.Role == "" && r.Writable {
		warn(WarnNoRole, "neither INFO nor ROLE says that it is a master: on a replica that takes writes a lock excludes nobody")
	}
	p.configured(warn)
	return list
}

// configured warns of dangers in the configuration, as far as it is known.
func (p *prober) configured(warn func(id, format string, args ...any)) {
	var unknown []string
	policy, knowsPolicy := p.conf["maxmemory-policy"]
	memory, knowsMemory := p.conf["maxmemory"]
	switch {
	case knowsMemory && memory == "0", knowsPolicy && policy == "noeviction":
	case !knowsPolicy || !knowsMemory:
		unknown = append(unknown, "whether keys are evicted")
	case strings.HasPrefix(policy, "allkeys-"):
		warn(WarnEvictionAll, "when it reaches its maxmemory (%s bytes) it drops keys of any kind, held locks among them: maxmemory-policy is %s", memory, policy)
	case !strings.HasPrefix(policy, "volatile-"):
		warn(WarnEvictionAll, "when it reaches its maxmemory (%s bytes) it may drop keys, held locks among them: "+
			"what its maxmemory-policy %q does is not known", memory, text(policy))
	default:
		warn(WarnEvictionVolatile, "when it reaches its maxmemory (%s bytes) it drops keys that have a TTL, held token locks among them: maxmemory-policy is %s", memory, policy)
	}

	save, knowsSave := p.conf["save"]
	aof := p.conf["appendonly"]
	switch {
	case aof == "yes", knowsSave && save != "":
	case aof == "no" && knowsSave:
		warn(WarnNoPersistence, "it saves nothing: after a restart all locks are free, although their holders go on")
	default:
		unknown = append(unknown, "whether locks outlive a restart")
	}

	if aof == "yes" && p.r.Kind == "redis" && p.r.Version != "" && ability.Older(p.r.Version, "2.6.14") {
		warn(WarnEndlessKeys, "a restart may bring back a key that has expired, without its TTL: a dead holder's token then stays until somebody removes it (when the AOF was rewritten before the key was removed; fixed in 2.6.14)")
	}

	switch idle, ok := p.conf["timeout"]; {
	case !ok:
		unknown = append(unknown, "whether idle connections are closed")
	case idle != "0":
		warn(WarnIdleTimeout, "it closes connections that are idle for %s s: a pool's IdleTimeout should be shorter", idle)
	}
	if len(unknown) > 0 {
		warn(WarnConfigUnknown, "CONFIG GET does not say %s", strings.Join(unknown, ", nor "))
	}
}

func at(master string) string {
	if master == "" {
		return ""
	}
	return ", " + master
}
