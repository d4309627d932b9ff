package workbench

import (
	"bytes"
	"testing"
)

// Segments with few zeros between them are put together; the memory that they make is the same.
func TestMerged(t *testing.T) {
	module := func(sections ...string) []byte {
		b := []byte(wasmHeader)
		for _, s := range sections {
			b = append(append(b, s[0], byte(len(s)-1)), s[1:]...)
		}
		return b
	}
	// At 8 "ab", at 16 "c", at 200 "d".
	before := module("\x00name", "\x0b\x03"+"\x00\x41\x08\x0b\x02ab"+"\x00\x41\x10\x0b\x01c"+"\x00\x41\xc8\x01\x0b\x01d", "\x00end")
	want := module("\x00name", "\x0b\x02"+"\x00\x41\x08\x0b\x09ab\x00\x00\x00\x00\x00\x00c"+"\x00\x41\xc8\x01\x0b\x01d", "\x00end")
	got, err := merged(before)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for n := range before {
		if n == 0 {
			continue
		}
		merged(before[:n]) // an error, or sections that end there: no panic
	}
	if _, err := merged([]byte("#!/bin/sh")); err == nil {
		t.Error("a script is a module")
	}
	for _, n := range []int64{0, 63, 64, 127, 128, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		if got, size, err := signed(leb(n)); err != nil || got != uint64(n) || size != len(leb(n)) {
			t.Errorf("%d becomes %d, %v", n, got, err)
		}
	}
}
