//go:build linux

package main

import "strings"

// A form is a way to take a lock of the table.
type form int

const (
	one       form = iota // one key
	several               // one key or two, in one transaction
	inTurn                // one key or two, one after the other, also on different servers of a cluster
	readWrite             // many readers, or one writer, who may become a reader
	slotted               // a semaphore: two clients, each in a slot
)

// formOf splits the name of a run's lock into its form and the name of its lock in the table.
func formOf(lock string) (f form, name string) {
	for f, before := range map[form]string{several: "several ", inTurn: "in turn ", slotted: "semaphore "} {
		if name, ok := strings.CutPrefix(lock, before); ok {
			return f, name
		}
	}
	if lock == "rw" {
		return readWrite, "rw:write"
	}
	return one, lock
}
