//go:build race

package simulate

const underRace = true
