package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
)

// A fold is a set of keys with names that differ in numbers alone, and with values of one form.
type fold struct {
	pattern string
	keys    int
	first   verdict.Verdict
}

// A folds holds the possible locks by the patterns of their names. It is bounded, however many keys there
// are: when there are too many patterns, all names that begin alike are one.
type folds struct {
	all    map[[2]string]*fold // by pattern and format
	coarse bool
}

const mostFolds = 1000

func (f *folds) add(v verdict.Verdict) {
	f.put(pattern(v.Key), 1, v)
	if len(f.all) <= mostFolds || f.coarse {
		return
	}
	f.coarse = true
	fine := f.all
	f.all = nil
	for _, one := range fine {
		f.put(one.pattern, one.keys, one.first)
	}
}

func (f *folds) put(name string, keys int, v verdict.Verdict) {
	if f.coarse {
		if i := strings.IndexAny(name, ":./-_|"); i >= 0 {
			name = name[:i+1] + "*"
		} else {
			name = "*"
		}
	}
	at := [2]string{name, v.Format}
	if len(f.all) >= 2*mostFolds && f.all[at] == nil {
		at[0] = "*"
	}
	if f.all == nil {
		f.all = map[[2]string]*fold{}
	}
	if one := f.all[at]; one != nil {
		one.keys += keys
	} else {
		f.all[at] = &fold{at[0], keys, v}
	}
}

// list returns the folds of one key, as verdicts, and those of several, the largest first.
func (f *folds) list() (single []verdict.Verdict, several []*fold) {
	for _, one := range f.all {
		if one.keys == 1 {
			single = append(single, one.first)
		} else {
			several = append(several, one)
		}
	}
	slices.SortFunc(several, func(x, y *fold) int {
		return cmp.Or(y.keys-x.keys, strings.Compare(x.pattern, y.pattern), strings.Compare(x.first.Format, y.first.Format))
	})
	return single, several
}

var nameParts = sync.OnceValue(func() (p struct{ uuid, word, digits, stars *regexp.Regexp }) {
	p.uuid = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)
	p.word = regexp.MustCompile(`[\pL\p{Nd}]+`)
	p.digits = regexp.MustCompile(`\p{Nd}+`)
	p.stars = regexp.MustCompile(`\*+`)
	return p
})

// pattern replaces each number in a key by *, and each long word with digits in it: user:17:token becomes
// user:*:token, and so does user:fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:token.
func pattern(key string) string {
	key = nameParts().word.ReplaceAllStringFunc(nameParts().uuid.ReplaceAllString(key, "0"), func(word string) string {
		if len(word) >= 8 && strings.ContainsFunc(word, unicode.IsDigit) {
			return "*"
		}
		return nameParts().digits.ReplaceAllString(word, "*")
	})
	return nameParts().stars.ReplaceAllString(key, "*")
}
