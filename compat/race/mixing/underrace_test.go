//go:build race

package mixing

// underRace makes the tests smaller, as those of package race: the detector
// costs a factor of eight. All that it looks for, two searches at a time, is in
// the part that runs.
const underRace = true
