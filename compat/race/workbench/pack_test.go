package workbench

import (
	"bytes"
	"strings"
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

// What the page's own walk over the opcodes could not follow is refused, not packed.
func TestPacked(t *testing.T) {
	module := func(code string) []byte {
		return []byte(wasmHeader + "\x01\x01\x00" + "\x0a" + string(rune(len(code)+2)) + "\x01" + string(rune(len(code))) + code + "\x0b\x01\x00")
	}
	// A local, i64.const 7, a place in this function (1<<28 | 3), call 200, a table of two, the end.
	code := "\x01\x01\x7e" + "\x42\x07" + "\x42\x83\x80\x80\x80\x01" + "\x10\xc8\x01" + "\x0e\x01\x00\x00" + "\x0b"
	got, err := packed(module(code))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x42\x06\x10\x0e\x0b" + "\x03"; !bytes.Contains(got, []byte(want)) {
		t.Errorf("%q has no stream %q", got, want)
	}
	for what, code := range map[string]string{"an opcode of vectors": "\x00\xfd\x0b", "the opcode that stands for a place": "\x00\x06\x0b", "code behind the end": "\x00\x0b\x0b", "no end": "\x00\x41"} {
		if got, err := packed(module(code)); err == nil {
			t.Errorf("%s is packed: %q", what, got)
		}
	}
	for n := range len(module(code)) - len("\x0b\x01\x00") { // within the code
		if _, err := packed(module(code)[:n]); err == nil {
			t.Errorf("%d bytes are a module", n)
		}
	}
}

// A lock of the reader's own that sends what the page's Redis has not is refused: an unknown command would be a wrong answer.
func TestPresent(t *testing.T) {
	for schedule, ok := range map[string]bool{
		"form/GEOADD,KEY,1,1,TOKEN;1=mine 7.0 2x1 :":                                   false,
		`getset:classic 2.4 2x1 given="xadd k * a b" :`:                                false,
		`getset:classic 2.4 2x1 key="object" given="SET {key} xadd" :`:                 true,
		"form/SETNX,KEY,TOKEN;0=held;1=mine;release;DEL,KEY;else=done 2.4 2x1 : C1 C2": true,
	} {
		_, err := Question{Schedule: schedule}.position()
		if refused := err != nil && strings.Contains(err.Error(), "the workbench's Redis has no "); refused == ok {
			t.Errorf("%s: %v", schedule, err)
		}
	}
}
