//go:build !race

package bridge_test

const underRace = false
