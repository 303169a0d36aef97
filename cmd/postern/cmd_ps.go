package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// psFlags are the flags of `postern ps`.
type psFlags struct{ all, quiet, json bool }

func newPs(std stdio) *cobra.Command {
	var o psFlags
	cmd := &cobra.Command{
		Use:   "ps [flags] EXECUTOR",
		Short: "List the execs of an executor",
		Long: `List the execs that run on an executor, in order of start: your own, and those of others where
its authorized_clients has view=all for you. An exec that nobody controls is "detached".`,
		Example: `  postern ps builder
  postern ps -a builder
  postern ps -aq builder | xargs postern rm builder`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one executor, got %d words", len(args))
			}
			return onExecutor(args[0], func(env client.Environment) error {
				return underSignals(func(ctx context.Context) error { return listExecs(ctx, std.out, env, o) })
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "also those that have ended")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the ids only")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

func listExecs(ctx context.Context, out io.Writer, env client.Environment, o psFlags) error {
	infos, err := env.Backend.List(ctx)
	if err != nil {
		return refused(env.Name, err)
	}
	if !o.all {
		infos = slices.DeleteFunc(infos, func(i wire.ExecInfo) bool { return i.Exit != nil })
	}
	slices.SortStableFunc(infos, func(a, b wire.ExecInfo) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	switch {
	case o.json:
		lines := newJSONLines(out)
		for _, i := range infos {
			if err := lines.write(newExecJSON(env.Name, i)); err != nil {
				return err
			}
		}
	case o.quiet:
		for _, i := range infos {
			fmt.Fprintln(out, i.ID)
		}
	default:
		return execTable(out, infos, time.Now())
	}
	return nil
}

// execTable is for people. Whose the execs are is shown where they are not all of one.
func execTable(out io.Writer, infos []wire.ExecInfo, now time.Time) error {
	several := slices.ContainsFunc(infos, func(i wire.ExecInfo) bool { return i.Owner != infos[0].Owner })
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(id, owner, started, status, command string) {
		if several {
			id += "\t" + owner
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", id, started, status, command)
	}
	row("ID", "OWNER", "STARTED", "STATUS", "COMMAND")
	for _, i := range infos {
		age := units.HumanDuration(max(0, now.Sub(i.Started))) + " ago"
		row(i.ID.String(), oneLine(i.Owner), age, execStatus(i), oneLine(i.Command))
	}
	return w.Flush()
}

// execState is a word for programs.
func execState(i wire.ExecInfo) string {
	switch {
	case i.Exit != nil:
		return "ended"
	case i.Attached:
		return "running"
	}
	return "detached"
}

// execStatus is the same for people, and how it ended.
func execStatus(i wire.ExecInfo) string {
	e := i.Exit
	switch {
	case e == nil:
		return execState(i)
	case e.Cause == wire.CauseExited:
		return fmt.Sprintf("exited %d", e.Code)
	case e.Cause == wire.CauseSignalled:
		return "signal " + oneLine(string(e.Signal))
	}
	return e.Cause.String()
}
