// Command handbook writes docs/*.md as the pages of a web site: beside the races, which setnxlock
// race site writes, with one look, a map, a search that works offline, and the guarantees as a
// table that answers for one's own server and faults. Nothing is loaded from elsewhere.
//
//	setnxlock race site --workbench SITE/races
//	go run ./compat/race/handbook SITE
//
// It is a module of its own, so that who imports a lock gets no Markdown.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	repository := flag.String("repository", "../../..", "the clone whose docs are written")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: handbook [-repository DIR] SITE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(64)
	}
	n, err := Write(*repository, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "handbook:", err)
		os.Exit(70)
	}
	fmt.Fprintf(os.Stderr, "%d pages: %s/index.html\n", n, flag.Arg(0))
}
