//go:build race

package cluster_test

// underRace says that processors are ten times slower: fewer locks are moved at once.
const underRace = true
