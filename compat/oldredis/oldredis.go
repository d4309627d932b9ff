// Package oldredis is an embedded Redis that behaves like the version asked for, from 1.2 to 7.0, or
// like a server of today: for tests of programs that must work on servers that can't be installed everywhere.
//
//	s := oldredis.Run(t, "2.0")   // clock stepped by hand, closed with the test
//	c := s.Dial()                 // a redigo connection: no socket, no goroutine
//	c.Do("SETNX", "lock", "A")    // 1
//	c.Do("EXPIRE", "lock", 10)    // 1
//	c.Do("SETNX", "lock", "B")    // 1: before 2.2 a write deletes a key with a TTL
//	s.Advance(11 * time.Second)   // time passes only here
//
// # Versions
//
// A version has the commands, the arities, the error texts and the quirks of its Redis. A table
// (quirks.go) lists the differences. The answers of real servers are recorded in testdata, and the
// tests replay them. Two profiles are not versions: "twemproxy" closes the connection at MULTI,
// WATCH, RENAMENX, PING, INFO and TIME, and "noscript" is a 7.0 on which EVAL is refused.
// Options.Refuse and Options.Forbid take commands from any version. Today lists Redis 8 and Valkey, which have SET IFEQ,
// DELEX and DELIFEQ.
//
// # Time
//
// Without a Clock, only Advance and AdvanceLazy move the server's time. Advance deletes the keys
// that expired, as a real server does within 100 ms (1.2: within a second). After AdvanceLazy they
// have expired but are still in memory ("unreaped"), which old versions let a client see: EXPIRE
// brings such a key back to life up to 2.6.11, and 2.2.5 refuses SETNX on it. With a Clock, which
// may be a clock.Mock, active expiry runs every tenth of a second (1.2: every second) and deletes
// the keys that have expired.
//
// # Connections
//
// Dial, GetContext and Pool give connections inside the process that follow redigo's conventions
// exactly. A command costs a few hundred nanoseconds. Listen serves the same data on a TCP port.
// Blocking pops and PUBLISH work on both; inside the process BLPOP blocks the goroutine that
// receives its reply until another connection pushes, or until Advance or the Clock reach its
// timeout.
//
// # Faults
//
// SetFault loses a command's request or its reply. FlushAll, Restart, Evict, Cut and
// SetMaxMemoryReached do what can happen to a real server. Snapshot and Restore save and restore
// its state in about a microsecond, for programs that explore every interleaving.
//
// # Limits
//
// miniredis runs the scripts and holds all values but strings: the error texts there are the newest
// version's after the first word. Consumer groups of streams, replication and CONFIG SET are not
// emulated and answer with an error; nor are IFDEQ and IFDNE, which compare digests, nor commands
// that compare inside a script. INFO reports the version, the role, memory settings and the number
// of keys.
package oldredis
