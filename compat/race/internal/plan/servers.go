package plan

import (
	"strconv"
	"strings"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// FenceKey names the counter of key's fences.
func FenceKey(key string) string { return protocol.Aux(key, "fence") }

// Remains reports whether beside stays when a lock is free: its fence, a semaphore's limit and its
// slots' fences.
func Remains(key, beside string) bool {
	return beside == FenceKey(key) || beside == protocol.Aux(key, "limit") || strings.HasPrefix(beside, key+":") && strings.HasSuffix(beside, ":fence")
}

// DownKey follows a server's name on the key that stands for its being gone.
const DownKey = ":down"

// Nth names one of several servers, from 1.
func Nth(n int) string { return "S" + strconv.Itoa(n) }

// ServerOf returns the number of a key's server; 0 if there is only one.
func ServerOf(key string) int {
	if len(key) > 2 && key[0] == 'S' && key[2] == ':' && key[1] >= '1' && key[1] <= '9' {
		return int(key[1] - '0')
	}
	return 0
}

// Addressed returns the number of the server for these commands.
func Addressed(cmds [][]string) int {
	for _, cmd := range cmds {
		for _, a := range cmd[1:] {
			if n := ServerOf(a); n > 0 {
				return n
			}
		}
	}
	return 0
}

// KeyOn returns the key's name on a server; 0: the only one.
func KeyOn(key string, n int) string {
	if n == 0 {
		return key
	}
	return Nth(n) + ":" + key
}
