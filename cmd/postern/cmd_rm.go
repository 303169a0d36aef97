package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// rmFlags are the flags of `postern rm`.
type rmFlags struct {
	acting
	force bool
}

func newRm(std stdio) *cobra.Command {
	var o rmFlags
	cmd := &cobra.Command{
		Use:   "rm [flags] EXECUTOR ID...",
		Short: "Forget the output and the result of execs",
		Long: `Forget the output and the result of execs that have ended; an executor does so by itself after
a time. The ids stay taken: the same exec is not run again. ID may be the beginning of one,
of at least 4 digits. An exec that runs is refused, or ended first with -f.

Exit codes: 0 when all are removed; 1 when one runs; 125 when the executor refused or there
is no such exec; 255 when the connection was lost meanwhile.`,
		Example: `  postern rm builder 5f3c
  postern ps -aq builder | xargs postern rm -f builder`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("want an executor and one exec id or more, got %d words", len(args))
			}
			words, err := parseExecWords(args[1:])
			if err != nil {
				return err
			}
			return onExecutor(args[0], func(env client.Environment) error {
				return underSignals(func(ctx context.Context) error {
					return o.each(ctx, std, env, words, func(ctx context.Context, ref wire.ExecRef) (actedJSON, error) {
						if err := o.remove(ctx, env, ref); err != nil {
							return actedJSON{}, err
						}
						return actedJSON{Removed: true}, nil
					})
				})
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.force, "force", "f", false, "end the command first: TERM, then KILL")
	o.add(f)
	return cmd
}

func (o rmFlags) remove(ctx context.Context, env client.Environment, ref wire.ExecRef) error {
	err := env.Backend.Remove(ctx, ref)
	switch {
	case wire.CodeOf(err) != wire.CodeBusy:
		return err
	case !o.force:
		return wire.Errorf(wire.CodeBusy, "%v (postern kill %s %s, or rm -f)", err, env.Name, ref.ID)
	}
	if err := env.Backend.Terminate(ctx, ref, 0); err != nil && wire.CodeOf(err) != wire.CodeEnded {
		return err
	}
	p, err := env.Backend.Attach(ctx, ref.ID, wire.AttachOptions{After: math.MaxUint64, Owner: ref.Owner})
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.Wait(ctx); err != nil {
		return err
	}
	// The exit status is told a moment before the executor has done with the exec.
	for pause := time.Millisecond; ; pause *= 2 {
		err := env.Backend.Remove(ctx, ref)
		if wire.CodeOf(err) != wire.CodeBusy || pause > time.Second {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
