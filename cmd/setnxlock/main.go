// Command setnxlock runs a job under a Redis lock, on any Redis since 1.2. It
// shows who holds a lock, frees a stuck one, tells what a server can do, and
// demonstrates what goes wrong without a lock.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat"
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
	tell(errs, f)
	return f.Status
}

// An app is one run of the program.
type app struct {
	in, out, errs *os.File
	options
	known    *cache // what servers answered: see remembered
	owner    owner  // of the locks that this command takes
	cautious bool   // dangers are said
	fence    bool   // is drawn with each lock
	hold     time.Duration
	quiet    bool // what went wrong is said, and nothing else
	holders  int  // run's --limit; 0: it is a lock

	observer compat.Observer // of the locks; run's metrics

	deploymentName string   // as messages call it
	only           *address // the only server, if there is one
}

// say tells something on stderr: stdout is for answers, and for the child.
func (a *app) say(format string, args ...any) {
	text := screen.Escaped(scrubbed(fmt.Sprintf(format, args...)))
	io.WriteString(a.errs, "setnxlock: "+text+"\n") //nolint:errcheck // who would be told?
}

// print writes a page to stdout. A terminal obeys nothing in it.
func (a *app) print(page string) error {
	_, err := io.WriteString(screen.Page{W: a.out}, page)
	return err
}

// tell prints a failure in its one form: a sentence, then a hint.
func tell(w io.Writer, f *exit.Failure) {
	if f.Err == nil {
		return // the status says it all
	}
	fmt.Fprintf(w, "setnxlock: %s\n", screen.Escaped(scrubbed(sentence(f.Err))))
	if f.Hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", screen.Escaped(scrubbed(f.Hint)))
	}
}

// sentence puts an error on one line, each of its parts once.
func sentence(err error) string {
	var parts []string
	for line := range strings.SplitSeq(strings.ReplaceAll(inWords(err), "setnxlock: ", ""), "\n") {
		if all := strings.Join(parts, "; "); !strings.Contains(all, line) {
			parts = append(parts, line)
		}
	}
	return strings.Join(parts, "; ")
}
