package redlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// A part is what proves a lease ours on one server. The zero part is that of a
// server on which it is not.
type part struct {
	values    []string // what the key holds, or the values of which it holds one; latest first
	doubt     bool     // it holds one of them or none, with an end of its own: look before use
	fresh     bool     // asked for when a majority had its parts: it counts from the next extension on
	late      bool     // an extension to the same value may still arrive, and end it sooner
	ambiguous bool     // others may write the same: a release is not repeated
}

// valuesAtMost is how many values a part has at most. It takes that many
// extensions one after the other of which nobody knows whether they ran, on a
// server that could be read before each.
const valuesAtMost = 4

func (p part) held() bool { return len(p.values) > 0 }

// partOf returns our part behind an acquisition of l that ended with err.
func partOf(l compat.Grant, err error) part {
	if !mayHold(l, err) {
		return part{}
	}
	return part{values: []string{l.Value}, doubt: err != nil, ambiguous: l.Ambiguous}
}

// after returns the part behind an extension to next that ended with err.
func (p part) after(next compat.Grant, err error) part {
	switch {
	case err == nil:
		return part{values: []string{next.Value}, ambiguous: next.Ambiguous}
	case isLost(err):
		return part{}
	case open(err) && next.Value != "" && !slices.Contains(p.values, next.Value):
		p.values = append([]string{next.Value}, p.values[:min(len(p.values), valuesAtMost-1)]...)
	}
	p.doubt, p.ambiguous = true, p.ambiguous || next.Ambiguous
	return p
}

// in returns the value of p's in st, "" if none, and its end.
func (p part) in(st compat.State) (value string, until time.Time) {
	if st.Status != compat.StatusHeld && st.Status != compat.StatusPersistent {
		return "", time.Time{}
	}
	for _, v := range p.values {
		if st.Holds(v) {
			return v, st.End(v)
		}
	}
	return "", time.Time{}
}

// A lease's Value is its parts in one string: by position, with commas between;
// nothing for a server on which we hold nothing. '~' marks doubt, '+' what is fresh, '^' what is late, '!' ambiguity,
// and '|' stands between values of which the key holds one. Where all servers hold the
// same it is said once, after '*'.
//
//	4c…,9e…,,~a0…,1700000000.123456789012
const special = `%,|~+^!* `

// format writes parts.
func format(parts []part) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		for _, v := range p.values {
			if texts[i] != "" {
				texts[i] += "|"
			}
			texts[i] += escape(v)
		}
		if p.held() && p.ambiguous {
			texts[i] = "!" + texts[i]
		}
		if p.held() && p.late {
			texts[i] = "^" + texts[i]
		}
		if p.held() && p.fresh {
			texts[i] = "+" + texts[i]
		}
		if p.held() && p.doubt {
			texts[i] = "~" + texts[i]
		}
	}
	if len(texts) > 1 && texts[0] != "" && len(slices.Compact(slices.Clone(texts))) == 1 {
		return "*" + texts[0]
	}
	return strings.Join(texts, ",")
}

// Values returns the values of which a lease's Value says that servers may hold them.
func Values(value string) (them []string) {
	parts, err := parse(value, strings.Count(value, ",")+1)
	if err != nil {
		return nil
	}
	for _, p := range parts {
		them = append(them, p.values...)
	}
	return them
}

// parse reads the format for n servers.
func parse(value string, n int) ([]part, error) {
	texts := strings.Split(value, ",")
	if same, ok := strings.CutPrefix(value, "*"); ok {
		texts = slices.Repeat([]string{same}, n)
	}
	if len(texts) != n {
		return nil, fmt.Errorf("a token of %d servers for a quorum of %d", len(texts), n)
	}
	parts := make([]part, n)
	for i, text := range texts {
		p := &parts[i]
		text, p.doubt = strings.CutPrefix(text, "~")
		text, p.fresh = strings.CutPrefix(text, "+")
		text, p.late = strings.CutPrefix(text, "^")
		text, p.ambiguous = strings.CutPrefix(text, "!")
		if text == "" {
			*p = part{}
			continue
		}
		for _, v := range strings.Split(text, "|") {
			v, ok := unescape(v)
			if !ok || v == "" {
				return nil, fmt.Errorf("%.20q is no token of a quorum", value)
			}
			p.values = append(p.values, v)
		}
	}
	return parts, nil
}

// escape keeps printable characters as they are, but for the special ones.
func escape(v string) string {
	var b strings.Builder
	for i := range len(v) {
		if c := v[i]; c < ' ' || c > '~' || strings.IndexByte(special, c) >= 0 {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescape(v string) (string, bool) {
	head, rest, found := strings.Cut(v, "%")
	var b strings.Builder
	b.WriteString(head)
	for found {
		if len(rest) < 2 {
			return "", false
		}
		c, err := strconv.ParseUint(rest[:2], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		head, rest, found = strings.Cut(rest[2:], "%")
		b.WriteString(head)
	}
	return b.String(), true
}
