package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/wire"
)

func newDev(std stdio) *cobra.Command {
	var o devOptions
	var mode string
	var network networkFlags
	var logs logFlags
	cmd := &cobra.Command{
		Use:   "dev --state DIR",
		Short: "Run a relay and an executor named dev here, to try things",
		Long: `Run a relay and an executor named dev in one process, to try things and for tests. DIR
is made with relay/, executor/ and client/, and the three know each other. A line that begins
with "ready" is printed when a client can connect.`,
		Example: `  postern dev --state /tmp/pdev --workspace .
  POSTERN_HOME=/tmp/pdev/client postern exec dev -- uname -a`,
		Args: noWords,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if o.log, err = logs.logger(std.err); err != nil {
				return err
			}
			if o.state == "" {
				return fmt.Errorf("--state is missing: name a folder for the keys")
			}
			if err := checkListen(o.listen); err != nil {
				return err
			}
			if err := o.watched.check(); err != nil {
				return err
			}
			if o.max, err = wire.ParseSandboxMode(mode); err != nil {
				return fmt.Errorf("--sandbox-max: %w", err)
			}
			if o.network, o.permit, err = network.get(); err != nil {
				return err
			}
			n, err := openDev(o)
			if err != nil {
				return failf(exitFailed, "%v", err)
			}
			defer n.close()
			ctx, stop := untilSignal()
			defer stop()
			go func() {
				select {
				case <-n.ready:
					fmt.Fprintf(std.out, "ready: POSTERN_HOME=%s postern exec %s -- CMD   (relay %s)\n", n.home.path, devName, n.relay.url)
				case <-ctx.Done():
				}
			}()
			if err := n.run(ctx); err != nil {
				return failf(exitFailed, "%v", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.state, "state", "", "folder for the keys, made if it does not exist")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "UDP address of the relay; port 0 picks a free one")
	f.StringArrayVar(&o.workspaces, "workspace", nil, "folder that commands may work in; default is DIR/workspace")
	f.StringVar(&mode, "sandbox-max", "workspace-write", "the most a client may ask for: read-only, workspace-write or full-access")
	network.add(f)
	o.watched.add(f)
	logs.add(cmd)
	return cmd
}
