// Package oldredis is an embedded Redis that behaves like the version asked
// for, from 1.2 to 7.0: for tests of programs that must work on servers one
// can no longer install.
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
// A version has the commands, the arities, the error texts and the manners of
// its Redis. What differs is a table (manners.go); what real servers answered is
// in testdata, and the tests replay it. Two profiles are no version: "twemproxy"
// closes the connection at MULTI, WATCH, RENAMENX, PING, INFO and TIME, and
// "noscript" is a 7.0 on which EVAL is refused. Options.Refuse and
// Options.Forbid take commands from any version.
//
// # Time
//
// Without a Clock the server's time stands still but for Advance and
// AdvanceLazy. After Advance the keys that expired are reaped, as a real server
// does within 100 ms (1.2: within a second). After AdvanceLazy they are dead and
// still in memory, which old versions let a client see: EXPIRE brings such a
// key back to life up to 2.6.11, and 2.2.5 refuses SETNX on it. With a Clock,
// which may be a clock.Mock, a key is reaped when the first tenth of a second
// after its death begins.
//
// # Connections
//
// Dial, GetContext and Pool give connections inside the process that keep
// redigo's conventions to the letter; a command costs a few hundred
// nanoseconds. Listen serves the same data on a TCP port. Blocking pops and
// PUBLISH work on both; inside the process BLPOP blocks the goroutine that
// receives its reply until another connection pushes, or until Advance or the
// Clock reach its timeout.
//
// # Accidents
//
// SetFault loses a command's request or its reply. FlushAll, Restart, Evict,
// Cut and SetMaxMemoryReached are what happens to a server. Snapshot and Restore
// take it back and forth in less than a microsecond, for programs that explore
// all that can happen.
//
// # Limits
//
// Scripts, and values other than strings, are miniredis': their error texts
// are the newest beyond the first word. Streams' consumer groups, replication
// and CONFIG SET are not emulated, and say so. INFO tells the
// version, the role, memory settings and the number of keys.
package oldredis
