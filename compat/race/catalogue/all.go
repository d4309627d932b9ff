package catalogue

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

//go:embed scenarios
var files embed.FS

var catalogue = sync.OnceValue(func() []Scenario {
	var all []Scenario
	err := fs.WalkDir(files, "scenarios", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "scenarios/"), ".txt")
		s, err := Parse(name, text)
		all = append(all, s)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("catalogue: %v", err)) // the tests parse every file
	}
	slices.SortStableFunc(all, func(a, b Scenario) int {
		return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.Name, b.Name))
	})
	return all
})

// place sorts the list: taught races come first, in their order.
func (s Scenario) place() int {
	if s.Star == 0 {
		return 1000
	}
	return s.Star
}

// All returns every scenario: first the taught ones, in the order of teaching, then the others by
// name.
func All() []Scenario { return slices.Clone(catalogue()) }

// Find returns the scenario of a name: "getset/double-takeover", or the part after the slash if no
// other has it.
func Find(name string) (Scenario, bool) {
	var found []Scenario
	for _, s := range catalogue() {
		if s.Name == name {
			return s, true
		}
		if strings.HasSuffix(s.Name, "/"+name) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		return Scenario{}, false
	}
	return found[0], true
}
