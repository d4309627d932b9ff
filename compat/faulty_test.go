package compat_test

import "github.com/setnxlock/setnxlock/compat/conformance"

// A network loses messages between a Locker and its server.
type network = conformance.Network

type fault = conformance.Fault

const (
	none        = conformance.None
	lostRequest = conformance.LostRequest
	lostReply   = conformance.LostReply
)
