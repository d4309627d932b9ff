package pages

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longWord is how many letters of code have room in a line of a telephone.
const longWord = 36

// Words writes code as HTML with breaks between words alone: a browser breaks behind each hyphen, too,
// and half of --no-guarantees stands at the end of a line. A word that has no room in a line of its
// own is broken anywhere, as before. Copied, it is the code.
func Words(code string) string {
	var b strings.Builder
	for len(code) > 0 {
		n := strings.IndexFunc(code, unicode.IsSpace)
		if n == 0 {
			b.WriteByte(' ')
			code = strings.TrimLeftFunc(code, unicode.IsSpace)
			continue
		}
		if n < 0 {
			n = len(code)
		}
		word := code[:n]
		code = code[n:]
		plain := !strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if plain || utf8.RuneCountInString(word) > longWord {
			b.WriteString(html.EscapeString(word))
			continue
		}
		b.WriteString(`<span class="word">` + html.EscapeString(word) + "</span>")
	}
	return b.String()
}
