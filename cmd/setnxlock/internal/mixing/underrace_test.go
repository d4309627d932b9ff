//go:build race

package mixing

// underRace makes the tests smaller, as in package race: the detector costs a factor of eight. The
// part that still runs has what it looks for: two searches at a time.
const underRace = true
