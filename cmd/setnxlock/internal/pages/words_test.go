package pages

import "testing"

// A word of code stays whole, unless it has no room in a line; what is copied is the code.
func TestWordsOfCode(t *testing.T) {
	for code, want := range map[string]string{
		"GET":                       "GET",
		"setnxlock --no-guarantees": `setnxlock <span class="word">--no-guarantees</span>`,
		"if a\n<b-c":                `if a <span class="word">&lt;b-c</span>`,
		"  x ":                      " x ",
		"/a/very/long/path/that-has-no-room/on-a-telephone": "/a/very/long/path/that-has-no-room/on-a-telephone",
	} {
		if got := Words(code); got != want {
			t.Errorf("%q: %s, want %s", code, got, want)
		}
	}
}
