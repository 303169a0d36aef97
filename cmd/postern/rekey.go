package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
)

func newRelayRekey(std stdio) *cobra.Command {
	var state string
	var finish bool
	cmd := &cobra.Command{
		Use:   "rekey --state DIR [--finish]",
		Short: "Replace the relay's key",
		Long: `Replace the relay's key, in two steps, while the relay runs or not. The first makes DIR/relay.key.next:
from then on the relay accepts both keys and tells every peer, connected or to come, the next one, which puts
it into its own files. Wait until all have been here; then --finish puts the next key in the place of the
current one, which is accepted no longer. Who was not here in between has to get the new address by hand.

The next public key is printed.`,
		Example: `  postern relay rekey --state /var/lib/postern-relay
  postern relay rekey --state /var/lib/postern-relay --finish`,
		Args: noWords,
		RunE: func(*cobra.Command, []string) error {
			if state == "" {
				return errors.New("--state is missing: name the relay's state folder")
			}
			path := filepath.Join(state, "relay.key")
			if !finish {
				next, err := beginRekey(path, keys.Relay)
				if err != nil {
					return failed(err)
				}
				fmt.Fprintln(std.out, next)
				return nil
			}
			_, current, err := finishRekey(path, keys.Relay)
			if err != nil {
				return failed(err)
			}
			fmt.Fprintln(std.out, current)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "the relay's state folder")
	cmd.Flags().BoolVar(&finish, "finish", false, "put the next key in the place of the current one")
	return cmd
}
