package markup

import "testing"

// A link from a trace never runs anything.
func TestAddress(t *testing.T) {
	for _, link := range []string{
		"javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\nscript:alert(1)", "\x01javascript:alert(1)",
		"javascript&colon;alert(1):", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "blob:x", "x:y",
	} {
		if got := Address(link); got != "#" {
			t.Errorf("%q becomes %q", link, got)
		}
	}
	for _, link := range []string{"https://redis.io/commands/set?a=b#c", "http://x", "mailto:a@b.c", "index.html", "workbench.html#C1%20%2B3s", "a/b:c"} {
		if got := Address(link); got != link {
			t.Errorf("%q becomes %q", link, got)
		}
	}
}

// What is not said to be HTML is none.
func TestPut(t *testing.T) {
	var w Writer
	w.Put(`<a title="%s">%s%d</a>`, `"'<&>`, HTML("<b>"), 7)
	if got, want := string(w.HTML()), `<a title="&#34;&#39;&lt;&amp;&gt;"><b>7</a>`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a list was written, which nothing escapes")
		}
	}()
	w.Put("%s", []string{"<img>"})
}
