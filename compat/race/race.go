// Package race runs a lock's real code through every interleaving of its Redis
// commands, on an embedded Redis of the version asked for, under a virtual
// clock, and finds every way to break it within the bounds it is given.
//
// Explore searches, breadth first, so that what it finds is a shortest way;
// Replay runs one schedule and records it as a Trace. Guarantees
// computes what each lock of this module promises on each server. Package view
// shows a Trace, racetest explores a lock in a Go test, and the known races are in
// package catalogue. docs/explorer.md says how it works, and what "within
// bounds" means.
package race
