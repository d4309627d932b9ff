package handle

import "testing"

func FuzzHandle(f *testing.F) {
	f.Add("k", "t", 0, byte(1))
	f.Add("a key: of any bytes\xff", "12345.678", 9, byte(7))
	f.Fuzz(func(t *testing.T, key, token string, at int, by byte) {
		word := Encode(key, token)
		k, v, ok := Decode(word)
		if whole := key != "" && token != ""; ok != whole || ok && (k != key || v != token) {
			t.Fatalf("%q, %q came back as %q, %q, %v", key, token, k, v, ok)
		}
		wrong := []byte(word)
		wrong[uint(at)%uint(len(wrong))] ^= by
		if _, _, ok := Decode(string(wrong)); ok && by != 0 {
			t.Errorf("%q was read, and is not %q", wrong, word)
		}
		if _, _, ok := Decode(word[:len(word)-1]); ok {
			t.Error("a part of a word was read")
		}
	})
}
