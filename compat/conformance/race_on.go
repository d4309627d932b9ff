//go:build race

package conformance

// underRace: the race detector takes ten times as long, and looks at the engine, which is the
// same on every server.
const underRace = true
