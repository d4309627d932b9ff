package slot

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Beside returns a key in key's slot that begins with key. OwnerOf finds the owner of a fence.
func FuzzBeside(f *testing.F) {
	for _, key := range []string{"k", "{a}b", "a{b", "a}b", "{}a", "a{}{b}", "}{"} {
		f.Add(key, "fence")
		f.Add(key, "{host}:}{")
	}
	f.Fuzz(func(t *testing.T, key, name string) {
		if key == "" || name == "" || len(key) > 100 || len(name) > 100 {
			t.Skip()
		}
		as := strings.NewReplacer("{", "(", "}", ")").Replace(name)
		if b := Beside(key, name); Of(b) != Of(key) || !strings.HasPrefix(b, key+":"+as) {
			t.Errorf("%q is in slot %d, %q in %d", b, Of(b), key, Of(key))
		}
		if f := Beside(key, "fence"); OwnerOf(f) != key || OwnerOf(key) == key {
			t.Errorf("%q is beside %q, %q beside %q", f, OwnerOf(f), key, OwnerOf(key))
		}
	})
}

// OwnerOf makes few names for a key of many colons: names of locks come from users' input, and one that is in the slot of a
// key with a brace takes thousands of tries to make.
func TestOwnerOfManyColons(t *testing.T) {
	for _, key := range []string{"{" + strings.Repeat(":fence", 300), "{}" + strings.Repeat(":7:", 300), strings.Repeat("}:wake:{", 300)} {
		if n := testing.AllocsPerRun(1, func() { OwnerOf(key) }); n > 250_000 { // of the last few names alone
			t.Errorf("%.20q… of %d bytes: %v allocations", key, len(key), n)
		}
	}
}

// OwnerOf knows a semaphore's limit and slots. A number behind a hash tag may be any program's key.
func TestOwnerOfSlots(t *testing.T) {
	for key, want := range map[string]string{
		"q:1:{q}": "q", "q:1000:{q}": "q", "q:limit:{q}": "q", "{q}:limit": "{q}", "q:1:{q}:fence": "q:1:{q}",
		"{q}:1": "", "a:{q}:17": "", "q:1": "", "q:0:{q}": "", "q:01:{q}": "", "q:1001:{q}": "", "q:x:{q}": "", Beside("a{b", "3"): "a{b", Beside("{}", "3"): "{}",
	} {
		if got := OwnerOf(key); got != want {
			t.Errorf("%q is beside %q, want %q", key, got, want)
		}
	}
}

func TestBatches(t *testing.T) {
	keys := []string{"{a}1", "{b}1", "{a}2", "{a}3", "alone", "{a}4", "{b}2"}
	got := Batches(len(keys), 3, func(i int) (string, bool) { return keys[i], keys[i] == "alone" })
	if want := [][]int{{0, 2, 3}, {1, 6}, {4}, {5}}; !reflect.DeepEqual(got, want) {
		t.Error(fmt.Sprint(got))
	}
}
