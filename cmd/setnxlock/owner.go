package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
)

// An owner is the taker of locks here, as their tokens name it: "web1:4711/nightly". The zero owner has no
// name: its tokens are random and nothing else.
type owner struct {
	takes bool // locks: otherwise there is nothing to name
	name  string
}

// runs begins to name owners, after the command if the user gave no --owner.
func (o *owner) runs(command string) {
	o.takes = true
	if o.name == "" {
		o.name = filepath.Base(command)
	}
}

// text returns the owner's part of a token.
func (o owner) text() string {
	if !o.takes {
		return ""
	}
	text := hostname() + ":" + strconv.Itoa(os.Getpid())
	if o.name != "" {
		text += "/" + o.name
	}
	return text
}

// hostname returns this host's name in our tokens.
func hostname() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "localhost"
	}
	return host
}

// ourOwner is an owner as our tokens have it.
var ourOwner = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.+):([0-9]+)(?:/(.+))?$`) })

// ownerInWords writes an owner for people: "nightly@web1 (4711)".
func ownerInWords(owner string) string {
	m := ourOwner().FindStringSubmatch(owner)
	switch {
	case m == nil:
		return printable(owner)
	case m[3] == "":
		return m[1] + " (" + m[2] + ")"
	}
	return m[3] + "@" + m[1] + " (" + m[2] + ")"
}
