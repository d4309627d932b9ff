//go:build !race

package mixing

const underRace = false
