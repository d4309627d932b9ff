package main

import (
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/spf13/cobra"
)

const addressHelp = `--redis
  host, host:port                         the port is 6379 if it is not given
  redis://[user:password@]host:port[/db]  a password's special characters as %40
  rediss://...                            the same by TLS
  unix:///path[?db=N], /path              a unix socket
  Several, with commas between or a --redis each, are the servers of a quorum
  (--algorithm redlock) or nodes of a cluster (--cluster). With --sentinel it
  has the user, password, database and TLS of the master that they name.
`

const dialectHelp = `--dialect
  How the clients that share the keys write their locks, the same for all:
  seconds, float, millis or nanos, for a lock of times; or a client in the
  field, redis-py-2.9, jedis-lock, ...: setnxlock survey names those it finds.
`

// pageCommand makes a command that prints a page and speaks to no server.
func (a *app) pageCommand(use, short, long string, page func(root *cobra.Command) string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Annotations: exit.Alone("")}
	cmd.RunE = func(*cobra.Command, []string) error { return a.print(page(cmd.Root())) }
	return cmd
}

func (a *app) flagsCommand() *cobra.Command {
	return a.pageCommand("flags", "List the flags of all commands",
		"Lists the flags of all commands that speak to a server, their values, and their environment variables.", flagsPage)
}

// flagsPage writes the page of setnxlock flags.
func flagsPage(root *cobra.Command) string {
	return strings.TrimRight(root.PersistentFlags().FlagUsagesWrapped(80), " \n") + `

  [$VARIABLE] is read where the flag is not given. Without --timeout a server
  of a quorum has ` + redlock.DefaultTimeout.String() + `.

` + addressHelp + "\n" + dialectHelp + "\n" + algorithmsHelp()
}

// algorithmsHelp lists the values of --algorithm.
func algorithmsHelp() string {
	var page strings.Builder
	page.WriteString("--algorithm\n")
	row := func(name, about string) {
		page.WriteString(screen.Paragraph(fmt.Sprintf("  %-18s  ", name), about, 80))
	}
	row("auto", "the safest that the server allows, by its answers")
	row(strings.Join(locks.Families(), ", "), "the safest of that family")
	for _, name := range names() {
		if l, ok := locks.Get(name); ok {
			row(name, l.About)
		}
	}
	return page.String()
}
