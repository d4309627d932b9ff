package race

import (
	"strconv"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// fenceKey is where key's fence is counted.
func fenceKey(key string) string { return protocol.Aux(key, "fence") }

// serverCount is of how many servers a quorum is made.
const serverCount = 3

// downKey follows a server's name on the key that stands for its being gone.
const downKey = ":down"

func nth(n int) string { return "S" + strconv.Itoa(n) }

// serverOf is the server that a key is on; 0 if there is only one.
func serverOf(key string) int {
	if len(key) > 2 && key[0] == 'S' && key[2] == ':' && key[1] >= '1' && key[1] <= '0'+serverCount {
		return int(key[1] - '0')
	}
	return 0
}

// addressed is the server that commands are for.
func addressed(cmds [][]string) int {
	for _, cmd := range cmds {
		for _, a := range cmd[1:] {
			if n := serverOf(a); n > 0 {
				return n
			}
		}
	}
	return 0
}

// keyOn is the key as it is called on a server; 0: the only one.
func keyOn(key string, n int) string {
	if n == 0 {
		return key
	}
	return nth(n) + ":" + key
}
