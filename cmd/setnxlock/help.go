package main

import (
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const firstScreen = `setnxlock runs a command under a lock in Redis, on any version since 1.2: of all
machines that use the same KEY, one at a time runs its COMMAND.

  setnxlock run nightly-report -- ./report.sh

`

const lastLines = `
The server is --redis ADDRESS, or $SETNXLOCK_REDIS, or ` + defaultRedis + `.
More: setnxlock COMMAND --help, setnxlock flags; also: completion, version
`

// shelves are the commands as the first screen has them, by how often they are wanted.
var shelves = []struct {
	title string
	names []string
}{
	{"", []string{"run", "inspect", "survey", "doctor"}},
	{"\n", []string{"repair", "release", "migrate", "fences"}},
	{"\nlearn\n", []string{"demo", "race"}},
}

// overview writes the first screen: 24 lines of 80 columns, the prompt after it included.
func overview(root *cobra.Command) string {
	var page strings.Builder
	page.WriteString(firstScreen)
	for _, shelf := range shelves {
		page.WriteString(shelf.title)
		for _, name := range shelf.names {
			if cmd, _, err := root.Find([]string{name}); err == nil {
				fmt.Fprintf(&page, "  %-9s %s\n", name, cmd.Short)
			}
		}
	}
	return page.String() + lastLines
}

// flowed fills lines of 80 columns with each paragraph. Lines that begin with blanks stay as they are.
func flowed(text string) string {
	var page, words strings.Builder
	flush := func() {
		if words.Len() > 0 {
			page.WriteString(screen.Paragraph("", words.String(), 80))
			words.Reset()
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line != "" && !strings.HasPrefix(line, " ") {
			words.WriteString(line + " ")
			continue
		}
		flush()
		page.WriteString(line + "\n")
	}
	flush()
	return strings.TrimRight(page.String(), "\n")
}

// help writes the parts of a manual page, in its order. It is no template: the linker keeps every
// method of a program that has one, because a template could call it.
func help(cmd *cobra.Command, _ []string) {
	if !cmd.HasParent() {
		fmt.Fprint(cmd.OutOrStdout(), overview(cmd)) //nolint:errcheck // who would be told?
		return
	}
	cmd.InheritedFlags() // makes cmd know which of its flags are its own
	var page strings.Builder
	long := cmd.Long
	if long == "" {
		long = cmd.Short
	}
	usage := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		usage = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&page, "%s\n\nUSAGE\n  %s\n", flowed(long), usage)
	if cmd.HasAvailableSubCommands() {
		page.WriteString("\nCOMMANDS\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&page, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	flags := func(title string, f *pflag.FlagSet) {
		if f.HasAvailableFlags() {
			fmt.Fprintf(&page, "\n%s\n%s\n", title, strings.TrimRight(f.FlagUsagesWrapped(80), " \n"))
		}
	}
	flags("FLAGS", cmd.LocalFlags())
	if cmd.Annotations["alone"] == "" {
		page.WriteString("\n  and --redis, --prefix, --algorithm, ...: setnxlock flags\n")
	}
	if status := cmd.Annotations["status"]; status != "" {
		fmt.Fprintf(&page, "\nEXIT STATUS\n%s\n", status)
	}
	if cmd.Example != "" {
		fmt.Fprintf(&page, "\nEXAMPLES\n%s\n", cmd.Example)
	}
	fmt.Fprint(cmd.OutOrStdout(), page.String()) //nolint:errcheck // who would be told?
}
