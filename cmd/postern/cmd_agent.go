package main

import (
	"time"

	"github.com/spf13/cobra"
)

// newAgent is what exec starts in the background.
func newAgent(std stdio) *cobra.Command {
	o := agentOptions{}
	var logs logFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Stay connected in the background, so that the next exec finds a connection",
		Long: `Stay connected in the background, so that the next exec finds a connection to the relay and a
session with the executor. postern exec starts one by itself, and it ends when nobody has used it for a while, when its
socket (agent.sock in the client's folder) is removed, or when the client's key is another one. It can do
no more than the client's key, and nobody but its user can speak with it.

POSTERN_AGENT=off in the environment: neither start one nor use it.`,
		Example: `  postern agent --idle 1h
  POSTERN_AGENT=off postern exec builder -- true`,
		Args: noWords,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if o.log, err = logs.logger(std.err); err != nil {
				return err
			}
			h, err := findHome()
			if err != nil {
				return failf(exitFailed, "%v", err)
			}
			endCollector.use()
			shareProcessors()
			ctx, stop := untilSignal()
			defer stop()
			if err := h.runAgent(ctx, o); err != nil {
				return failf(exitFailed, "%v", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.idle, "idle", 10*time.Minute, "end when nobody was served for this long")
	f.StringVar(&o.warm, "warm", "", "executor to make a session with at once")
	logs.add(cmd)
	return cmd
}
