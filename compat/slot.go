package compat

import (
	"strconv"
	"strings"
)

// Aux names an auxiliary key of key: the temporary one, the fence. It hashes
// to key's slot, so that on a cluster both can stand in one transaction:
// {key}:name, or key:name if key has a hash tag of its own.
func Aux(key, name string) string {
	if key != "" && !strings.ContainsAny(key, "{}") {
		return "{" + key + "}:" + name // most keys: there is nothing to compute
	}
	aux := key + ":" + name
	if Slot(aux) == Slot(key) {
		return aux // key has a tag of its own
	}
	aux = "{" + key + "}:" + name
	if Slot(aux) == Slot(key) {
		return aux
	}
	// key has a brace in a place where it can't be wrapped ("a}b"): search
	// for a tag that falls into its slot. One in 16384 does.
	for n := 0; ; n++ {
		tag := "{" + strconv.Itoa(n) + "}:"
		if Slot(tag) == Slot(key) {
			return tag + key + ":" + name
		}
	}
}

// FenceKey names the counter that gives key's leases their numbers. It must
// never have a TTL: before 2.2 an INCR would start it again at 1.
func FenceKey(key string) string { return Aux(key, "fence") }

// Slot is the hash slot of key in a cluster: CRC16 (XMODEM) of the hash tag, if there is one that
// is not empty, else of the whole key, modulo 16384.
func Slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := 0; i < len(key); i++ {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
