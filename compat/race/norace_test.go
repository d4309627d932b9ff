//go:build !race

package race

const underRace = false
