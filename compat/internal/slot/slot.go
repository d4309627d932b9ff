// Package slot computes the hash slots of a Redis Cluster: keys in one slot are on one server.
package slot

import (
	"fmt"
	"strconv"
	"strings"
)

// Of returns the hash slot of key in a cluster: CRC16 (XMODEM) modulo 16384 of the hash tag, or of the whole
// key if there is no tag, or an empty one.
func Of(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	return in(crc16(0, key))
}

var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()

// crc16 continues the checksum crc over s.
func crc16(crc uint16, s string) uint16 {
	for i := 0; i < len(s); i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

// in returns the slot of a key with the checksum crc.
func in(crc uint16) int { return int(crc % 16384) }

// Beside returns a key that begins with key and hashes to key's slot: key:name:{key}, or key:name if key has a
// hash tag. A brace of the name, of a user's token for example, would begin or end the tag: it becomes a parenthesis.
func Beside(key, name string) string {
	if strings.ContainsAny(name, "{}") {
		name = strings.NewReplacer("{", "(", "}", ")").Replace(name)
	}
	if !strings.ContainsAny(key, "{}") {
		return key + ":" + name + ":{" + key + "}" // most keys: there is nothing to compute
	}
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	switch {
	case open && closed && tag != "":
		return key + ":" + name // key has a tag
	case open && closed: // "{}": an empty tag, and the whole key is hashed
		return key + ":" + name + ":" + suffixFor(key, key+":"+name+":")
	case open: // "a{b": the first closing brace ends the tag
		return key + ":" + name + ":" + suffixFor(key, after+":"+name+":") + "}"
	}
	// "a}b": the first tag is ours
	return key + ":" + name + ":{" + suffixFor(key, "") + "}"
}

// OwnerOf returns the owner of key if a lock keeps key beside its own: a fence, a list of wake-ups, rwlock's
// keys for readers and waiters, or a semaphore's limit and slots. It returns "" for any other key, and for a
// temporary key: its name is random. It also returns "" for a slot of a key with a hash tag: {cart}:7 may be
// any program's.
func OwnerOf(key string) string {
	for at := 1; ; at++ {
		i := strings.IndexByte(key[min(at, len(key)):], ':')
		if i < 0 {
			return ""
		}
		at += i
		name, _, _ := strings.Cut(key[at+1:], ":")
		switch name {
		case "fence", "waiters", "wake", "readers", "waiting", "queue", "next", "mutex", "limit":
		default:
			if !numbers(name) || len(key) == at+1+len(name) {
				continue
			}
		}
		// A name ends with its key and three characters, or with a number of a few digits. Beside makes the others
		// too slowly for a key of many colons.
		if end := len(key) - at - 1 - len(name); (end < 12 || end == at+3) && Beside(key[:at], name) == key {
			return key[:at]
		}
	}
}

// numbers reports whether name can number a semaphore's slot: 1 to 1000.
func numbers(name string) bool {
	if name == "" || len(name) > 4 || name[0] == '0' || strings.Trim(name, "0123456789") != "" {
		return false
	}
	return len(name) < 4 || name == "1000"
}

// Taken returns an error if key stands beside a lock: no other lock may use it.
func Taken(key string) error {
	if owner := OwnerOf(key); owner != "" {
		return fmt.Errorf("%q is the name of a key beside the lock %q", key, owner)
	}
	return nil
}

// suffixFor returns a number for the end of head: together they hash to key's slot. One number in 16384 does;
// head is hashed only once.
func suffixFor(key, head string) string {
	want, crc := Of(key), crc16(0, head)
	for n := 0; ; n++ {
		if s := strconv.Itoa(n); in(crc16(crc, s)) == want {
			return s
		}
	}
}

// Batches groups n things by the slots of their keys, at most `most` in one batch. A thing that is alone gets
// its own batch.
func Batches(n, most int, of func(i int) (key string, alone bool)) (batches [][]int) {
	open := map[int]int{} // slot to batch with room
	for i := range n {
		key, alone := of(i)
		where := Of(key)
		at, ok := open[where]
		if !ok || alone || len(batches[at]) == most {
			at, batches = len(batches), append(batches, nil)
			if !alone {
				open[where] = at
			}
		}
		batches[at] = append(batches[at], i)
	}
	return batches
}
