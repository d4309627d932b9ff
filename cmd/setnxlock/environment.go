package main

import (
	"fmt"
	"os"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const variable = "variable" // the annotation of a flag that has one

// variableOf names the environment variable of a flag, for command lines without the flag.
func variableOf(f *pflag.FlagSet, flag, name string) {
	f.SetAnnotation(flag, variable, []string{name}) //nolint:errcheck // the flag is there
	f.Lookup(flag).Usage += " [$" + name + "]"
}

// positive refuses another duration for a flag.
func positive(flag string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return fmt.Errorf("--%s must be positive, got %v", flag, d)
}

// fromEnvironment sets the flags of cmd from their variables, unless they were given. They do not count as
// given: a pasted hint finds the variable, too.
func fromEnvironment(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := f.Annotations[variable]
		if len(name) == 0 || f.Changed || err != nil {
			return
		}
		if text := os.Getenv(name[0]); text != "" && f.Value.Set(text) != nil {
			err = exit.Usage(cmd, fmt.Errorf("$%s does not fit --%s", name[0], f.Name))
		}
	})
	return err
}
