package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// manCommand writes the manual page, for who makes packages.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "man",
		Short:       "Write the manual page",
		Long:        "Writes the manual page, setnxlock(1), as troff, made of the help of all commands.",
		Annotations: map[string]string{"alone": "yes"},
		Hidden:      true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(a.out, manual(cmd.Root()))
			return err
		},
	}
}

// manual is root's page: the help of each command as it is, which has the parts of a page already.
func manual(root *cobra.Command) string {
	var page strings.Builder
	fmt.Fprintf(&page, ".TH SETNXLOCK 1 \"\" \"setnxlock %s\"\n.SH NAME\nsetnxlock \\- %s\n", roff(version()), roff(root.Short))
	add := func(title string, cmd *cobra.Command) {
		var help strings.Builder
		cmd.SetOut(&help)
		cmd.Help() //nolint:errcheck // it is written to a Builder
		fmt.Fprintf(&page, ".SH %s\n.nf\n%s\n.fi\n", roff(title), roff(strings.TrimSpace(help.String())))
	}
	add("DESCRIPTION", root)
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			add(strings.ToUpper(cmd.CommandPath()), cmd)
		}
	}
	return page.String()
}

// roff is text that troff prints as it is.
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
