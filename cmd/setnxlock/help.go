package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// help writes the parts of a manual page, in its order. It is no template: the linker keeps every
// method of a program that has one, because a template could call it.
func help(cmd *cobra.Command, _ []string) {
	inherited := cmd.InheritedFlags() // which makes cmd know them
	var page strings.Builder
	long := cmd.Long
	if long == "" {
		long = cmd.Short
	}
	usage := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		usage = cmd.CommandPath() + " COMMAND"
	}
	fmt.Fprintf(&page, "%s\n\nUSAGE\n  %s\n", strings.TrimSpace(long), usage)
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
		flags("FLAGS OF ALL COMMANDS", inherited)
	}
	if status := cmd.Annotations["status"]; status != "" {
		fmt.Fprintf(&page, "\nEXIT STATUS\n%s\n", status)
	}
	if cmd.Example != "" {
		fmt.Fprintf(&page, "\nEXAMPLES\n%s\n", cmd.Example)
	}
	fmt.Fprint(cmd.OutOrStdout(), page.String()) //nolint:errcheck // who would be told?
}
