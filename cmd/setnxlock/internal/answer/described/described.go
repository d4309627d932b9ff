// Package described reads docs/json.md, and compares an answer with what it says. Tests use it.
package described

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A Section describes the answer of one command.
type Section map[string]field

type field struct {
	kind     string // "string", "array of object", …
	optional bool
}

var (
	row   = regexp.MustCompile("^\\| `([^`]+)` \\| ([^|]+) \\| .+ \\|$")
	title = regexp.MustCompile(`^## setnxlock (.+?)( KEY\.\.\.)?$`)
)

// Read returns the sections of the page by their commands: "inspect --json".
func Read(file string) (map[string]Section, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]Section{}
	var now Section
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if m := title.FindStringSubmatch(line); m != nil {
			now = Section{"schema": {"number", false}}
			all[m[1]] = now
		} else if m := row.FindStringSubmatch(line); m != nil && now != nil {
			kind, optional := strings.CutSuffix(m[2], "?")
			if element, array := strings.CutSuffix(kind, "[]"); array {
				kind = "array of " + element
			}
			now[m[1]] = field{kind, optional}
		}
	}
	for name, s := range all { // "as of inspect": the fields of another section
		for path, f := range maps.Clone(s) {
			other, ok := strings.CutPrefix(f.kind, "as of ")
			if !ok {
				continue
			}
			if all[other+" --json"] == nil {
				return nil, fmt.Errorf("%s: %s is as of %q, which is not there", name, path, other)
			}
			delete(s, path)
			for sub, f := range maps.Clone(all[other+" --json"]) { // which may be s itself
				if sub != "schema" && !strings.HasPrefix(sub, path) && !strings.HasPrefix(f.kind, "as of ") {
					s[path+"."+sub] = f
				}
			}
		}
	}
	return all, nil
}

// Check returns how an answer differs from the page, a sentence each.
func (s Section) Check(answer []byte) []string {
	var v map[string]any
	if err := json.Unmarshal(answer, &v); err != nil {
		return []string{err.Error()}
	}
	wrong := s.object("", v)
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// object compares an object whose fields are on the page behind at.
func (s Section) object(at string, object map[string]any) (wrong []string) {
	for name, v := range object {
		path := at + name
		f, ok := s[path]
		kind, elements, _ := strings.Cut(f.kind, " of ")
		if !ok || kindOf(v) != kind {
			wrong = append(wrong, fmt.Sprintf("%s is %s, and on the page %q", path, kindOf(v), kind))
			continue
		}
		switch v := v.(type) {
		case map[string]any:
			if s.has(path + ".") {
				wrong = append(wrong, s.object(path+".", v)...)
			}
		case []any:
			for _, e := range v {
				if got := kindOf(e); got != elements {
					wrong = append(wrong, fmt.Sprintf("%s has %s, and on the page it is %s", path, got, f.kind))
				} else if o, ok := e.(map[string]any); ok {
					wrong = append(wrong, s.object(path+"[].", o)...)
				}
			}
		}
	}
	for path, f := range s {
		name, inside := strings.CutPrefix(path, at)
		if _, there := object[name]; inside && !f.optional && !there && !strings.Contains(name, ".") {
			wrong = append(wrong, path+" is missing, and on the page not optional")
		}
	}
	return wrong
}

// has reports whether the page tells the fields of an object.
func (s Section) has(prefix string) bool {
	for path := range s {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func kindOf(v any) string {
	names := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number", reflect.Map: "object", reflect.Slice: "array",
	}
	return names[reflect.ValueOf(v).Kind()]
}
