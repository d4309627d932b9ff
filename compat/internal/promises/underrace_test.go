//go:build race

package promises_test

const underRace = true
