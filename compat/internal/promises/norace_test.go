//go:build !race

package promises_test

// underRace says that each run takes ten times as long: then a part of them is made.
const underRace = false
