package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// manCommand makes the hidden command man, for makers of packages.
func (a *app) manCommand() *cobra.Command {
	cmd := a.pageCommand("man", "Write the manual page",
		"Writes the manual page, setnxlock(1), as troff, made of the help of all commands.", manual)
	cmd.Hidden = true
	return cmd
}

const leaseHelp = `setnxlock works on any Redis since 1.2, on proxies without transactions, and where Lua
is forbidden: it asks the server what it can do and uses the safest lock that works
there.

A lock is a lease: it ends by itself after its TTL unless it is renewed, so a
machine that dies blocks the others no longer than that. A lease can be lost, if
the server forgets it or the network breaks: setnxlock then stops the command.`

// manual writes root's page of the help of each command, which has the parts of a page already.
func manual(root *cobra.Command) string {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH SETNXLOCK 1 \"\" \"setnxlock %s\"\n.SH NAME\nsetnxlock \\- %s\n", roff(version()), roff(root.Short))
	write := func(title, text string) {
		fmt.Fprintf(&page, ".SH %s\n.nf\n%s\n.fi\n", roff(title), roff(strings.TrimSpace(text)))
	}
	add := func(title string, cmd *cobra.Command) {
		var help strings.Builder
		cmd.SetOut(&help)
		cmd.Help() //nolint:errcheck // it is written to a Builder
		write(title, help.String())
	}
	write("DESCRIPTION", leaseHelp+"\n\n"+overview(root))
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			add(strings.ToUpper(cmd.CommandPath()), cmd)
		}
	}
	write("FLAGS OF ALL COMMANDS", flagsPage(root))
	return page.String()
}

// roff escapes text for troff.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
