package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return a.pageCommand("version", "Print the version",
		"Prints the version of setnxlock, the commit if it was built from a checkout, and what it was built with.", func(*cobra.Command) string {
			module, commit := build()
			return fmt.Sprintf("setnxlock %s (%s%s, %s/%s)\n", module, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		})
}

// version returns the module's version, as go install records it; a build from a checkout has its commit in
// it.
func version() string {
	module, _ := build()
	return module
}

// build reads the version of this program's module, and the commit of a checkout.
func build() (module, commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)", ""
	}
	said := map[string]string{}
	for _, s := range info.Settings {
		said[s.Key] = s.Value
	}
	if commit = said["vcs.revision"]; commit != "" {
		commit = "commit " + commit + map[bool]string{true: " with changes, ", false: ", "}[said["vcs.modified"] == "true"]
	}
	return cmp.Or(info.Main.Version, "(devel)"), commit
}
