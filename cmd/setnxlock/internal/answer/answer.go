// Package answer is how the command answers machines: in JSON, as docs/json.md describes it.
package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Schema is the version of the JSON. It grows when a field goes, or changes its type or its meaning; a new
// field leaves it as it is.
const Schema = 1

// Write writes an object that begins with the version of its schema, on many lines.
func Write(w io.Writer, v any) error { return write(w, v, true) }

// Line does as Write on one line.
func Line(w io.Writer, v any) error { return write(w, v, false) }

func write(w io.Writer, v any, indent bool) error {
	b, err := Plain(v)
	if err != nil {
		return err
	}
	head := `{"schema":` + strconv.Itoa(Schema)
	if len(b) > len("{}") {
		head += ","
	}
	b = append([]byte(head), b[1:]...)
	if indent {
		var nice bytes.Buffer
		if err := json.Indent(&nice, b, "", "  "); err != nil {
			return err
		}
		b = nice.Bytes()
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Plain returns v in JSON, with <, > and & as they are, and with all unprintable characters escaped.
func Plain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	var text []byte
	for _, r := range strings.TrimSuffix(b.String(), "\n") { // what is not ASCII stands in strings alone
		switch high, low := utf16.EncodeRune(r); {
		case unicode.IsPrint(r):
			text = utf8.AppendRune(text, r)
		case r > 0xffff:
			text = fmt.Appendf(text, `\u%04x\u%04x`, high, low)
		default:
			text = fmt.Appendf(text, `\u%04x`, r)
		}
	}
	return text, err
}
