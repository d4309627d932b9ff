//go:build race

package bridge_test

// Under the race detector an exploration takes twenty times as long.
const underRace = true
