//go:build unix

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A flag says what it does in ten words, the name of its variable aside; what takes more is in the help above.
func TestFlagsAreShort(t *testing.T) {
	aside := regexp.MustCompile(` \[.*\]$`)
	flags := 0
	look := func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			flags++
			if n := len(strings.Fields(aside.ReplaceAllString(f.Usage, ""))); n > 10 {
				t.Errorf("%s --%s: %d words", cmd.CommandPath(), f.Name, n)
			}
		})
	}
	root := rootOf()
	look(root)
	eachCommand(root, look)
	if flags < 60 {
		t.Errorf("%d flags", flags)
	}
}

// The first screen has every command, those first that are wanted most, and fits a terminal, with the prompt
// that comes after it. So do the lines of every help.
func TestFirstScreen(t *testing.T) {
	root := rootOf()
	page := overview(root)
	lines := strings.Split(page, "\n") // the last is the prompt's
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	var names []string
	for _, shelf := range shelves {
		names = append(names, shelf.names...)
	}
	if want := []string{"run", "inspect", "survey", "doctor", "repair", "release", "migrate"}; !slices.Equal(names[:7], want) || !strings.Contains(page, "\nlearn\n  demo ") {
		t.Errorf("%q", names)
	}
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && !slices.Contains(names, cmd.Name()) && !strings.Contains(lastLines, cmd.Name()) {
			t.Errorf("%s is not on it", cmd.Name())
		}
	}
	fits := func(of, page string) {
		for line := range strings.Lines(page) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%s: %q", of, line)
			}
		}
	}
	fits("setnxlock", page)
	fits("flags", flagsPage(root))
	pages := 0
	eachCommand(root, func(cmd *cobra.Command) {
		if strings.Contains(cmd.CommandPath(), "completion") { // cobra's own
			return
		}
		var text strings.Builder
		cmd.SetOut(&text)
		cmd.Help() //nolint:errcheck // it is written to a Builder
		pages++
		fits(cmd.CommandPath(), text.String())
		if strings.Contains(text.String(), "--redis ADDRESS") {
			t.Errorf("%s: its help has the flags of all commands", cmd.CommandPath())
		}
	})
	if pages < 20 {
		t.Errorf("%d pages", pages)
	}
}

func TestParagraphsFillLines(t *testing.T) {
	long := strings.Repeat("word ", 20)
	if got, want := flowed("a\nb "+long+"\n\n  as it is "+long+"\nc\n"), "a b "+strings.TrimSpace(strings.Repeat("word ", 15))+"\nword word word word word\n\n  as it is "+long+"\nc"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
