package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// logsFlags are the flags of `postern logs`.
type logsFlags struct {
	attachFlags
	follow bool
}

func newLogs(std stdio) *cobra.Command {
	var o logsFlags
	cmd := &cobra.Command{
		Use:   "logs [flags] EXECUTOR ID",
		Short: "Print the output of an exec",
		Long: `Print what is kept of the output of an exec, to stdout and stderr as it was written, and exit
with 0 whatever the command did. ID may be the beginning of one, of at least 4 digits. What is
no longer kept is said on stderr.`,
		Example: `  postern logs builder 5f3c
  postern logs -f builder 5f3c | grep -i warning
  postern logs --json builder 5f3c | jq -r 'select(.event=="output").data'`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.escape = "none"
			word, err := o.check(args)
			if err != nil {
				return err
			}
			l := newLink(args[0], std, o.quiet)
			return onExecutor(args[0], func(env client.Environment) error {
				return underSignals(func(ctx context.Context) error { return printLog(ctx, std, env, l, word, o) })
			}, o.reconnect.tune(l))
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the command ends")
	f.Uint64Var(&o.after, "after", 0, "begin after this number of the log, which --json shows as seq")
	f.StringVar(&o.owner, "owner", "", "whose exec, where several have one of this id")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing of postern's own but errors")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line: started, output, gap, exit")
	o.reconnect.add(f)
	return cmd
}

func printLog(ctx context.Context, std stdio, env client.Environment, l *link, word execWord, o logsFlags) error {
	process, err := attach(ctx, env.Backend, word, wire.AttachOptions{After: o.after, Owner: o.owner})
	if err != nil {
		return refused(env.Name, err)
	}
	defer process.Close()
	info := process.Info()
	to, err := o.sink(std, l.notes, env.Name, info)
	f := following{process: process, after: o.after, to: to}
	var end outcome
	switch {
	case err != nil:
		end.broken = err
	case o.follow:
		end = f.run(ctx)
	case o.after < info.Last:
		f.until = info.Last
		end = f.run(ctx)
	}
	if end.err != nil || end.broken != nil {
		return ended{outcome: end, name: env.Name, info: info}.exit()
	}
	if end.status != nil && end.status.Cause == wire.CauseExecutorLost {
		l.notes.say("%s", fmt.Sprintf("%s: executor restarted; outcome unknown", env.Name))
	}
	return nil
}
