package main

import (
	"fmt"
	"os"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const variable = "variable" // the annotation of a flag that has one

// variableOf names the environment variable that a flag is read from where it is not given.
func variableOf(f *pflag.FlagSet, flag, name string) {
	f.SetAnnotation(flag, variable, []string{name}) //nolint:errcheck // the flag is there
	f.Lookup(flag).Usage += " [$" + name + "]"
}

// fromEnvironment sets the flags of cmd that have a variable and were not given. They do not count as
// given: whoever pastes a hint has the variable, too.
func fromEnvironment(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := f.Annotations[variable]
		if len(name) == 0 || f.Changed || err != nil {
			return
		}
		if text := os.Getenv(name[0]); text != "" && f.Value.Set(text) != nil {
			err = exit.Usage(cmd, fmt.Errorf("%s is no value of --%s", name[0], f.Name))
		}
	})
	return err
}
