package memo

import "math/bits"

// Text mixes a string in.
func Text(h uint64, s string) uint64 {
	h = Mix(h, uint64(len(s)))
	for i := 0; i < len(s); i++ {
		h = Mix(h, uint64(s[i]))
	}
	return h
}

// Truth returns 1 or 0.
func Truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Mix turns a word into one with every bit dependent on all of its. (A weaker one has cost states,
// silently: they were taken for seen.)
func Mix(h, w uint64) uint64 {
	hi, lo := bits.Mul64(h^w^0x9e3779b97f4a7c15, w^bits.RotateLeft64(h, 29)^0xd6e8feb86659fd93)
	return hi ^ lo
}
