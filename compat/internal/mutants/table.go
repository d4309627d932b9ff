package main

import (
	"path"
	"slices"
	"strings"
)

// The nets. Each takes seconds.
var (
	machine = tested("compat/internal/lease", "")
	queue   = tested("compat/internal/queue", "")
	sharing = tested("compat/internal/mux", "")

	handing  = tested("compat", "Handoff|HandedOff|LostIsNot|Detach|Unextendable")
	settling = tested("compat", "ReleaseThatIsNotKnown|AfterItsTime|Unknown|Cancelled|ResolvedAcquire|LostMessages|"+
		"AfterExpiry|AcrossAPause|BeforeExpire|ServerGone")
	watching = tested("compat", "Pinned|AbortedAndAmbiguous|RepairOf|RenewedTogether|LossAmongMany|ComeBackClean|"+
		"TTLRepair|CrashWhileHolding")
	lists    = tested("compat", "ListCAS")
	scripted = tested("compat/setlock", "Script")
	ifeq     = tested("compat", "IfEq")
	looking  = tested("compat", "LoserOverwrites|StaleGetset|ClassicDoesNot|LossAmongMany|RenewedTogether")
	waiting  = tested("compat", "Waiter|FirstCome|ManyWaiters|GivingUp|Handoffs|ATurnIs|Patient|ListenAsOne|Turns|Signals")
	between  = tested("compat", "LongFleets")
	stopping = tested("compat", "NoRenewalAfterRelease|EachLockEnds|WaiterWakes")
	execs    = tested("compat", "Exec|Pinned")

	batches  = promises("Batch|RenewalsResume")
	promised = promises("Fence|ReleaseAgain|ReleasedIsNot|NeverALease|DoSays|OldHandle|AfterAResolved|" +
		"TokenRace|DetachLoops|ResolvedExtend|BeliefNever|Doubts|EdgesOfTTL|Delayed|Close|DuringHandoff|Repair")
	hostile     = promises("HostileBytes$")
	suspends    = promises("Suspended")
	due         = tested("compat/internal/schedule", "Suspended")
	overtake    = promises("Overtaken")
	refusing    = promises("ARefusalProves")
	undoing     = promises("FailedAttempts")
	twotake     = promises("TwoTake")
	cleaning    = tested("compat", "NewConnIsLeftClean")
	rolling     = promises("RollingRestart|APartThatIsNew|QuorumInDoubt")
	downgrading = tested("compat/rwlock", "DowngradeOnAQuorum")
	piped       = promises("NoMoreClients|NoTransactionIs")
	across      = tested("compat/cluster", "SetsAcross")
	oneVote     = tested("compat/redlock", "OneServerIs")
	still       = tested("compat/cluster", "StoodStill")
	delayed     = promises("Delayed")
	oncemore    = promises("ExtendOnceMore")
	gaveUp      = promises("WhoGaveUp")
	brought     = promises("BringsAlong")
	answered    = promises("AnswersOfAServer|WhatWaitingCures")
	lied        = promises("NeverOutlives|FailedAttempts")
	dialing     = promises("ADialThat")
	bounded     = promises("CleanupIsBounded|CloseIsBounded|ASilentKey|ReleaseTokenAfter|CloseWaits|DoSays")
	strange     = tested("compat/probe", "Strangers")
	holding     = promises("Hold")

	getset = tested("getsetlock", "^Test([^CM]|Classic)")
	tx     = tested("txlock", "^Test([^CM]|Classic|Check)")
	set    = tested("compat/setlock", "")
	rw     = tested("compat/rwlock", "^Test[^CLM]")
	slots  = tested("compat/semaphore", "AtMost|Limit|Others|Lost")
	three  = simulation("-lock", "semaphore tx:guarded")

	following = tested("compat", "StepThatFollows")
	clustered = tested("compat/cluster", "Unanswered|PassedOn")
	moved     = tested("compat/cluster", "Moved|Keys|PassedOn")
	followed  = tested("compat/sentinel", "Votes|Vote$|Liars|Replicated")

	votes   = tested("compat/redlock", "^Test[^C]")
	sets    = tested("compat/multilock", "^Test([^CM]|Classic)")
	bridged = tested("compat/bridge", "OneKey|TwoNames")
	fleets  = tested("txlock", "Fleet")

	pinning  = tested("compat", "Pinned")
	keeping  = tested("compat", "APoolIsNotOurs|PoolIsClosed|OnBorrow|AFullPool")
	renewing = tested("compat", "OutlivesTheCaller|CheckInEachEpoch")
	refusals = tested("compat", "RefusedIsNotDone")
	electing = tested("compat/cluster", "LockWaits|LockThrough")

	batching = simulation("-lock", "getset:guarded") // a lock whose values change
	simulate = simulation("-runs", "1000")           // stops at the first run that fails
)

// The columns of the matrix, the fast ones first.
var columns = slices.Concat(
	whole("compat/internal/lease", "compat/internal/queue", "compat/internal/mux", "compat/internal/schedule",
		"compat/internal/wire", "compat/internal/limit", "compat/internal/cleaning", "compat/internal/oneline",
		"compat/internal/script", "compat/internal/listcas", "compat/adapter", "compat/probe", "compat/setlock", "txlock",
		"getsetlock", "compat/locks", "compat/sentinel", "compat/redlock", "compat/cluster", "compat/rwlock",
		"compat/multilock", "compat/bridge", "compat/conformance"),
	[]column{
		{"explorer", tested("compat/race/internal/explore", "DefaultHolds|LockerHolds|NewerLocks|PinnedPromises")},
		{"simulation", simulation()}, // with fixed seeds
		{"compat", net{dir: "compat", args: []string{"-test.skip=Imports|ImportBrings|PackageComments|StandAlone|Contributing"}}},
	},
	whole("compat/internal/promises"))

// whole returns a column with all tests for each package.
func whole(dirs ...string) (all []column) {
	for _, dir := range dirs {
		all = append(all, column{path.Base(dir), tested(dir, "")})
	}
	return all
}

func tested(dir, run string) net { return net{dir: dir, run: run} }

func simulation(args ...string) net {
	return net{dir: "compat/internal/simulate", run: "Simulation", args: append([]string{"-first"}, args...)}
}

func promises(run string) net { return tested("compat/internal/promises", run) }

// atHome has the nets for mutants of a package without nets of their own.
var atHome = map[string][]net{
	"adapter":    {tested("compat/adapter", "")},
	"bridge":     {bridged},
	"cluster":    {moved},
	"compat":     {settling, batches, promised},
	"getsetlock": {getset},
	"lease":      {machine},
	"multilock":  {sets},
	"mux":        {sharing},
	"protocol":   {settling, batches, promised},
	"queue":      {queue, waiting},
	"redlock":    {votes},
	"rwlock":     {rw},
	"schedule":   {due},
	"sentinel":   {followed},
	"setlock":    {set},
	"txlock":     {tx},
}

