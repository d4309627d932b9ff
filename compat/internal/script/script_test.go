package script

import (
	"slices"
	"testing"
)

type cmd []any

func TestScript(t *testing.T) {
	for _, test := range []struct {
		name string
		cmds []cmd
		want string
		args []any // behind the script's text
	}{
		{"delete", []cmd{{"DEL", "k"}}, `local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then
	return {false, held}
end
local r1 = redis.call('DEL', KEYS[1])
if r1 == 0 then
	return false
end
return r1
`, []any{1, "k", "v"}},
		{"extend and draw", []cmd{{"PEXPIRE", "k", 9}, {"INCR", "k:fence"}}, `local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then
	return {false, held}
end
local r1 = redis.call('PEXPIRE', KEYS[1], ARGV[2])
if r1 == 0 then
	return false
end
local r2 = redis.pcall('INCR', KEYS[2])
if type(r2) == 'number' and math.abs(r2) >= 2^53 then
	r2 = redis.call('GET', KEYS[2])
end
return {r1, r2}
`, []any{2, "k", "k:fence", "v", 9}},
	} {
		s := For("k", test.cmds)
		if s.Source != test.want {
			t.Errorf("%s:\n%s", test.name, s.Source)
		}
		if args := Append(nil, s, false, "k", "v", test.cmds); args[0] != s.sha || !slices.Equal(args[1:], test.args) {
			t.Errorf("%s: %v", test.name, args)
		}
		if args := Append(nil, s, true, "k", "v", test.cmds); args[0] != test.want {
			t.Errorf("%s: the source is not sent", test.name)
		}
	}
	if For("k", []cmd{{"DEL", "k"}}) != For("other", []cmd{{"DEL", nil}}) {
		t.Error("a script for each key")
	}
	if For("k", []cmd{{"DEL", "k"}}) == For("k", []cmd{{"DEL", "other"}}) {
		t.Error("a script for another key takes it for the first")
	}
}
