//go:build race

package compat_test

// underRace: the race detector takes ten times as long.
const underRace = true
