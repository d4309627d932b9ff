//go:build !js

package workbench

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// A module of WebAssembly is a header and sections: an id, a length, and so many bytes. Numbers are LEB128.
const (
	wasmHeader = "\x00asm\x01\x00\x00\x00"
	wasmData   = 11
	i32Const   = 0x41
	end        = 0x0b
	// gap is how many zeros are written rather than left out: the linker leaves out any eight, and the
	// hundred thousand segments that come of it weigh more, packed, than the zeros.
	gap = 64
)

var errModule = errors.New("workbench: not a module of WebAssembly as the linker writes it")

// merged is the module with its segments of data put together where few zeros are between them.
func merged(module []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(module, []byte(wasmHeader))
	if !ok {
		return nil, errModule
	}
	out := []byte(wasmHeader)
	for len(rest) > 0 {
		id := rest[0]
		n, k := binary.Uvarint(rest[1:])
		if k <= 0 || n > uint64(len(rest)-1-k) {
			return nil, errModule
		}
		section := rest[1+k : 1+k+int(n)]
		rest = rest[1+k+int(n):]
		if id == wasmData {
			var err error
			if section, err = mergedData(section); err != nil {
				return nil, err
			}
		}
		out = append(out, id)
		out = binary.AppendUvarint(out, uint64(len(section)))
		out = append(out, section...)
	}
	return out, nil
}

func mergedData(section []byte) ([]byte, error) {
	count, k := binary.Uvarint(section)
	if k <= 0 {
		return nil, errModule
	}
	section = section[k:]
	type segment struct {
		at   uint64
		data []byte
	}
	var list []segment
	for range count {
		if len(section) < 2 || section[0] != 0 || section[1] != i32Const {
			return nil, errModule
		}
		at, k, err := signed(section[2:])
		if err != nil || len(section) < 3+k || section[2+k] != end {
			return nil, errModule
		}
		section = section[3+k:]
		n, k := binary.Uvarint(section)
		if k <= 0 || n > uint64(len(section)-k) {
			return nil, errModule
		}
		data := section[k : k+int(n)]
		section = section[k+int(n):]
		list = append(list, segment{at, data})
	}
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.at, b.at) })
	var all []segment
	for _, s := range list {
		if last := len(all) - 1; last >= 0 {
			over := all[last].at + uint64(len(all[last].data))
			if s.at < over {
				return nil, fmt.Errorf("%w: data at %d is written twice", errModule, s.at)
			}
			if s.at-over <= gap {
				all[last].data = append(append(all[last].data, make([]byte, s.at-over)...), s.data...)
				continue
			}
		}
		all = append(all, segment{s.at, bytes.Clone(s.data)})
	}
	out := binary.AppendUvarint(nil, uint64(len(all)))
	for _, s := range all {
		out = append(append(out, 0, i32Const), leb(int64(s.at))...)
		out = binary.AppendUvarint(append(out, end), uint64(len(s.data)))
		out = append(out, s.data...)
	}
	return out, nil
}

// signed reads a number of 32 bits that stands for one without a sign.
func signed(b []byte) (n uint64, size int, err error) {
	for size < 5 && size < len(b) {
		n |= uint64(b[size]&0x7f) << (7 * size)
		size++
		if b[size-1]&0x80 == 0 {
			if b[size-1]&0x40 != 0 {
				n |= ^uint64(0) << (7 * size)
			}
			return n & 0xffffffff, size, nil
		}
	}
	return 0, 0, errModule
}

// leb is a number as i32.const has it.
func leb(n int64) (b []byte) {
	for n = int64(int32(n)); ; n >>= 7 {
		if low := byte(n & 0x7f); n < 64 && n >= -64 {
			return append(b, low)
		}
		b = append(b, byte(n&0x7f)|0x80)
	}
}
