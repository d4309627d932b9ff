//go:build race

package race

// underRace makes the tests smaller: the detector costs a factor of eight, and
// the search has one goroutine.
const underRace = true
