package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// killFlags are the flags of `postern kill`.
type killFlags struct {
	acting
	signal string
	grace  time.Duration
}

func newKill(std stdio) *cobra.Command {
	var o killFlags
	cmd := &cobra.Command{
		Use:   "kill [flags] EXECUTOR ID...",
		Short: "End execs, or send them a signal",
		Long: `End execs: TERM goes to everything that the command has started, and KILL to what is left of it
after --grace. With -s only that signal is sent, to the command's process group. Either is on
its way when this returns; postern wait tells when the command has ended. ID may be the
beginning of one, of at least 4 digits.

Exit codes: 0 when all were reached; 1 when one had ended already; 125 when the executor
refused or there is no such exec; 255 when the connection was lost meanwhile.`,
		Example: `  postern kill builder 5f3c
  postern kill -s HUP builder 5f3c`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("want an executor and one exec id or more, got %d words", len(args))
			}
			words, err := parseExecWords(args[1:])
			if err != nil {
				return err
			}
			sig, err := o.parse()
			if err != nil {
				return err
			}
			return onExecutor(args[0], func(env client.Environment) error {
				return underSignals(func(ctx context.Context) error {
					return o.each(ctx, std, env, words, func(ctx context.Context, ref wire.ExecRef) (actedJSON, error) {
						if sig != "" {
							return actedJSON{Signal: string(sig)}, env.Backend.Signal(ctx, ref, sig)
						}
						return actedJSON{Terminating: true}, env.Backend.Terminate(ctx, ref, o.grace)
					})
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.signal, "signal", "s", "", "send this signal, such as HUP, instead of ending the exec")
	f.DurationVar(&o.grace, "grace", 0, "between TERM and KILL (default: what exec --kill-after said, 5s)")
	o.add(f)
	return cmd
}

func (o killFlags) parse() (wire.Signal, error) {
	switch {
	case o.grace < 0:
		return "", fmt.Errorf("--grace %v: a time cannot be negative", o.grace)
	case o.signal == "":
		return "", nil
	case o.grace > 0:
		return "", errors.New("--grace does not go together with -s: no KILL follows that signal")
	}
	return parseSignal(o.signal)
}

// parseSignal takes a name with or without SIG, in either case, and a number of Linux.
func parseSignal(s string) (wire.Signal, error) {
	sig := wire.Signal(strings.TrimPrefix(strings.ToUpper(s), "SIG"))
	if n, err := strconv.Atoi(s); err == nil {
		sig = wire.SignalNumber(n)
	}
	if sig.Number() == 0 {
		return "", fmt.Errorf("-s %q: want a signal such as TERM, HUP or KILL", s)
	}
	return sig, nil
}
