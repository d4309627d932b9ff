package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Long:        "Prints the version of setnxlock, the commit if it was built from a checkout, and what it was built with.",
		Annotations: map[string]string{"alone": "yes"},
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.out, "setnxlock %s (%s%s, %s/%s)\n", version(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is the module's, as go install records it; a build from a checkout
// has its commit in it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// commit is what a build from a checkout was made of; "" for one by go install.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	said := map[string]string{}
	for _, s := range info.Settings {
		said[s.Key] = s.Value
	}
	rev := said["vcs.revision"]
	if rev == "" {
		return ""
	}
	if said["vcs.modified"] == "true" {
		rev += " with changes"
	}
	return "commit " + rev + ", "
}
