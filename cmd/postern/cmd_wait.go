package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// waitFlags are the flags of `postern wait`.
type waitFlags struct {
	owner     string
	quiet     bool
	json      bool
	reconnect patienceFlag
}

func newWait(std stdio) *cobra.Command {
	var o waitFlags
	cmd := &cobra.Command{
		Use:   "wait [flags] EXECUTOR ID...",
		Short: "Wait until execs have ended",
		Long: `Wait until every named exec has ended, and exit as the last one named does, with the codes of
exec. ID may be the beginning of one, of at least 4 digits. Nothing is printed but errors;
--json prints how each ended, in the order in which they are named.`,
		Example: `  id=$(postern exec -d builder -- make -j4)
  postern wait builder $id && echo built`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("want an executor and one exec id or more, got %d words", len(args))
			}
			words, err := parseExecWords(args[1:])
			if err == nil {
				err = o.reconnect.check()
			}
			if err != nil {
				return err
			}
			l := newLink(args[0], std, o.quiet)
			return onExecutor(args[0], func(env client.Environment) error {
				return underSignals(func(ctx context.Context) error { return waitFor(ctx, std, env, words, o) })
			}, o.reconnect.tune(l))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.owner, "owner", "", "whose execs, where several have one of this id")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing of postern's own but errors")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line: how each ended")
	o.reconnect.add(f)
	return cmd
}

// waitFor attaches to all before it waits for any, so that a wrong id shows at once.
func waitFor(ctx context.Context, std stdio, env client.Environment, words []execWord, o waitFlags) error {
	var processes []wire.ExecProcess
	for _, word := range words {
		// Beyond the end of the log, so that nothing of it comes.
		p, err := attach(ctx, env.Backend, word, wire.AttachOptions{After: math.MaxUint64, Owner: o.owner})
		if err != nil {
			return refused(env.Name, err)
		}
		defer p.Close()
		processes = append(processes, p)
	}
	var last error
	lines := newJSONLines(std.out)
	for _, p := range processes {
		status, err := p.Wait(ctx)
		end := ended{name: env.Name, info: p.Info(), outcome: outcome{status: &status, err: err}, quiet: o.quiet}
		if last = end.exit(); !o.json {
			continue
		}
		line := waitedJSON{ID: p.ID().String(), Executor: env.Name}
		if err != nil {
			line.Error = newErrorJSON(err)
		} else {
			exit := newExitJSON(status)
			line.exitJSON = &exit
		}
		if err := lines.write(line); err != nil {
			return failf(exitLost, "%v", err)
		}
	}
	return last
}