func row(name, in string, edits []edit, nets ...net) mutant {
	if len(nets) == 0 {
		pkg, _, _ := strings.Cut(in, ".")
		nets = atHome[pkg]
	}
	return mutant{name, in, edits, nets}
}

var table = []mutant{
	// Fixes after a review, taken back: the simulation must fail.
	row("an extension of unknown outcome keeps the old end", "lease.State.Until",
		swap("until = earlier(until, d.Until)", "_ = d"), simulate),
	row("a ttl that no server counts is asked for", "compat.validTTL",
		swap("ttl > longest", "ttl > longest && ttl < longest"), simulate),
	row("a hand-off that failed takes the lock off the schedule", "compat.held.Handoff",
		swap("#4/4 return nil, err", "l.k.scheduler.Remove(&l.item); @"), simulate),
	row("a batch forgets an extension of unknown outcome", "compat.Locker.renewBatch",
		swap("again, err := k.answer(l, leases[i], next[i], errs[i], extension{ttl: ttls[i]})",
			"if protocol.OutcomeOf(errs[i]) == protocol.Unknown { errs[i] = protocol.NotSent.Mark(ErrTimeout) }; @"), batching),
	row("an extension that was resolved by reading has no fence", "lease.State.On",
		drop("d.Fence = s.held.Fence"), simulate),
	row("a value that was shown is handed off as it is", "compat.held.Lease",
		drop("l.state.On(lease.Event{Kind: lease.Disclose})"), simulate),

	row("a lock's context goes on until its release is answered", "compat.held.on",
		never("e.Kind == lease.Release"), tested("compat", "ContextEndsBeforeItsRelease"), simulate),
	row("a step gives up with the check that it joined", "compat.server.check",
		swap("s.await(ctx, key, 0)", "s.await(ctx, key, limit.Of(ctx))"), promises("ManyAtOnce")),
	row("a loss that a release finds is nobody's", "compat.held.on",
		swap("e.Kind <= lease.Release", "e.Kind < lease.Release"), promises("ACallFindsTheEnd")),

	row("a Do in a Do of one key waits for itself", "compat.Locker.lock",
		never("l != nil && !k.abilities.Shared && l.h.ended() == nil"), promises("DoInDo")),
	row("a lock that was released is in the way of a Do in its context", "compat.Locker.lock",
		always("l.h.ended() == nil"), promises("DoAfterDo")),
	row("a release removes what is to be held longer", "compat.held.release", never("l.is(func(*lease.State) bool { return l.stays && start.Before(l.place.Since.Add(l.k.o.Hold)) })"), holding),
	row("what is to be held longer is taken for its ttl", "compat.Locker.attempt", swap("k.term(ttl)", "ttl"), holding),
	row("an extension shortens what is to be held longer", "compat.held.Extend", swap("l.renewal(ttl, start)", "ttl"), holding),
	row("a renewal shortens what is to be held longer", "compat.held.renewal", always("!l.stays || left <= ttl"), holding),
	row("the release of a lock that stays does not look at it", "compat.held.stay", swap("l.k.read(step, l)", `"", step.Err()`), holding),

	// The state machine.
	row("only the monotonic clock ends a lease", "lease.Past",
		never("!now.Round(0).Before(until.Round(0))"), machine, suspends),
	row("what is due is due by the monotonic clock", "schedule.sooner", swap("min(mono, wall)", "mono")),
	row("what is due first is not asked anew when the clock was set", "schedule.haveParted", swap("parted", "1 << 62")),
	row("each step cleans up for as long as all of them may", "cleaning.Jobs.After",
		swap("rest, stop := o.rest, func() {}", "rest, stop := context.Context(nil), func() {}"), bounded),
	row("a key of a set that is not answered has the others' time", "multilock.shares.of",
		swap("max(s.n, 1)", "1"), bounded),
	row("a release by a token is not tried when the context has ended", "compat.Locker.releaseToken",
		never("ctx.Err() != nil"), bounded),
	row("closing releases each lock for as long as all of them may", "compat.Locker.Close",
		swap("all, end := k.jobs.Operation(ctx)", "all, end := ctx, func() {}"), bounded),
	row("closing leaves renewals under way", "schedule.Scheduler.fire",
		drop("s.renewing.Add(1)", "defer s.renewing.Done()"), tested("compat/internal/schedule", "WaitForRenewals")),
	row("an extension under way hides that the lock is lost", "compat.held.release",
		swap("l.lost(err)", "err"), bounded),
	row("drift is not taken off", "lease.Until", swap("ttl - Drift(ttl)", "ttl"), machine, handing, stopping, settling),
	row("every extension is taken for the final one", "lease.State.On", always("case Done: e.Final")),
	row("what arrives late counts from when it was sent", "lease.State.On",
		swap("s.unresolved[i].Until = Until(asked, d.TTL)", "_, _, _ = i, d, asked")),
	row("a reply lowers the fence", "lease.State.On",
		drop("case Done: e.Claim.Fence = max(e.Claim.Fence, s.held.Fence)")),
	row("an unknown outcome is forgotten", "lease.State.On", drop("s.addUnresolved(e.Claim)")),
	row("the shorter end is believed only when its reply has come", "lease.State.On",
		drop("s.sent = term{Until: Until(e.At, e.Claim.TTL), TTL: e.Claim.TTL}")),
	row("a lock that is lost while it is shortened was believed for longer", "lease.State.On",
		swap("case NotOurs:", "@; s.sent = term{}")),
	row("a hand-off that comes too late was believed for longer", "lease.State.On",
		swap("case Handoff:", "@; s.sent = term{}")),
	row("a key that holds what an unknown extension asked for is lost", "lease.State.On", never("s.otherValue()")),
	row("a look at the key settles what may still arrive", "lease.State.On",
		swap("#1/2 case Found: return OK", "s.unresolved = nil; @")),
	row("our own release of unknown outcome is a loss when it is asked for again", "lease.State.On",
		never("case ReleaseNotOurs: s.released")),
	row("a release does not end the renewals", "lease.State.On",
		drop("s.leaving = true"), machine, handing, stopping, settling),
	row("a lease that has run out is handed off", "lease.State.On", never("Past(e.At, e.Claim.Until)")),
	row("a hand-off keeps a value that somebody knows", "lease.State.On",
		never("!s.undisclosed && (e.Claim.Value == s.held.Value || e.Kept)")),
	row("a hand-off keeps the fence", "lease.State.On", drop("s.held.Fence > 0 && e.Claim.Fence <= s.held.Fence")),
	row("a hand-off with an open outcome", "lease.State.On", never("len(s.unresolved) > 0 && !e.Final")),
	row("a release passes on a lock with an open outcome", "lease.State.On", never("case Pass: len(s.unresolved) > 0")),
	row("a release passes on a lease that has run out", "lease.State.On", never("Past(e.At, s.Until())")),
	row("a lock with an open outcome is detached", "lease.State.On", never("case Detach: len(s.unresolved) > 0")),
	row("an operation begins on a lease that has run out", "lease.State.ask", never("Past(now, s.Until())")),
	row("the outcomes that are kept track of have no bound", "lease.State.ask",
		never("len(s.unresolved) >= maxUnresolved"), machine, handing, stopping, settling, batches, promised),
	row("each lost reply of a lock that can't change its value is kept track of", "lease.State.addUnresolved",
		swap("d.Value == c.Value", "d.Value == c.Value && d.TTL == c.TTL")),
	row("an extension that may still shorten the lease is forgotten for a longer one", "lease.State.addUnresolved",
		swap("min(d.TTL, c.TTL)", "c.TTL")),
	row("a bridge of two names never says that nothing sent before can still come", "bridge.TwoNames.Extend",
		swap("Final: true", "Final: false"), promises("DetachAfterLost")),
	row("what was not sent speaks for the whole step", "protocol.Bind",
		drop("w.Session.NotSent = notSent"), tested("compat/adapter", "")),
	row("what was not sent speaks for the steps before it", "session.Session.Failed", drop("s.Open = s.Open || s.Ran"),
		tested("compat/adapter", "")),
	row("the value stays while another request may arrive", "lease.State.Rotate", never("len(s.unresolved) > 0")),
	row("the predecessor remembers the value", "lease.State.giveAway", drop(`s.held.Value, s.unresolved = "", nil`)),
	row("a fresh lock is handed off with a value that was shown", "lease.State.FreshFor",
		always("s.undisclosed"), handing, stopping, settling, batches, promised),
	row("the context ends with the lease, not before", "lease.Claim.end",
		swap("c.Until.Add(-min(max(time.Millisecond, c.TTL/50), 250*time.Millisecond))", "c.Until"),
		machine, handing, stopping, settling, batches, promised),

	// Waiting in this process.
	row("a lock that is passed to one who waits no more is nobody's", "queue.Queues.Await", never("g.Passed != nil")),
	row("a process never has had its turns", "queue.Queues.Successor",
		never("c.spent(q.waiting(), qs.Pause, ttl, now)")),
	row("a queue has two heads", "queue.Queues.Successor", never("#1/2 q.headed")),
	row("one that comes is a head beside the head", "queue.Queues.Join", always("!q.headed")),
	row("one that comes asks for what a lock of ours has", "queue.Queues.Join", always("q.here == nil")),
	row("a key that changes is repaired", "queue.Queues.Unchanged", never("value != c.seen")),
	row("a key that was ours in between counts as unchanged", "queue.Queues.Took",
		swap("c.woken, c.overtaken, c.watched, c.called = false, false, false, false", "c.woken, c.overtaken, c.called = false, false, false")),
	row("the head sleeps on when the lock is released past the queue", "queue.Queues.left", drop("q.wakeHead(true)")),
	row("Close leaves those that wait waiting", "queue.Queues.Close", drop("q.fail(ErrClosed, math.MaxInt64)")),
	row("an entry that goes stays in the queue", "queue.Queues.quit", drop("e.unlink()")),
	row("a head that goes calls nobody", "queue.Queues.Leave", drop("qs.call(q, Grant[P]{})")),
	row("a queue in which nobody is left is kept", "queue.Queues.call", drop("delete(qs.of, q.key)")),
	row("what could not be handed off is handed off again", "queue.Queues.CannotHandOff",
		drop("qs.contended(q).cannotHandOff = true")),

	// A lock on its way to another holder.
	row("a lock that runs out on its way is inherited", "compat.Locker.inherit",
		never("!now.Before(h.state.End())"), handing, batches, promised),
	row("an heir gets a value that somebody knows", "compat.Locker.inherit",
		swap("k.extend(ctx, h, extension{ttl: ttl, rotate: known, redraw: true})", "k.extend(ctx, h, extension{ttl: ttl, redraw: true})"),
		handing, batches, promised),
	row("an heir has the fence of its predecessor", "compat.Locker.inherit",
		swap("k.extend(ctx, h, extension{ttl: ttl, rotate: known, redraw: true})", "k.extend(ctx, h, extension{ttl: ttl, rotate: known})"),
		handing, batches, promised),
	row("an inheritance of unknown outcome is left on the server", "compat.Locker.inherit",
		swap("k.undo(ctx, h, err)", "err"), handing, batches, promised, simulate),

	// One step carried to an outcome.
	row("an attempt that is found on the key is not extended", "compat.resolver.settle",
		swap("_, err := s.extend(ctx, h, extension{ttl: ttl, redraw: true})", "err := error(nil)")),
	row("after a lost reply those who share are in the way", "compat.resolver.settle", swap("!st.Open", "true"),
		promises("ABrokenConnection")),
	row("a value that two clients can write proves whose it is", "compat.resolver.settle",
		never("l.Ambiguous"), settling, batches, promised, getset),
	row("an undo that failed is silent", "compat.resolver.undo",
		always("err == nil || protocol.OutcomeOf(err) == protocol.Refused && errors.Is(err, ErrLost)"), settling, undoing),
	row("Extend returns nil after the lock was lost", "compat.resolver.answer",
		swap("#1/2 h.over()", "nil")),
	row("a release that came late was in time", "compat.resolver.release", always("!lease.Past(s.now(), l.Until)")),
	row("a server that never had the key says it was released", "compat.resolver.gone",
		never("!r.sent || since(s.backend, r.Key) > r.epoch")),
	row("a server that was replaced anywhere in a cluster makes a loss of a release", "compat.resolver.gone",
		swap("since(s.backend, r.Key) > r.epoch", "epochOf(s.backend) != r.epoch"), clustered),
	row("what was written while the server was replaced is its predecessor's", "compat.server.placed",
		swap("epoch <= l.epoch", "epoch >= l.epoch"), clustered, following),
	row("a server is found unsafe by what it answers once", "ability.Asker.Ask",
		never("answer.Verdict == No"), tested("compat/cluster", "ReplacedWhile")),
	row("a server that was replaced had no slots", "cluster.Source.install",
		swap("!s.slots.same(was, m, m.owner(slot))", `was == ""`), clustered),
	row("a server of another address is another", "cluster.slotMap.same",
		never(`m.ids[addr] != "" && m.ids[addr] == next.ids[as]`), clustered),
	row("a slot that was passed on had no server before", "cluster.Source.install",
		swap("cmp.Or(s.passed[slot], s.slots.owner(slot))", "s.slots.owner(slot)"), clustered),
	row("a release that did not get through is not repeated", "compat.resolver.releaseOne",
		always("!st.Holds(r.Value)")),
	row("a release whose first try arrived late is a loss", "compat.resolver.releaseOne",
		never("o == protocol.Refused && open && notOurs(err)"), promises("LateRequest"), simulate),
	row("a release hides the loss", "compat.withLoss", always("s.Cause() != lease.Lost")),
	row("a release of ours that got through is a loss", "compat.resolver.releaseError",
		never("errors.Is(h.over(), ErrReleased)")),
	row("an extension that drew is resolved by its value", "compat.resolver.extend",
		always("!next.drew"), settling, batches, promised, simulate),
	row("a composite's part is not asked for again", "compat.part.Acquire",
		always("try == 2 || ctx.Err() != nil"), promises("AQuorumFarAway")),

	// The condition, by WATCH.
	row("WATCH without the comparison", "protocol.holding", always("(wire.WatchReplies{Get: replies[i]}).Holds(s.Value)"), watching),
	row("a connection goes back under WATCH", "protocol.Conn.underWatch", drop("c.Unwatch()"), watching, cleaning),
	row("a key that has an end by now is given another", "protocol.watch.carryOut", never("first.Persistent"), watching, tx),
	row("a pinned release counts a key that has expired", "protocol.Conn.pinnedRelease",
		swap(`w.Add("GET", c.keyArg(s.Key, nil))`, `w.Add("PING")`), pinning),
	row("a batch without the comparison", "protocol.holding", always("(wire.WatchReplies{Get: replies[i]}).Holds(s.Value)"),
		batches, promised),
	row("half of a batch that was aborted is forgotten", "protocol.watch.carryOut",
		drop("by.carryOut(c, ours[half:])"), watching, overtake),
	row("a change that is to be tried once is tried again", "protocol.watch.carryOut", never("first.Once"), watching, tx),

	// … by lists.
	row("by lists: an empty key counts as ours", "protocol.Conn.emptied",
		swap("err == nil && !held", "err == nil && !held && s == nil"), lists),
	row("by lists: a key that was deleted and not replaced is ours", "protocol.Conn.listed",
		never("err == nil && set != int64(1)"), lists, batches, promised),
	row("by lists: a value that was put on a key that was not there stays", "protocol.Conn.listed",
		swap("c.Run(Change{If: ListCAS, Key: s.Key, Value: next})", "[]any{next}, error(nil)"),
		lists, batches, promised),
	row("by IfEq: another's value is taken for ours", "protocol.Conn.compared", never("!exists || was != s.Value && was != s.next()"), ifeq),
	row("by IfEq: a request that was sent twice is a loss", "protocol.Conn.compared", swap("was != s.next()", "true"), ifeq),
	row("by IfEq: a removal that answers 0 is believed", "protocol.Conn.readRefused", swap("ErrAborted", "ErrLost"), ifeq),
	row("by IfEq: compared with an empty value", "protocol.splitComparable", never("s.Value == \"\""), ifeq),
	row("by IfEq: other commands are left out", "protocol.splitComparable", never("len(s.Do) > 0 || s.Whole"), ifeq),
	row("by IfEq: a full server's lock ends", "protocol.Conn.compare", never("s.replies == nil && answer.Of(s.err) == answer.Memory"), ifeq),
	row("by IfEq: nothing else where scripts are refused", "protocol.Conn.compareOtherwise",
		never("answer.Lacks(s.err) || answer.Of(s.err) == answer.Permission"), ifeq),
	row("by IfEq: one removal alone is tried", "protocol.removals", swap("[]wire.Removal{wire.ByDELIFEQ, wire.ByDELEX}", "[]wire.Removal{wire.ByDELIFEQ}"), ifeq),
	row("by IfEq: what takes over is not asked", "compat.call.asks", swap("s.compares.Asked(epoch)", "true"), ifeq),
	row("by IfEq: what takes over is asked, and not believed", "compat.call.asks", swap("#2/2 err == nil", "true"), ifeq),
	row("a change without a TTL is made", "protocol.Change.valid", always("ch.TTL == 0 && ch.Next == \"\""), ifeq),
	row("by lists: the first SORT is not bound to the key", "listcas.Check",
		never("value == key"), tested("compat/internal/listcas", ""), lists),

	// … by a script.
	row("a script runs on another's key", "script.compile",
		swap(
			`"local held = redis.call('GET', KEYS[1])\nif held ~= ARGV[1] then\n\treturn {false, held}\nend\n"`,
			`"local held = redis.call('GET', KEYS[1])\nif held == '' then\n\treturn {false, held}\nend\n"`),
		tested("compat/internal/script", ""), set),
	row("a string of any length is read", "guard.guard.sized", never("kind == '$' && n > stringAtMost"),
		tested("compat/guard", "")),
	row("a list of any length is read", "guard.guard.sized", never("n > roomAtMost/16"), tested("compat/guard", "")),
	row("a list of any depth is read", "guard.guard.sized", never("len(g.left) == depthAtMost"),
		tested("compat/guard", "")),
	row("a reply that can't be read ends no connection", "safe.conn.catch", never("p != nil"), hostile),
	row("a fence that a script draws passes through a double", "script.compile",
		never("counts(m[0].(string))"), promised),
	row("a counter that stands below the first fence gives one", "protocol.Conn.Fence",
		never("err == nil && n < 1"), promised),
	row("a script that compared and differed was done", "protocol.task.scripted",
		swap("s.err = lostTo(s.Key, string(held), exists)", "_, _ = held, exists; s.replies = []any{int64(1)}"), scripted, set),
	row("a script that the server has forgotten is an error", "protocol.scripted.carryOut",
		never("answer.NoScript(s.err)"), set, scripted),

	// … as the first locks kept it.
	row("unguarded: no look", "protocol.unguarded.carryOut", swap("holding(list, held)", "list[:len(held)]"), looking, getset),
	row("unguarded: a GETSET over another's value was done", "protocol.task.overwrote",
		swap("err == redis.ErrNil || err == nil && old != s.Value", `err == nil && old == ""`),
		looking, getset, overtake),
	row("unguarded: a batch does not look", "protocol.unguarded.carryOut", swap("holding(list, held)", "list[:len(held)]"), overtake),

	// getsetlock.
	row("a takeover whose reply was lost proves itself", "getsetlock.Classic.takeover",
		drop("asked.Ambiguous = true"), getset, twotake),
	row("a takeover that came second has won", "getsetlock.Classic.takeover",
		never("!g.Dialect.Dead(old, now)"), tested("compat", "TwoTakers|LoserOverwrites"), getset),
	row("Guarded takes over what lives", "getsetlock.Guarded.Acquire", never("!g.Dialect.Dead(held, now)")),
	row("Guarded takes over outside of its WATCH", "getsetlock.Guarded.Acquire", drop("Exec: true")),
	row("a WATCH proves a value that two can write", "getsetlock.Guarded.Acquire",
		always("!l.Ambiguous"), getset, tested("compat", "AmbiguousIsNotPinned")),
	row("Patient is not patient", "getsetlock.Patient.Inspect",
		swap("2*p.Lease - protocol.Until(now, p.Lease).Sub(now)", "p.Lease / 2"), getset, waiting, watching),
	row("a ttl longer than the fleet's patience", "getsetlock.Patient.Acquire",
		never("err == nil && ttl > p.Lease"), getset, waiting, watching),
	row("the margin is not kept", "getsetlock.Dialect.past", drop("until = until.Add(d.Margin)")),
	row("a stamp is cut, and shorter than the belief", "getsetlock.Dialect.Format", drop("ms++")),
	row("two keys: another's pair is changed", "getsetlock.TwoKeys.change",
		swap("!held.is(l.Value)", "held.free()"), tested("getsetlock", "TwoKeys")),
	row("two keys: the takeover runs without WATCH", "getsetlock.TwoKeys.Acquire",
		swap("readPair(c, key, true)", "readPair(c, key, false)")),
	row("two keys: the margin is not kept", "getsetlock.TwoKeys.deadline", drop("Margin: t.Margin")),
	row("by lists: a takeover that came second is a loss", "getsetlock.ListCAS.takeover",
		never("errors.Is(err, protocol.ErrLost)")),

	// txlock.
	row("SETEX outside of its WATCH", "txlock.Guarded.Acquire", drop("Exec: true")),
	row("a refusal leaves the connection under WATCH", "txlock.Guarded.Acquire",
		drop("c.Unwatch()"), tx, watching, batches, promised),
	row("a key of our own that was never made is renamed", "txlock.Renamed.Acquire", never("#2/2 ok"), tx, refusing),
	row("a refused RENAMENX is ours", "txlock.Renamed.Acquire", never("w.Done[0] == int64(0)")),
	row("the EXPIRE runs on another's key, and it is ours", "txlock.Classic.Acquire",
		never("w.Reading.Gone(l.Value)"), tx, watching),
	row("a timestamp is given an end", "txlock.Classic.Repair", never("dialect.IsTime(s.Value)")),
	row("the token stays when it is to be a new one", "txlock.Options.Extend",
		drop("l.Value = o.value(l.Key, now)"), tx, watching, batches, promised),
	row("an EXEC that did nothing is ours", "txlock.Guarded.Acquire", never("w.Done == nil")),
	row("wake-ups that nobody has used pile up", "txlock.Fleet.Release", drop(`{"DEL", list}`), fleets),
	row("a repair is tried again on another's key", "txlock.Classic.Repair", drop("Once: true"), watching),

	// setlock.
	row("a refused SET is ours", "setlock.got", swap("return l, &protocol.HeldError{Key: l.Key}", "return l, nil")),
	row("a script that refused has taken it", "setlock.Script.take",
		swap("return l, &protocol.HeldError{Key: l.Key}", "err = nil")),
	row("an extension that draws keeps the fence it had", "setlock.Options.extend",
		drop("TakeFence: o.draws(l)"), set, settling, batches, promised),

	// semaphore.
	row("a slot that was taken by another limit counts", "semaphore.Lock.take", always("err == nil && limit == k.N"), slots),
	row("a lost reply is settled by the slot alone", "semaphore.Lock.Extend", never(`l.How == ""`), slots),
	row("the limit changes while a slot is held", "semaphore.Lock.change", never("slot != nil"), slots),
	row("the limit ends before its holders", "semaphore.Lock.Extend", drop("ch.Do = append(ch.Do, keeps(l.Key))"), slots),
	row("a slot that another took first ends the attempt", "semaphore.Lock.takeOne", always("protocol.OutcomeOf(err) != protocol.Refused || !taken(err)"), slots),
	row("one more is let in than may", "semaphore.Lock.look", swap("reads(key, k.N)", "reads(key, k.N+1)"), three),

	// rwlock.
	row("a writer does not watch the readers", "rwlock.Write.Acquire",
		swap("w.look(c, now, key, waitingOf(key), false, key, readersOf(key))",
			"w.look(c, now, key, waitingOf(key), false, key)")),
	row("a writer leaves the readers that it found dead", "rwlock.Write.Acquire", drop(`{"DEL", readersOf(key)}`)),
	row("a reader comes in beside a writer", "rwlock.Read.refusal", never("#2/2 v.held")),
	row("a reader is extended beside a writer", "rwlock.Read.extend", never("replies[0] != nil")),
	row("a reader that a writer swept is extended", "rwlock.Read.extend", never("replies[1] == nil", "#3/3 gone")),
	row("another's writer is downgraded", "rwlock.Read.downgrade", swap("held != l.Value", `held == ""`)),
	row("a ticket from the far future keeps others out", "rwlock.view.counts", always("!until.After(v.now.Add(2*life))")),
	row("who is far ahead hides the others", "rwlock.Options.look", always("len(wrong) == 0")),
	row("a slow clock takes live readers out", "rwlock.Options.slow", never("left <= 0")),
	row("a score that is no time is one", "rwlock.score", never("ms != math.Trunc(ms) || ms < 0 || ms > 1<<53")),
	row("a reader's margin is not kept", "rwlock.view.live", swap("e.until.Add(v.margin)", "e.until")),
	row("a writer that goes passes no turn", "rwlock.Write.Release",
		swap(`append([]protocol.Cmd{{"DEL", l.Key}}, w.passesTurn(l.Key)...)`, `[]protocol.Cmd{{"DEL", l.Key}}`)),
	row("a reader of ours that is dead keeps us out", "rwlock.Write.refusal", always("v.live(e)")),
	row("a writer that an EXEC refused does not wait", "rwlock.Write.Acquire",
		swap("w.refused(c, v, key, &protocol.HeldError{Key: key})", "&protocol.HeldError{Key: key}")),
	row("a reader's key was touched, and it is lost", "protocol.Conn.underWatch", always("done != nil || err != nil"), rw),
	row("an end by the server's clock is one by ours", "rwlock.view.ours", swap("t.Add(-v.ahead)", "t")),
	row("a writer that was to be downgraded is not released", "rwlock.Read.Release", never("writes(l)")),
	row("an inner lock of unknown outcome stays", "rwlock.Options.lockInner", drop("done()")),

	// redlock.
	row("half of the servers are a majority", "redlock.New", swap("len(servers)/2 + 1", "(len(servers) + 1) / 2")),
	row("servers that answered after the lease's end have given it", "redlock.Quorum.acquire",
		never("err == nil && !now().Before(l.Until)")),
	row("what is left on a majority keeps nobody out", "redlock.Quorum.undo",
		swap("len(votes)-left >= q.need", "left <= q.need")),
	row("a part in doubt is as it was before", "redlock.Quorum.extended", always("!parts[i].doubt")),
	row("a release does not wait to learn that the lock was lost", "redlock.Quorum.Release", always("#2/2 kept")),
	row("an extension is sent that one server can't keep", "redlock.Quorum.valid", never("err != nil")),
	row("a late vote joins an attempt that failed", "redlock.Quorum.join", always("#1/2 m.joins")),
	row("it is held before so many have said so", "redlock.Quorum.voted",
		always("(granted+refused >= q.need || broken > spare)")),
	row("servers that were not asked are out of reach", "redlock.Quorum.elected",
		drop("n.refused > 0 && n.granted+n.refused+n.spared >= q.need")),
	row("a time that another wrote makes one server of two", "redlock.Quorum.sameServers",
		always("!votes[j].value.Ambiguous"), tested("compat/redlock", "SameStampIsNoTwin")),
	row("nothing was sent, since one server was sent nothing", "redlock.failed", swap("unmarked(a.err)", "a.err")),
	row("a server that can't vote can be spared while it is silent", "redlock.Quorum.count", drop("why = *unfit")),
	row("a lease that is found is certain", "redlock.Quorum.Find", drop("doubt: true")),

	// multilock.
	row("a dead key hides one that lives", "multilock.dead",
		swap("worst.Status == protocol.StatusDead", "states[0].Status == protocol.StatusDead")),
	row("a key of a set expires in the EXEC that extends it", "multilock.Tx.Extend", never("r == int64(0)")),
	row("a takeover of a set that came second keeps what it has", "multilock.GetSetClassic.takeover",
		swap("_, err = remove(c, won)", "_ = won")),
	row("a key that may be ours is not told of", "multilock.inTurn.giveUp", drop("left = true")),
	row("a key that is lost hides one that may be held", "multilock.inTurn.Release",
		swap("open != nil", "open != nil && lost == nil")),
	row("a key of a set is repaired that nobody has watched", "multilock.inTurn.Repair",
		always("one.Value == st.Value")),

	// Failover, slots that move.
	row("half of the Sentinels name the master", "sentinel.Source.enough",
		swap("s.known()/2 + 1", "(s.known() + 1) / 2")),
	row("a Sentinel that one other tells of votes", "sentinel.Source.learn",
		swap("2*tell[addr] > len(s.given)", "true")),
	row("a Sentinel that lies takes the place of another", "sentinel.Source.ask",
		swap(`cmp.Or(a.id, a.from.addr) + " " + a.master`, "cmp.Or(a.id, a.from.addr)")),
	row("no replica is enough", "sentinel.Replicated.wait", swap("max(r.Replicas, 1)", "r.Replicas")),
	row("what an algorithm does behind its change is not done on replicas", "sentinel.Replicated.Extend",
		never("after != nil")),
	row("a fence begins anew where the slot is moved to", "cluster.conn.refusal",
		never("u.multi && l.asking && !ofOneKey(u, c.watched())")),
	row("a server that has got the slot is asked as if it had not", "cluster.conn.follow",
		swap("next.asking = to.ask", "next.asking = next.asking || to.ask")),
	row("what nobody tells of was not replaced", "cluster.Source.moved", drop("s.epoch++", "s.replaced(slot)")),
	row("a slot that was passed on is its first server's for ever", "cluster.Source.install", drop("clear(s.passed)")),

	// Bridges.
	row("half of an old pair is dead", "bridge.half.judge", always("there == len(found)")),
	row("two names: one that expired in the EXEC leaves the other", "bridge.TwoNames.Extend",
		drop("c.Run(b.Release(next))")),
	row("one key: a time that two can write is changed again", "bridge.OneKey.change", drop("Once: l.Ambiguous")),

	// Pins, signals, renewals, and single steps.
	row("a pinned lock that was touched is lost", "protocol.Conn.pinnedRelease",
		swap("#2/2 return false", "s.err = ErrLost"), pinning),
	row("a pin outlives the server that it watches", "stock.Stock.expire",
		swap("s.kept[0].epoch != epoch", "s.kept[0].epoch > epoch"), pinning),
	row("a pinned connection is another step's", "stock.Stock.Kept", always("c.pin == 0"), pinning),
	row("a lease is released over another's pin", "stock.Stock.Unpin", swap("c.pin == p", "true"), tested("compat/internal/stock", "")),
	row("what is kept never goes back", "stock.Stock.arm", always("len(s.kept) == 0 || s.Still"), keeping),
	row("a Locker keeps more than it may", "stock.Stock.makeRoom", swap("len(s.kept) < s.Most", "true"), keeping),
	row("a crowd is released one by one", "compat.server.joins", swap("s.shared != nil", "false"), tested("compat", "ACrowd")),
	row("none of a crowd is told of a loss", "compat.server.carryOut", drop("batch[i].err = errs[i]"), tested("compat", "ACrowd")),
	row("a full pool gets nothing back", "stock.Stock.fetch", never("s.Full != nil && len(s.kept) > 0 && s.Full()"), keeping, pinning),
	row("what was handed off is not renewed", "compat.held.Handoff", never("#2/2 renews"), renewing),
	row("a lock of a batch that is to be read first stays busy", "compat.Locker.renewBatch",
		drop("#1/2 open = append(open, l)"), batches),
	row("a renewal ends with the context of who took the lock", "compat.held.renew",
		swap("context.WithoutCancel(l.parent)", "l.parent"), renewing),
	row("an attempt goes to a server that was not checked", "compat.server.still",
		never("s.traits.Check != nil && epoch != safe"), renewing),
	row("what was to be replicated is proved by its value", "compat.server.change", never("ch.After != nil"), followed),
	row("of a batch the first alone was not replicated", "protocol.task.end",
		swap("s.err = once.err", "s.err, once.err = once.err, nil"), followed),
	row("a part forgets what else its key may hold", "compat.newUnattached",
		swap("slices.Backward(l.OtherValues)", "slices.Backward(l.OtherValues[:0])"), sets, votes),
	row("an adopted value is a secret", "compat.Locker.hold", never("le.How == protocol.Adopted"),
		promises("AdoptedIsNoSecret")),
	row("a lock that came after its end is held", "compat.Locker.acquired",
		always("!lease.Past(now, l.Until)"), promises("WhileTheClockIsSet")),
	row("a lock that came when nobody waited is held", "compat.Locker.acquired", always("ctx.Err() == nil"), settling),
	row("an election ends the wait", "compat.wait.waitedOut", never("w.elects(err)"), electing),
	row("a patient client's key goes after the waiter's ttl", "compat.wait.repair",
		swap("max(w.ttl, st.Watch)", "w.ttl"), votes),
	row("unguarded: a late release deletes", "compat.server.Release",
		never("ch.Custom == nil && ch.If == protocol.Unguarded"), looking),
	row("unguarded: a refused command was done", "protocol.task.answered", swap("answer.First(replies[:n])", "error(nil)"), refusals),

	// Commands that travel together.
	row("a connection that was late is taken again", "mux.Conn.abandon", drop("c.spoil()")),
	row("one who gives up leaves its replies to the next", "mux.Conn.abandon",
		swap("m.abandoned = true", "m.abandoned = true; c.sent = slices.DeleteFunc(c.sent, func(other *Message) bool { return other == m })")),
	row("a shared connection stays in the MULTI that it refused", "mux.Conn.take", drop("stuck(m.names, replies)")),
	row("a shared connection goes on with replies out of step", "mux.Conn.take", swap("session.Strange(m.names, replies)", "session.Strange(nil, nil)")),
	row("a server stays in the MULTI that it refused", "wire.Conn.Transacted",
		drop(`c.Do("DISCARD")`), tested("compat/internal/wire", ""), cleaning),
	row("a connection's refusal at the WATCH counts as watched", "wire.WatchReplies.Watches",
		always(`s.Watch == "OK"`), execs, refusing),
	row("a key that changes hands is not seen to", "compat.wait.saw",
		swap(`w.holder != "" && w.holder != held.Value`, `w.holder != "" && w.holder != held.Value && held.Foreign`),
		between),
	row("nor by an attempt that is refused", "compat.wait.after", swap("w.saw(held)", "w.held = held"), tested("compat", "InVain")),
	row("a deadline that a connection notices is the context's end", "compat.wait.gaveUp",
		never("ctx.Err() == nil"), promises("LockEndsAfterItsContext")),
	row("a wait fails those behind it whatever their ttl", "compat.wait.concerns",
		swap("return silent", "return math.MaxInt64"), tested("compat", "WaitEnds")),
	row("a server was silent for as long as the key was held", "compat.wait.untilFree",
		drop("w.asks()"), tested("compat", "WaitEnds")),
	row("an election as long as the limit fails those behind", "compat.wait.concerns",
		always("!w.waitedOut(err)"), tested("compat", "WaitEnds")),
	row("who waits to be woken does not see that nobody is", "queue.Queues.TakenElsewhere",
		swap(`next != "" && next == c.nextTicket`, `next != "" && next != next`)),
	row("a process that is woken goes on looking", "queue.Queues.listened",
		swap("c.woken, c.silent = true, false", "c.woken = true")),
	row("a turn ends and nobody is woken", "queue.Queues.released", always("!qs.asks(q, now.Sub(h.Since))"), waiting),
	row("a lone process never asks who waits", "queue.Queues.asks", never("qs.untilAsk <= 0")),
	row("who has had its turn goes before the one that was woken", "compat.wait.yieldTo", never("g.Woken"), waiting, between),
	row("a lone goroutine goes before the one that its release has woken", "queue.Queues.wake",
		swap("c.free, c.called = qs.Now().Add(g.Yield), true", "c.called = false")),
	row("what is known of a woken client is forgotten with the queue", "queue.Queues.forget",
		swap("c.unused < 2*missed || c.called", "c.unused < 2*missed")),
	row("one that was not woken takes what another was woken for", "compat.wait.untilFree",
		swap("pause == 0", "pause >= 0"), between),
	row("one that was woken in vain waits behind all others", "signal.Waiter.register", never("w.First"),
		tested("compat/internal/signal", "")),
	row("nobody leaves the key free for those who can't be woken", "queue.turns.leaves", swap("return true", "return false"), between),
	row("many look as often as few", "queue.looks.over", never("l.n > due"), between),
	row("what listens is one connection too many", "stock.Stock.Reserve", drop("s.Most--"), tested("compat/internal/stock", "")),
	row("another client's connection that is killed waits for its replies", "adapter.conn.kill", never("c.cut != nil")),
	row("another client's connection is returned while it is in use", "adapter.conn.cancellable",
		drop("c.late = ended")),
	row("a reader that was released by its token is extended back", "rwlock.Read.extend",
		never("replies[0] == int64(1)"), promises("ReleasedByItsToken")),
	row("two causes are two lines", "oneline.joined.Error", swap(`"; "`, `"\n"`),
		tested("compat/internal/oneline", ""), promises("ErrorsAreOneLine"),
		tested("compat/multilock", "PartlyLost"), tested("compat/cluster", "EveryReasonIsNamed")),
	row("an adoption is lost when the clock is set", "compat.Locker.adopt",
		never("errors.Is(err, ErrLost)"),
		promises("AdoptionLost")),
	row("a TTL that a server cuts to seconds is all there is", "protocol.State.End",
		never(`s.Clock == "server" && s.TTL != NoTTL && !end.IsZero()`),
		promises("DetachedIsAdoptable")),
	row("the context of a shortened lease ends as far before it as of the long one", "lease.State.End",
		swap("Claim{Until: s.sent.Until, TTL: s.sent.TTL}.end()", "Claim{Until: s.sent.Until, TTL: s.held.TTL}.end()"),
		promises("ShortenedLives")),
	row("an extension of two keys is never the last word", "getsetlock.TwoKeys.Extend",
		swap("ch.Final = true", "ch.Final = false"),
		oncemore),
	row("nor is a quorum's", "redlock.Quorum.extended", never("next.Final && a.err == nil && a.value.Final"), oncemore),
	row("nor a set's", "multilock.inTurn.Extend", never("final && parts[i].Final"), oncemore),
	row("every extension is the last word", "compat.server.change",
		always("ch.Final && ch.Custom != nil || le.Value != l.Value || ch.Watches()"),
		delayed),
	row("a server that has lost its part never gets it again", "redlock.Quorum.refill", never("!p.held()"), rolling),
	row("a part that was there before is one that nobody knows", "lease.State.On", always("case Done: !e.Kept"), rolling),
	row("a quorum's value is on the key if all servers show it", "compat.resolver.read",
		never("s.backend.Abilities().server == nil"), rolling),
	row("a key that another server has hides that a set is of several slots", "session.Session.judge",
		always("!s.Crossed"), across),
	row("a server's answer that it is full proves a proxy", "compat.server.examine",
		always("!answer.CannotServe(err)"), piped),
	row("transactions are pipelined wherever they may", "compat.call.keepsWhole",
		swap("ran(replies[5])", "len(replies) > 0"), piped),
	row("a check shares a connection", "compat.server.afresh", swap("true", "false"), piped),
	row("a bridge wakes nobody who waits for a message", "bridge.half.frees", always(`h.Signal == ""`)),
	row("two readers are on two servers", "redlock.Quorum.sameServers", always("!q.abilities.Shared"), oneVote),
	row("a part that is fresh counts", "redlock.Quorum.refill", drop("parts[i].fresh = true"),
		promises("ReleasedByItsToken")),
	row("what is late on one server is so for the quorum", "redlock.Quorum.extended", always("t.sure < q.need"), downgrading),
	row("what is late on one server counts as held", "redlock.Quorum.extended",
		never("a.err == nil && !fresh && was && parts[i].late"), delayed),
	row("what is refused together is refused to each", "compat.Locker.renewBatch",
		never("protocol.OutcomeOf(errs[i]) == protocol.Refused && !notOurs(errs[i]) && !answer.Passes(errs[i])"),
		promises("ManyLocksBehind")),
	row("a reply of a master that was replaced counts", "cluster.Source.counts",
		always("time.Since(s.named[addr]) < trust"), still),
	row("a master's own map says that it is one", "cluster.Source.names", always("addr != from"), still),
	row("a master's own map counts if it was asked by another name", "cluster.Source.slotMap", always("m.has(addr)"), still),
	row("a master is asked by another name whether it is one", "cluster.Source.vouched", swap("m.has(other)", "true"), still),
	row("a master is asked itself whether it is one", "cluster.Source.vouched", never("other == addr"), still),
	row("a set or a quorum forgets what may still reach a part that was extended", "compat.resolver.answer",
		never("#3/3 next.Rotate"), delayed),
	row("a quorum forgets what may still reach its parts", "redlock.Quorum.extended",
		swap("t.late && t.sure < q.need", "false"), rolling),
	row("all check a server at once", "compat.server.exam", swap("e.under == 2", "e.under == 100"),
		tested("compat", "FewCheckAtOnce")),

	// Limits.
	row("each that waits for a Dial waits without a limit", "mux.Pool.Get",
		swap("return within(ctx, patience, p.wait)", "made, err := p.wait(ctx); return made, patience, err"),
		sharing, promises("ManyAtOnce")),
	row("a Dial that fails is told to nobody else", "mux.Pool.dial", drop("d.err = err"), dialing),
	row("a Dial that was given up is told to all", "mux.Pool.dial", always("ctx.Err() == nil"), dialing, sharing),
	row("a Dial goes on after Close", "mux.Pool.Close", drop("d.stop()")),
	row("what a shared connection took to be made is left for the replies", "mux.within",
		swap("max(limit.Left(until), 1)", "max(limit.Left(until), patience)")),
	row("the limit of a Dial is said as the caller's deadline", "mux.within",
		swap("limit.Within(ctx, limit.Real, patience)", "context.WithTimeout(ctx, patience)"), gaveUp, sharing),
	row("a reply that is late on a shared connection is no ErrTimeout", "mux.Message.ring",
		swap("limit.ErrTimeout", `redis.Error("no reply in time")`),
		sharing, gaveUp),
	row("what has ended is released", "lease.State.On", never("!e.At.IsZero() && s.allPast(e.At)"), promises("WhatHasEnded")),
	row("Do does not say that Close has released its lock", "compat.Locker.Do", never("errors.Is(released, ErrReleased) && l.isClosed() && !errors.Is(err, ErrClosed)"),
		promises("DoSaysThatItWasClosed")),
	row("Close does not wait for calls", "cleaning.Jobs.Enter", drop("c.running++"), promises("NothingHappens")),
	row("two Lockers share what one Backend keeps", "compat.owned", never("any(b) == any(s)"), promises("OneBackend")),
	row("a step that panics keeps its connection", "compat.tries.abandon", drop("t.s.putBack(c)"), promises("PanicsLeave")),
	row("a lock is nobody's when its heir panics", "compat.wait.await", drop("w.k.undo(w.ctx, g.Passed, nil)"), promises("PanicsLeave")),
	row("a set whose time is up is left on its servers", "multilock.shares.of", swap("limit.Over(s.ctx)", "s.ctx.Err()"),
		promises("OneTimeoutFor")),
	row("the wait for a connection counts for nothing", "wire.Conn.Begin",
		swap("limit.Until(ctx)", "time.Time{}"), promises("TheWaitForAConnection")),
	row("each step has a Dial of its own", "stock.Stock.fill", swap("min(len(s.waiting), room)", "len(s.waiting)"),
		tested("compat/internal/stock", "")),
	row("idle connections are trusted after a dead one", "stock.Stock.Doubt", drop("s.doubted, s.suspects = now, s.Idle()"),
		promises("DiedWithoutAWord")),
	row("a shared connection is never given back", "mux.New", drop("shared.retireAged()"), promises("APoolReplaces"), sharing),
	row("a WATCH is shared", "mux.needs", swap("#2/2 return own", "return nothing"), promises("AStepHas")),
	row("a connection that wrote nothing is asked about writes", "mux.Step.do", never("need == same && s.on != nil"),
		promises("AStepHas")),
	row("a quorum's check starts anew each time", "compat.server.goOn", always("left <= 0"),
		promises("AQuorumFarAway")),
	row("an error looks through to the cause of the caller's context", "limit.Cause",
		swap("&CallerError{why}", "why"), brought),
	row("an error looks through to what a pool returned", "limit.Dialled",
		swap("&CallerError{err}", "err"), brought),
	row("a caller's ErrTimeout is a limit of ours", "limit.Cause",
		swap("RanOut(ctx)", "errors.Is(why, ErrTimeout)"), brought),
	row("an algorithm's word answers a write whose reply never came", "compat.call.verdict",
		never("c.wire.Session.Open && (o == protocol.Refused || o == protocol.NotSent)"), lied),
	row("the error of what ran behind a change undoes the change", "protocol.task.end",
		never("o == Refused || o == NotSent"), lied),
	row("a server that can't serve us keeps its connection", "compat.server.ended",
		never("c.wire.Session.Useless"), answered),
	row("a server that can't serve us keeps a shared connection", "mux.Pool.do",
		drop("over.Retire()"), answered, sharing, promises("Sharing|AStepHas")),
	row("a server that can't serve us is asked no other one", "compat.wrongServer",
		swap("answer.CannotServe(err)", "false"), answered),
	row("what was refused before anything ran is unknown", "compat.call.verdict",
		swap("protocol.Refused.Mark(denied)", "denied"), answered),
	row("a Lock does not wait for what waiting cures", "compat.wait.waitedOut",
		swap("answer.Passes(err)", "false"), answered),
	row("a role that nobody knows is a master's", "probe.Report.Unsafe",
		never(`r.Role != "" && r.Role != "master"`), strange),
	row("two servers behind one address are one", "probe.prober.severalServers",
		never(`id != "" && theirs != "" && theirs != id`), strange),
	row("two stores behind one address are one", "probe.prober.severalServers",
		never("text(r[0]) != mark"), strange),
	row("a node of a cluster has all keys", "probe.Report.Unsafe", never(`r.Moved != ""`), strange),
	row("a microsecond may be longer than a second", "answer.Time", swap("us < 1e6", "us >= 0"), strange),
	row("a limit below a value is not found", "limit.Until",
		swap("ctx.Value(key{})", "ctx"), tested("compat/internal/limit", "")),
	row("a dialer's read timeout hides the caller's deadline", "compat.noConnection",
		swap("limit.Because(ctx, err)", "err"), gaveUp),
	row("a quorum says that its caller cancelled, whose deadline passed", "redlock.poll.run",
		swap("limit.As(caller)", "context.Cause(caller)"), gaveUp),
	row("a quorum hides that its caller cancelled", "redlock.Error.Unwrap",
		drop("all = append(all, end)"), gaveUp),
}
