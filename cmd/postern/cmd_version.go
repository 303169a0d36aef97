package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/wire"
)

// version is set by the linker in a release build; else the build information has it.
var version string

// software is what peers are told.
func software() string { return "postern/" + buildVersion() }

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// buildRevision is the commit that the build was made of, "unknown" where nothing tells.
func buildRevision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

func newVersion(std stdio) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and the wire versions it speaks",
		Example: `  postern version --json`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(std.out).Encode(map[string]any{
					"version": buildVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
					"wire_min": wire.Versions.Min, "wire_max": wire.Versions.Max,
				})
			}
			fmt.Fprintf(std.out, "postern %s (%s %s/%s), wire versions %d to %d\n",
				buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH, wire.Versions.Min, wire.Versions.Max)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
