// Package slot is the hash slots of a Redis Cluster: which keys are on one server.
package slot

import "strings"

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
