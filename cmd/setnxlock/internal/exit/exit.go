// Package exit is how a command line of setnxlock ends: its status, and what is said of it.
package exit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The statuses that all commands share, from sysexits.h and from the shell.
const (
	Wrong    = 64  // EX_USAGE
	Software = 70  // EX_SOFTWARE
	Signal   = 128 // the shell's: plus the signal's number
)

// A Failure is an error with the exit status it ends the program with. With a nil Err it is a status
// that needs no words: the child's.
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

// Because is a failure, which is said in err's words.
func Because(status int, err error, hint string) *Failure { return &Failure{status, err, hint} }

// Misuse returns the failure of a command line that can't be meant so.
func Misuse(text, hint string) *Failure { return Because(Wrong, errors.New(text), hint) }

// With is a status without words; nil if it is 0.
func With(status int) error {
	if status == 0 {
		return nil
	}
	return &Failure{Status: status}
}

// Usage is wrong usage of cmd; nil if nothing is wrong.
func Usage(cmd *cobra.Command, err error) error {
	if err == nil || errors.As(err, new(*Failure)) {
		return err
	}
	if what, _, of := strings.Cut(err.Error(), " in -"); of && strings.HasPrefix(what, "unknown shorthand") {
		err = errors.New(what) // the rest may be a password: -asecret, as redis-cli has it
	}
	return &Failure{Wrong, err, "see " + cmd.CommandPath() + " --help"}
}

// Help ends a command that is nothing without one of its subcommands.
func Help(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	cmd.Help() //nolint:errcheck // the status is what matters
	return With(Wrong)
}

// Fit has cmd and the commands below it take wrong arguments for wrong usage, none for right where a
// command does not say which it takes, and complete none by the names of files.
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

// Alone is the annotations of a command that speaks to no server.
func Alone(status string) map[string]string {
	return map[string]string{"status": status, "alone": "yes"}
}
