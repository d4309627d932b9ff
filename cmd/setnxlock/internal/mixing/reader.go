package mixing

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A reader is how a client's language reads a text as a number: it gives a number, NaN, or an
// exception.
type reader string

const (
	pyFloat    reader = "Python float()"   // in full, exponents too; ValueError
	pyInt      reader = "Python int()"     // in full; ValueError
	javaLong   reader = "Long.parseLong"   // in full; NumberFormatException
	goInt      reader = "strconv.Atoi"     // in full; an error
	goIntZero  reader = "strconv, err _"   // in full; 0
	netTry     reader = "long.TryParse"    // in full; the client waits
	netBytes   reader = "ToInt64"          // the first eight bytes, little-endian; ArgumentException if there are fewer
	rubyFloat  reader = "to_f"             // what it begins with, exponents too; 0
	rubyInt    reader = "to_i"             // what it begins with; 0
	rubySplit  reader = "split('-'), to_i" // the same; ArgumentError for bytes that are not UTF-8
	phpNumber  reader = "PHP's =="         // what it begins with; 0
	jsFloat    reader = "parseFloat"       // what it begins with, exponents too; NaN
	jsInt      reader = "parseInt"         // what it begins with; NaN
	afterColon reader = "UUID:parseLong"   // the text after the colon, in full; else it has expired
	dutiful    reader = "in full"          // the page says nothing: a value that is not a number is held
)

// reads returns the number, or the client's exception.
func (r reader) reads(value string) (float64, *Exception) {
	thrown := &Exception{Reader: string(r), Value: value}
	whole, err := strconv.ParseInt(value, 10, 64)
	switch r {
	case pyFloat:
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || strings.ContainsAny(value, "xXpP_") { // Go's own: hexadecimal, underscores
			return 0, thrown
		}
		return n, nil
	case pyInt, javaLong, goInt:
		if err != nil {
			return 0, thrown
		}
	case goIntZero:
	case netTry, dutiful:
		if err != nil {
			return math.Inf(1), nil
		}
	case netBytes:
		if len(value) < 8 {
			return 0, thrown
		}
		whole = int64(binary.LittleEndian.Uint64([]byte(value)))
	case rubySplit, rubyInt:
		if r == rubySplit && !utf8.ValidString(value) {
			return 0, thrown
		}
		n, _ := leading(value, false)
		return n, nil
	case rubyFloat, phpNumber:
		n, _ := leading(value, true)
		return n, nil
	case jsFloat, jsInt:
		n, ok := leading(value, r == jsFloat)
		if !ok {
			n = math.NaN()
		}
		return n, nil
	case afterColon:
		_, ms, _ := strings.Cut(value, ":")
		whole, _ = strconv.ParseInt(ms, 10, 64) //nolint:errcheck // 0 has expired
	default:
		panic("mixing: no reader " + string(r))
	}
	return float64(whole), nil
}

// leading reads the number at the beginning of a text; ok is false if there is none. A float may
// have a fraction and an exponent: "9e99c1…" is 9e99, a timestamp that never expires.
func leading(value string, float bool) (n float64, ok bool) {
	value = strings.TrimLeft(value, " \t\r\n")
	end := digitsAt(value, 0)
	if float && end > 0 && end < len(value) && value[end] == '.' {
		if f := digitsAt(value, end+1); f > end+1 {
			end = f
		}
	}
	if float && end > 0 && end < len(value) && (value[end] == 'e' || value[end] == 'E') {
		if x := digitsAt(value, end+1); x > end+1 {
			end = x
		}
	}
	n, err := strconv.ParseFloat(value[:end], 64)
	if end > 0 && err != nil {
		return math.Inf(1), true // out of range: Ruby and JavaScript say Infinity
	}
	return n, end > 0
}

// digitsAt returns the end of the digits from a place on.
func digitsAt(s string, from int) int {
	for from < len(s) && s[from] >= '0' && s[from] <= '9' {
		from++
	}
	return from
}

// jsNumber converts a text as JavaScript's == does: all of it, or NaN.
func jsNumber(value string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}
