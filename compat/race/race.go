// Package race runs a lock's real code through every interleaving of its Redis commands, on an
// embedded Redis of a given version, under a virtual clock. Within given bounds it finds every way
// to break the lock.
//
// [Explore] searches breadth-first, so what it finds is a shortest way; [Replay] runs one schedule
// and records it as a [Trace]. Guarantees computes what each lock of this module promises on each
// server. Package view shows a Trace, racetest explores a lock in a Go test, and the known races
// are in package catalogue. docs/explorer.md says how it works, and what "within bounds" means.
//
// The types are defined in packages below. Their fields:
//
//	go doc github.com/setnxlock/setnxlock/compat/race/internal/plan.Config
//	go doc github.com/setnxlock/setnxlock/compat/race/internal/plan.Faults
//	go doc github.com/setnxlock/setnxlock/compat/race/internal/trace.Trace
package race
