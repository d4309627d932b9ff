//go:build !js

package workbench

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A module of WebAssembly is a header and sections: an id, a length, and so many bytes. Numbers are LEB128.
const (
	wasmHeader = "\x00asm\x01\x00\x00\x00"
	wasmCode   = 10
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
		id, section, after, err := section(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		if id == wasmData {
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

// section is the first one: its id, what is in it, and what follows it.
func section(b []byte) (id byte, in, after []byte, err error) {
	n, k := binary.Uvarint(b[1:])
	if k <= 0 || n > uint64(len(b)-1-k) {
		return 0, nil, nil, errModule
	}
	b, id = b[1+k:], b[0]
	return id, b[:n], b[n:], nil
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

// Streams of a packed module, beside those of immediates: each has a key.
const (
	streamBefore = iota // the code section's functions: all that is before them
	streamAfter
	streamLocals
	streamOps // opcodes, and which local, global and alignment: what repeats in long runs
	streamPC
)

// Opcodes with immediates, and one that wasm has no use for: an i64.const that is a place in this function,
// to which Go returns from a call.
const (
	opPC       = 0x06
	opEnd      = 0x0b
	opTable    = 0x0e
	opI64Const = 0x42
	opMore     = 0xfc
	// firstPC is by how much the number of a function in Go's PCs exceeds its own, without the imports.
	firstPC = 0x1000
)

// shape says what follows an opcode: "o" a number that stays with the opcodes, "n" one that stands with those
// of the same opcode after the same one before it, "4" and "8" so many bytes. ok: the linker writes it.
func shape(op byte) (s string, ok bool) {
	switch {
	case op >= 0x02 && op <= 0x04, op >= 0x20 && op <= 0x24:
		return "o", true
	case op == 0x0c, op == 0x0d, op == 0x10, op == 0x3f, op == 0x40, op == 0x41, op == opI64Const:
		return "n", true
	case op == 0x11:
		return "nn", true
	case op >= 0x28 && op <= 0x3e:
		return "on", true
	case op == 0x43:
		return "4", true
	case op == 0x44:
		return "8", true
	case op <= 0x01, op == 0x05, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4, op == opTable, op == opMore:
		return "", true
	}
	return "", false
}

// more is how many numbers follow the second byte of an opcode opMore.
var more = map[byte]int{0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 2, 10: 2, 11: 1}

// packed is the module with its code taken apart, so that like stands beside like, and gzip finds what
// repeats. The page puts it together again (unpack in workbench.js): the size of the module, the number of streams,
// their keys and lengths, what is in them, and where the table of the functions is that stands in planes.
func packed(module []byte) (_ []byte, err error) {
	rest, ok := bytes.CutPrefix(module, []byte(wasmHeader))
	if !ok {
		return nil, errModule
	}
	id, code := byte(0), []byte(nil)
	for id != wasmCode {
		if len(rest) == 0 {
			return nil, errModule
		}
		if id, code, rest, err = section(rest); err != nil {
			return nil, err
		}
	}
	p := &packer{streams: map[uint16][]byte{}}
	defer func() {
		if r := recover(); r != nil { // an index beyond the end
			err = fmt.Errorf("%w: %v", errModule, r)
		}
	}()
	count, width := binary.Uvarint(code)
	if width <= 0 {
		return nil, errModule
	}
	p.b, p.at = code, width
	p.put(streamBefore, module[:len(module)-len(rest)-len(code)+width])
	after := bytes.Clone(rest)
	from, size := functions(after)
	planes(after[from : from+size])
	p.put(streamAfter, after)
	for f := range count {
		if err := p.function(int64(f)); err != nil {
			return nil, err
		}
	}
	out := binary.AppendUvarint(nil, uint64(len(module)))
	out = binary.AppendUvarint(out, count)
	out = binary.AppendUvarint(out, uint64(len(module)-len(after)+from))
	out = binary.AppendUvarint(out, uint64(size))
	keys := slices.Sorted(maps.Keys(p.streams))
	out = binary.AppendUvarint(out, uint64(len(keys)))
	for _, key := range keys {
		out = binary.AppendUvarint(out, uint64(key))
		out = binary.AppendUvarint(out, uint64(len(p.streams[key])))
	}
	for _, key := range keys {
		out = append(out, p.streams[key]...)
	}
	return out, nil
}

// functions finds the table that the runtime has of all functions (pclntab), which is words of 32 bits; nothing
// if there is none of the form that it has since Go 1.20.
func functions(b []byte) (from, size int) {
	const header = 8 + 8*8
	at := bytes.Index(b, []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
	if at < 0 || len(b)-at < header {
		return 0, 0
	}
	count := binary.LittleEndian.Uint64(b[at+8:])
	table := binary.LittleEndian.Uint64(b[at+header-8:])
	room := uint64(len(b) - at)
	if table > room || count == 0 || count > (room-table)/8 {
		return 0, 0
	}
	last := uint64(binary.LittleEndian.Uint32(b[uint64(at)+table+8*count-4:])) // where the last one is described
	if last > room-table {
		return 0, 0
	}
	return at + int(table), int(last) &^ 3
}

// planes puts all first bytes of the words before all second ones, and so on.
func planes(words []byte) {
	n := len(words) / 4
	was := bytes.Clone(words)
	for i, b := range was {
		words[i%4*n+i/4] = b
	}
}

// A packer reads the code section.
type packer struct {
	b       []byte
	at      int
	streams map[uint16][]byte
}

func (p *packer) put(stream uint16, b []byte) { p.streams[stream] = append(p.streams[stream], b...) }

// number moves a number into a stream. It is 0 if it does not fit into 64 bits.
func (p *packer) number(stream uint16) uint64 {
	from := p.at
	for p.b[p.at] >= 0x80 {
		p.at++
	}
	p.at++
	p.put(stream, p.b[from:p.at])
	n, _ := binary.Uvarint(p.b[from:p.at])
	return n
}

// function moves one function. Its length is left out: it ends with its last block.
func (p *packer) function(index int64) error {
	length, k := binary.Uvarint(p.b[p.at:])
	p.at += k
	ends := p.at + int(length)
	for range p.number(streamLocals) {
		p.number(streamLocals)
		p.put(streamLocals, p.b[p.at:p.at+1])
		p.at++
	}
	place := int64(0)
	before := byte(0)
	for depth := 1; depth > 0; {
		op := p.b[p.at]
		s, ok := shape(op)
		if !ok {
			return fmt.Errorf("%w: opcode %#x", errModule, op)
		}
		p.at++
		stream := uint16(op)<<8 | uint16(before)
		if op == opI64Const {
			if v, k := int64LEB(p.b[p.at:]); v>>16 == index+firstPC {
				p.at += k
				p.put(streamOps, []byte{opPC})
				p.put(streamPC, leb(v&0xffff-place))
				place, before = v&0xffff, op
				continue
			}
		}
		p.put(streamOps, []byte{op})
		before = op
		for _, what := range s {
			switch what {
			case 'o':
				p.number(streamOps)
			case 'n':
				p.number(stream)
			default:
				n := int(what - '0')
				p.put(stream, p.b[p.at:p.at+n])
				p.at += n
			}
		}
		switch {
		case op >= 0x02 && op <= 0x04:
			depth++
		case op == opEnd:
			depth--
		case op == opTable:
			for range p.number(stream) + 1 {
				p.number(stream)
			}
		case op == opMore:
			sub := p.b[p.at]
			n, ok := more[sub]
			if !ok {
				return fmt.Errorf("%w: opcode %#x %#x", errModule, op, sub)
			}
			for range n + 1 {
				p.number(stream)
			}
		}
	}
	if p.at != ends {
		return fmt.Errorf("%w: function %d ends before its end", errModule, index)
	}
	return nil
}

// int64LEB reads a number with a sign.
func int64LEB(b []byte) (n int64, size int) {
	for shift := 0; ; shift += 7 {
		x := b[size]
		size++
		n |= int64(x&0x7f) << shift
		if x < 0x80 {
			if shift+7 < 64 && x&0x40 != 0 {
				n |= -1 << (shift + 7)
			}
			return n, size
		}
	}
}
