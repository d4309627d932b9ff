package compat_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"testing"
)

// Files that need each other can only be read together. The largest such knot of a package may shrink, and not grow.
func TestKnots(t *testing.T) {
	for dir, most := range map[string]int{
		".": 8, "protocol": 3, "race": 1, "race/internal/plan": 2, "race/internal/client": 5, "race/internal/judge": 1,
		"race/internal/live": 3, "race/internal/search": 4, "race/internal/explore": 1,
	} {
		if k := knot(t, dir); len(k) != most {
			t.Errorf("in %s %d files need each other, and the number here is %d: %v", dir, len(k), most, k)
		}
	}
}

// knot is the largest group of files of a package of which each needs each other, directly or not.
func knot(t *testing.T, dir string) (largest []string) {
	var files []*ast.File
	set := token.NewFileSet()
	for _, s := range parseInto(t, set, dir) {
		files = append(files, s.file)
	}
	uses := map[*ast.Ident]types.Object{}
	known := types.Config{Importer: nothing{}, Error: func(error) {}} // what is imported does not matter
	pkg, _ := known.Check(dir, set, files, &types.Info{Uses: uses})
	in := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
	needs := map[string]map[string]bool{}
	for id, what := range uses {
		if from := in(id.Pos()); what.Pkg() == pkg && what.Pos().IsValid() {
			if needs[from] == nil {
				needs[from] = map[string]bool{}
			}
			needs[from][in(what.Pos())] = true
		}
	}
	reached := map[string]map[string]bool{}
	for f := range needs {
		reached[f] = map[string]bool{}
		for open := []string{f}; len(open) > 0; open = open[1:] {
			for next := range needs[open[0]] {
				if !reached[f][next] {
					reached[f][next] = true
					open = append(open, next)
				}
			}
		}
	}
	for f := range reached {
		var k []string
		for g := range reached {
			if reached[f][g] && reached[g][f] {
				k = append(k, g)
			}
		}
		if len(k) > len(largest) {
			largest = k
		}
	}
	slices.Sort(largest)
	return largest
}

// nothing is an importer of packages of which nothing is known.
type nothing struct{}

func (nothing) Import(p string) (*types.Package, error) {
	pkg := types.NewPackage(p, path.Base(p))
	pkg.MarkComplete()
	return pkg, nil
}
