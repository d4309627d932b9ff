//go:build linux

package main

import "strings"

// A form is how a lock of the table is taken.
type form int

const (
	one       form = iota // of one key
	several               // of one key or two, in one transaction
	inTurn                // of one key or two, one after the other: on a cluster, too, where they are on different servers
	readWrite             // by many readers, or by one writer, who may become a reader
	slotted               // by two, each in a slot: a semaphore
)

// formOf is the form of what is locked, and the lock of the table that it is made of.
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
