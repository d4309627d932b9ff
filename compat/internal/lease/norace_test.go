//go:build !race

package lease

const underRace = false
