// Package exit is how a command line of setnxlock ends: its status, and what is said of it.
package exit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The statuses of all commands, from sysexits.h and from the shell.
const (
	Wrong    = 64  // EX_USAGE
	Software = 70  // EX_SOFTWARE
	Signal   = 128 // the shell's: plus the signal's number
)

// A Failure is an error with the program's exit status. A nil Err means a status without words: the child's.
type Failure struct {
	Status int
	Err    error
	Hint   string // what the user can do
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("exit status %d", f.Status)
	}
	return f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// Because makes a failure in err's words.
func Because(status int, err error, hint string) *Failure { return &Failure{status, err, hint} }

// Misuse makes the failure of a wrong command line.
func Misuse(text, hint string) *Failure { return Because(Wrong, errors.New(text), hint) }

// With makes a failure without words; nil for status 0.
func With(status int) error {
	if status == 0 {
		return nil
	}
	return &Failure{Status: status}
}

// Usage makes err a failure of wrong usage of cmd; nil for nil.
func Usage(cmd *cobra.Command, err error) error {
	if err == nil || errors.As(err, new(*Failure)) {
		return err
	}
	if what, _, of := strings.Cut(err.Error(), " in -"); of && strings.HasPrefix(what, "unknown shorthand") {
		err = errors.New(what) // the rest may be a password: -asecret, as redis-cli has it
	}
	return &Failure{Wrong, err, "see " + cmd.CommandPath() + " --help"}
}

// Help prints the help of a command that needs a subcommand.
func Help(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	cmd.Help() //nolint:errcheck // the status is what matters
	return With(Wrong)
}

// Fit makes wrong arguments of cmd and the commands below wrong usage. A command that does not say which it
// takes gets none. None completes names of files.
func Fit(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return Usage(cmd, check(cmd, args)) }
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		Fit(below)
	}
}

// Complete tells shells the values of a flag. With none there is nothing to offer, not even the
// names of files.
func Complete(cmd *cobra.Command, flag string, values []string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) //nolint:errcheck // the flag exists
}

// Alone annotates a command without a server.
func Alone(status string) map[string]string {
	return map[string]string{"status": status, "alone": "yes"}
}
