// Package handle writes a key and a token as one word: letters, digits, '.', '-' and '_', an
// argument or a variable in any shell. It guarantees that what was cut or mistyped is no word of
// its, and that each pair has one word.
package handle

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// The first letters of every word, with the number of its form.
const prefix = "snx1."

// Encode returns the word.
func Encode(key, token string) string {
	b := binary.AppendUvarint(nil, uint64(len(key)))
	b = append(append(b, key...), token...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

// Decode reads it.
func Decode(word string) (key, token string, ok bool) {
	text, ok := strings.CutPrefix(word, prefix)
	if !ok {
		return "", "", false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 4 {
		return "", "", false
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	n, size := binary.Uvarint(b)
	if crc32.ChecksumIEEE(b) != sum || size <= 0 || n == 0 || n >= uint64(len(b)-size) {
		return "", "", false
	}
	return string(b[size:][:n]), string(b[size:][n:]), true
}
