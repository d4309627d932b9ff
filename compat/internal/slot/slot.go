// Package slot is the hash slots of a Redis Cluster: which keys are on one server.
package slot

import (
	"fmt"
	"strconv"
	"strings"
)

// Of is the hash slot of key in a cluster: CRC16 (XMODEM) of the hash tag, if there is one
// that is not empty, else of the whole key, modulo 16384.
func Of(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	return In(CRC(0, key))
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

// CRC goes on with crc over s.
func CRC(crc uint16, s string) uint16 {
	for i := 0; i < len(s); i++ {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

// In is the slot of a key whose checksum is crc.
func In(crc uint16) int { return int(crc % 16384) }

// Beside is a key that begins with key and hashes to its slot: key:name:{key}, or key:name if
// key has a hash tag.
func Beside(key, name string) string {
	if !strings.ContainsAny(key, "{}") {
		return key + ":" + name + ":{" + key + "}" // most keys: there is nothing to compute
	}
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	switch {
	case open && closed && tag != "":
		return key + ":" + name // key has a tag
	case open && closed: // "{}": nothing is a tag, all of it is hashed
		return key + ":" + name + ":" + suffixFor(key, key+":"+name+":")
	case open: // "a{b": the first brace that closes ends the tag
		return key + ":" + name + ":" + suffixFor(key, after+":"+name+":") + "}"
	}
	// "a}b": the first tag is ours
	return key + ":" + name + ":{" + suffixFor(key, "") + "}"
}

// OwnerOf returns the key beside which a lock keeps key: the fence, the lists of a wake-up, what
// rwlock knows of readers and waiters, or a semaphore's limit and slots. It returns "" for any other key, temporary keys
// included, whose names nobody can foresee; and for a slot of a key that has a hash tag: {cart}:7 may be any program's.
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
			if owner := key[:at]; Beside(owner, name) == key {
				return owner
			}
		default:
			if owner := key[:at]; numbers(name) && len(key) > len(owner)+1+len(name) && Beside(owner, name) == key {
				return owner
			}
		}
	}
}

// numbers reports whether name can be that of a semaphore's slot: 1 to 1000.
func numbers(name string) bool {
	if name == "" || len(name) > 4 || name[0] == '0' || strings.Trim(name, "0123456789") != "" {
		return false
	}
	return len(name) < 4 || name == "1000"
}

// Taken returns an error for the name of a key that stands beside a lock: no other lock may have it.
func Taken(key string) error {
	if owner := OwnerOf(key); owner != "" {
		return fmt.Errorf("%q is the name of a key beside the lock %q", key, owner)
	}
	return nil
}

// suffixFor is a number that, behind head, hashes to key's slot. One in 16384 does; head is
// hashed once.
func suffixFor(key, head string) string {
	want, crc := Of(key), CRC(0, head)
	for n := 0; ; n++ {
		if s := strconv.Itoa(n); In(CRC(crc, s)) == want {
			return s
		}
	}
}

// Batches puts n things together by the slots of their keys, most in one batch at the most; one that
// is alone is a batch by itself.
func Batches(n, most int, of func(i int) (key string, alone bool)) (batches [][]int) {
	open := map[int]int{} // by slot, the batch that has room
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
