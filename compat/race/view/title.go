package view

import (
	"slices"
	"strings"
	"unicode"
)

// small are the words that a title does not capitalise.
var small = []string{"a", "an", "and", "as", "at", "but", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"}

// Titled is a title with its words capitalised as titles are: a name with a mark in it stays.
func Titled(title string) string {
	words := strings.Fields(title)
	for i, w := range words {
		bare := strings.Trim(w, ",.:;!?")
		first := i == 0 || strings.HasSuffix(words[i-1], ":")
		if !first && slices.Contains(small, bare) || strings.ContainsAny(bare, "/:._`()") || bare == "txlock" || bare == "getsetlock" || bare == "setnxlock" {
			continue
		}
		r := []rune(w)
		r[0] = unicode.ToUpper(r[0])
		words[i] = string(r)
	}
	return strings.Join(words, " ")
}
