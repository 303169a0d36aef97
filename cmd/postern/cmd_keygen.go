package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
)

// keyKinds are the kinds as the command line names them.
var keyKinds = map[string]keys.Kind{"relay": keys.Relay, "executor": keys.Executor, "client": keys.Client}

func newKeygen(std stdio) *cobra.Command {
	var kind, out string
	cmd := &cobra.Command{
		Use:   "keygen --kind relay|executor|client --out FILE",
		Short: "Make a key and write it to a new file",
		Long: `Make a key and write it to a new file, which only its owner can read. A file that
exists is never overwritten; a folder that does not exist is made, closed to others.
The public key is printed.`,
		Example: `  postern keygen --kind client --out ~/.config/postern/client.key`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			if kind == "" {
				return fmt.Errorf("--kind is missing: want relay, executor or client")
			}
			k, ok := keyKinds[kind]
			if !ok {
				return fmt.Errorf("--kind %q: want relay, executor or client", kind)
			}
			if out == "" {
				return fmt.Errorf("--out is missing: name the file to write the key to")
			}
			key, err := keys.Generate(k)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(out), 0o700)
			}
			if err == nil {
				err = keys.WriteFile(out, key)
			}
			if err != nil {
				return failf(exitFailed, "%v", err)
			}
			fmt.Fprintln(std.out, key.Public())
			return nil
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "relay, executor or client")
	cmd.Flags().StringVar(&out, "out", "", "the file to write")
	return cmd
}

func newPubkey(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:     "pubkey FILE",
		Short:   "Print the public key of a key file",
		Example: `  postern pubkey /var/lib/postern-executor/executor.key`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one key file, got %d words", len(args))
			}
			key, err := keys.ReadAnyFile(args[0])
			if err != nil {
				return failf(exitFailed, "%v", err)
			}
			fmt.Fprintln(std.out, key.Public())
			return nil
		},
	}
}
