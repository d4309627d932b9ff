package redlock

import (
	"reflect"
	"strings"
	"testing"
)

// What format writes parse reads, whatever bytes the values are made of, and it
// prints.
func FuzzValue(f *testing.F) {
	f.Add("4c", "9e", "a0", uint8(0))
	f.Add("host,7", "100%", "~!*|", uint8(0b101))
	f.Add("a", "a", "a", uint8(0))
	f.Add("", "\x00\xff\n", " ", uint8(0b11011))
	f.Add("", "", "", uint8(0))
	f.Fuzz(func(t *testing.T, a, b, c string, marks uint8) {
		for _, values := range [][]string{{a, b, c}, {a, b}, {a}, {a, a, a}} {
			parts := make([]part, len(values))
			for i, v := range values {
				if v == "" {
					continue
				}
				parts[i] = part{values: []string{v}, doubt: marks&(1<<i) != 0, ambiguous: marks&(8<<i) != 0}
				if marks&64 != 0 {
					parts[i].values = append(parts[i].values, v+"'")
				}
			}
			text := format(parts)
			if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q is not printable", text)
			}
			got, err := parse(text, len(parts))
			if err != nil || !reflect.DeepEqual(got, parts) {
				t.Errorf("%q: %+v, %v; want %+v", text, got, err, parts)
			}
		}
	})
}

// FuzzParse: a token comes from anywhere, and is read or refused.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a,b,c", "*a", "*", "~!a%2c|b,,", "%", "%z0", "%+1,b,c", "a|,b,c", "~,b,c", "*a,b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, err := parse(s, 3)
		if err != nil {
			return
		}
		again, err := parse(format(parts), 3)
		if err != nil || !reflect.DeepEqual(again, parts) {
			t.Errorf("%q is read as %+v, and that again as %+v, %v", s, parts, again, err)
		}
	})
}
