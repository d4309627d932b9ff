//go:build unix

package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// The manual page has every command and every line of its help, and troff nothing to complain of.
func TestManualHasEveryCommand(t *testing.T) {
	root := rootOf()
	page := manual(root)
	for _, cmd := range root.Commands() {
		if title := ".SH " + roff(strings.ToUpper(cmd.CommandPath())) + "\n"; cmd.IsAvailableCommand() && !strings.Contains(page, title) {
			t.Errorf("no %q", title)
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".SH ") && !strings.HasPrefix(line, ".TH ") && line != ".nf\n" && line != ".fi\n" {
			t.Errorf("a line of help is taken for a request: %q", line)
		}
	}
	if got := roff(".a\n'b\nc-d\\"); got != "\\&.a\n\\&'b\nc\\-d\\e" {
		t.Errorf("%q", got)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return // it is looked at where there is one
	}
	cmd := exec.Command(groff, "-man", "-Tutf8", "-ww", "-k")
	cmd.Stdin = strings.NewReader(page)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Errorf("groff: %v: %s", err, complaints.String())
	}
}
