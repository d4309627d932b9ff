//go:build !race

package compat_test

const underRace = false
