package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/sandbox"
)

func newSandbox(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sandbox",
		Short:   "Find out whether this machine can run the sandbox",
		Example: `  postern sandbox check`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSandboxCheck(std))
	return cmd
}

func newSandboxCheck(std stdio) *cobra.Command {
	var asJSON, reduced bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try each layer of the sandbox and print what works",
		Long: `Try each layer of the sandbox for real, in a child, and print whether it works, and if
not why and what to do about it. The exit code is 0 when the sandbox works as a whole.`,
		Example: `  postern sandbox check
  postern sandbox check --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			report := sandbox.Probe(context.Background(), sandbox.Options{Reduced: reduced})
			if err := printReport(std, report, asJSON); err != nil {
				return failf(exitFailed, "%v", err)
			}
			if !report.OK() {
				return &exitError{exitFailed, ""}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&reduced, "reduced", false, "try the reduced sandbox instead")
	return cmd
}

func printReport(std stdio, report sandbox.Report, asJSON bool) error {
	if asJSON {
		type layer struct {
			Name     string `json:"name"`
			Works    bool   `json:"works"`
			Optional bool   `json:"optional,omitempty"`
			Detail   string `json:"detail,omitempty"`
			Reason   string `json:"reason,omitempty"`
			Remedy   string `json:"remedy,omitempty"`
		}
		out := struct {
			Works  bool    `json:"works"`
			Layers []layer `json:"layers"`
		}{Works: report.OK()}
		for _, l := range report.Layers {
			out.Layers = append(out.Layers, layer{l.Name, l.OK, l.Optional, l.Detail, l.Reason, l.Remedy})
		}
		return json.NewEncoder(std.out).Encode(out)
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LAYER\tWORKS\tDETAIL\tWHAT TO DO")
	for _, l := range report.Layers {
		works := "yes"
		switch {
		case !l.OK && l.Optional:
			works = "no (optional)"
		case !l.OK:
			works = "no"
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\t%s\n", l.Name, works, l.Detail, l.Reason, l.Remedy)
	}
	return w.Flush()
}
