package locks_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/internal/must"
)

var update = flag.Bool("update", false, "write the table in docs/algorithms.md")

// docs/algorithms.md lists these locks, and no others.
func TestDocs(t *testing.T) {
	const page = "../../docs/algorithms.md"
	b := must.Get(os.ReadFile(page))(t)
	const begin, end = "<!-- locks: go test ./compat/locks -update -->\n", "<!-- end of locks -->"
	before, rest, ok := strings.Cut(string(b), begin)
	says, after, ends := strings.Cut(rest, end)
	switch list := table(); {
	case !ok || !ends:
		t.Errorf("%s has no list of the locks", page)
	case says == list:
	case !*update:
		t.Errorf("%s says\n%s\nwant\n%s", page, says, list)
	default:
		must.Do(t, os.WriteFile(page, []byte(before+begin+list+end+after), 0o644))
	}
}

// table is every lock, for docs/algorithms.md.
func table() string {
	var b strings.Builder
	b.WriteString("\n| lock | since | needs | what it is |\n|---|---|---|---|\n")
	for _, l := range locks.All() {
		about := l.About
		if l.Flaw != "" {
			about += ". **" + strings.ToUpper(l.Flaw[:1]) + l.Flaw[1:] + "**"
		}
		if l.Instead != "" {
			about += "; the command: " + strings.Replace(l.Instead, "--dialect mlanett-redis-lock", "`--dialect mlanett-redis-lock`", 1)
		}
		fmt.Fprintf(&b, "| `%s` [`%s`](../%s) | %s | %s | %s |\n", l.Name, l.Go, l.Page, l.Since, needs(l), about)
	}
	b.WriteString("\n")
	return b.String()
}

func needs(l locks.Lock) string {
	var list []string
	for _, n := range l.Needs {
		switch n {
		case ability.SetnxOnTTL, ability.ExpireAgain, ability.Setnx, ability.Setex:
			continue // every server from Since on has them
		}
		list = append(list, string(n))
	}
	if len(l.OneOf) > 0 {
		list = append(list, string(l.OneOf[0])+" or "+string(l.OneOf[1]))
	}
	if len(list) == 0 {
		return "–"
	}
	return strings.Join(list, "; ")
}
