//go:build unix

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A command that is run from a loop in a shell must not prepare what it does not
// use: pages, tables, the explorer's help. What is prepared shows in allocations,
// which don't depend on how busy the machine is.
func TestStartsWithWhatItNeeds(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	const commandLine = 5000 // flags and help texts of all commands; the explorer's list alone made 60,000
	if n := testing.AllocsPerRun(3, func() { execute([]string{"version"}, null, null, null) }); n > commandLine {
		t.Errorf("version allocates %.0f times, %d at most", n, commandLine)
	}

	cmd := exec.Command("setnxlock", "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := 0
	for _, m := range regexp.MustCompile(`init (\S+) @.* (\d+) allocs`).FindAllStringSubmatch(string(out), -1) {
		if n, _ := strconv.Atoi(m[2]); strings.HasPrefix(m[1], "github.com/setnxlock/") {
			const table = 200 // a map of commands, an error or two
			if seen++; n > table {
				t.Errorf("package %s allocates %d times before main, %d at most", m[1], n, table)
			}
		}
	}
	if seen == 0 {
		t.Errorf("no package of ours in %s", out)
	}
}
