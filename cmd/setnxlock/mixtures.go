package main

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/dialect"
)

// A mixtures holds the kinds of locks by the groups of their keys' names. It keeps 16 bytes or so of each
// group, and only the names of groups with several kinds.
type mixtures struct {
	seed  maphash.Seed
	kinds map[uint64]uint32 // bits: positions in seen, and unsure
	names map[string]uint64
	seen  []dialect.Kind
}

func (m *mixtures) add(v verdict.Verdict) {
	group := group(v.Key)
	if group == "" || v.Kind == "" || v.Lock == verdict.Theirs || v.Lock == verdict.RW || v.Lock == verdict.Slots {
		return
	}
	if m.kinds == nil {
		m.seed, m.kinds, m.names = maphash.MakeSeed(), map[uint64]uint32{}, map[string]uint64{}
	}
	kind := dialect.Kind(v.Kind)
	at := slices.Index(m.seen, kind)
	if at < 0 {
		at, m.seen = len(m.seen), append(m.seen, kind)
	}
	h := maphash.String(m.seed, group)
	m.kinds[h] |= 1 << at
	if v.Sure == verdict.Possible {
		m.kinds[h] |= unsure
	}
	if bits := m.kinds[h] &^ unsure; bits&(bits-1) != 0 {
		m.names[group] = h
	}
}

// group returns the pattern of the keys related to a key; "" for a key by itself. Keys of one folder are a
// group: jobs:a and jobs:b. Where the folder is one of many, the last word tells what the key is for:
// user:1:token is one with user:2:token, and not with user:1:last_login.
func group(key string) string {
	folder := key[:strings.LastIndexAny(key, ":./")+1]
	switch {
	case folder == "":
		return ""
	case pattern(folder) != folder:
		return pattern(key)
	}
	return folder + "*"
}

// unsure marks a group with keys that need not be locks.
const unsure = 1 << 31

// A mixture is a group of keys with kinds of locks that can't be mixed safely.
type mixture struct {
	Prefix string   `json:"prefix"`
	Kinds  []string `json:"kinds"`
	Wrong  string   `json:"wrong"`
}

// clashes lists the groups in which one client would take or keep another's lock wrongly.
func (m *mixtures) clashes() []mixture {
	list := []mixture{}
	for _, group := range slices.Sorted(maps.Keys(m.names)) {
		var kinds []dialect.Kind
		for i, k := range m.seen {
			if m.kinds[m.names[group]]&(1<<i) != 0 {
				kinds = append(kinds, k)
			}
		}
		slices.Sort(kinds)
		if why := unmixable(kinds); why != "" {
			clash := mixture{Prefix: strings.TrimSuffix(group, "*"), Wrong: why}
			if m.kinds[m.names[group]]&unsure != 0 {
				clash.Wrong += "; if all of these are locks"
			}
			for _, k := range kinds {
				clash.Kinds = append(clash.Kinds, string(k))
			}
			list = append(list, clash)
		}
	}
	return list
}

// inWords names the kinds of a mixture for people.
func (m mixture) inWords() string {
	var words []string
	for _, k := range m.Kinds {
		words = append(words, kindInWords(dialect.Kind(k)))
	}
	return strings.Join(words, " and ")
}

// kindInWords names a kind for people.
func kindInWords(k dialect.Kind) string {
	return cmp.Or(map[dialect.Kind]string{
		dialect.Seconds:      "times in seconds",
		dialect.FloatSeconds: "times in seconds with a fraction",
		dialect.Millis:       "times in milliseconds",
		dialect.Nanos:        "times in nanoseconds",
		dialect.OwnedSeconds: "times in seconds with an owner",
		dialect.OwnedMillis:  "times in milliseconds with an owner",
		dialect.BinSeconds:   "times in eight bytes",
		dialect.InAction:     "tokens (UUIDs)",
		dialect.Python:       "tokens (hexadecimal)",
		dialect.Owned:        "names of owners",
		dialect.Flag:         "flags",
		dialect.Watched:      "texts",
		dialect.TwoKeys:      "owners with a time on another key",
	}[k], "tokens")
}

// unmixable explains why kinds can't share keys; "" if they can.
func unmixable(kinds []dialect.Kind) string {
	units := map[time.Duration]bool{}
	timed, tokens := 0, 0
	for _, k := range kinds {
		switch k {
		case dialect.Seconds, dialect.FloatSeconds, dialect.OwnedSeconds, dialect.BinSeconds, dialect.TwoKeys:
			units[time.Second] = true
		case dialect.Millis, dialect.OwnedMillis:
			units[time.Millisecond] = true
		case dialect.Nanos:
			units[time.Nanosecond] = true
		}
		if k.Timed() {
			timed++
		} else if k != dialect.TwoKeys {
			tokens++
		}
	}
	switch {
	case len(units) > 1:
		return "times in different units: clients that count in the smaller one take every live lock of the others at once, and the others never recover a dead one"
	case timed > 0 && tokens > 0:
		return "times and tokens: clients of times steal tokens or throw at them, and clients of tokens never recover a dead time"
	}
	return ""
}
