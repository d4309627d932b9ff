// Command setnxlock runs a job under a Redis lock, on any Redis since 1.2. It
// shows who holds a lock, frees a stuck one, tells what a server can do, and
// demonstrates what goes wrong without a lock.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/spf13/cobra"
)

func main() {
	os.Exit(execute(conceal(os.Args)[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit status. The streams are
// files, not readers and writers, because a child inherits them.
func execute(args []string, in, out, errs *os.File) int {
	a := &app{in: in, out: out, errs: errs, known: &cache{}}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.Execute()
	if err == nil {
		return 0
	}
	f := a.explain(err)
	f.print(errs)
	return f.status
}

// An app is one run of the program.
type app struct {
	in, out, errs *os.File
	options
	known   *cache   // what servers answered: see remembered
	owner   owner    // of the locks that this command takes
	caution *caution // run's; nil: nobody is warned

	observer compat.Observer // of the locks; run's metrics
}

// say tells something on stderr: stdout is for answers, and for the child.
func (a *app) say(format string, args ...any) {
	text := screen.Escaped(scrubbed(fmt.Sprintf(format, args...)))
	io.WriteString(a.errs, "setnxlock: "+text+"\n") //nolint:errcheck // who would be told?
}

// print is the one form that failures have: a sentence, then a hint.
func (f *failure) print(w io.Writer) {
	if f.err == nil {
		return // the status says it all
	}
	fmt.Fprintf(w, "setnxlock: %s\n", screen.Escaped(scrubbed(sentence(f.err))))
	if f.hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", screen.Escaped(scrubbed(f.hint)))
	}
}

// sentence is an error on one line, each of its parts once.
func sentence(err error) string {
	var parts []string
	for line := range strings.SplitSeq(strings.ReplaceAll(err.Error(), "setnxlock: ", ""), "\n") {
		if all := strings.Join(parts, "; "); !strings.Contains(all, line) {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}

// usageErrors marks what cobra itself finds wrong, flags and arguments, as
// wrong usage: everything that is not a failure by the time it reaches explain.
func usageErrors(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return usage(cmd, check(cmd, args))
	}
}

func usage(cmd *cobra.Command, err error) error {
	if err == nil || errors.As(err, new(*failure)) {
		return err
	}
	if what, _, of := strings.Cut(err.Error(), " in -"); of && strings.HasPrefix(what, "unknown shorthand") {
		err = errors.New(what) // the rest may be a password: -asecret, as redis-cli has it
	}
	return &failure{status: statusUsage, err: err, hint: "see " + cmd.CommandPath() + " --help"}
}
