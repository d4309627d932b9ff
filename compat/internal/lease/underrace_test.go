//go:build race

package lease

// underRace: nothing runs beside it, and the race detector takes ten times as long.
const underRace = true
