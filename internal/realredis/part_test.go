package realredis

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What make test leaves out is told: each TestLong… begins with Long, so that make test notes
// it, and docs/testing.md says what it is.
func TestWhatIsLongIsListed(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(root + "/docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	long := regexp.MustCompile(`(?m)^func (TestLong\w+)\(t \*testing\.T\) \{\n(.*\n)*?\}`)
	seen := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "part_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range long.FindAllStringSubmatch(string(text), -1) {
			seen++
			if !strings.Contains(m[0], "realredis.Long(t)") {
				t.Errorf("%s: %s does not begin with realredis.Long", path, m[1])
			}
			if !strings.Contains(string(page), "`"+m[1]+"`") {
				t.Errorf("docs/testing.md does not say what %s is", m[1])
			}
		}
		return err
	})
	if err != nil || seen < 4 {
		t.Errorf("%d tests are left out, %v", seen, err)
	}
}

// A test that takes too long ends at once and is noted, unless all are asked for.
func TestWhatIsLongIsNoted(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skipped")
	t.Setenv("SETNXLOCK_TEST_SKIPPED", list)
	for set, want := range map[string]string{"": "skipped", "embedded": "skipped", "all": "run"} {
		t.Setenv("SETNXLOCK_TEST", set)
		got := "skipped"
		t.Run(set, func(t *testing.T) {
			Long(t)
			got = "run"
		})
		noted, _ := os.ReadFile(list) //nolint:errcheck // none is none
		if got != want || strings.Contains(string(noted), ": make long\n") != (want == "skipped") {
			t.Errorf("SETNXLOCK_TEST=%q: %s, want %s; noted %q", set, got, want, noted)
		}
		os.Remove(list) //nolint:errcheck // it may not be there
	}
}
