package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
)

// beginExecutorRekey makes the next key.
func beginExecutorRekey(state string, overlap time.Duration) (keys.PublicKey, error) {
	path := filepath.Join(state, executorKeyName)
	err := changeRekeyFile(state, func(f *rekeyFile) error {
		if len(f.retire) > 0 {
			return errors.New("the relay does not know of the last replacement yet: let the executor run until its log says that the key has been replaced")
		}
		if _, err := os.Lstat(path + nextSuffix); err == nil {
			return errors.New("a replacement is under way already: end it with --finish")
		}
		*f = rekeyFile{overlap: overlap}
		return nil
	})
	if err != nil {
		return keys.PublicKey{}, err
	}
	return beginRekey(path, keys.Executor)
}

// finishExecutorRekey puts the next key in the place of the current one. What the relay has to be told is written
// down before. A key that the relay does not admit yet would lock the executor out.
func finishExecutorRekey(state string) error {
	path := filepath.Join(state, executorKeyName)
	return changeRekeyFile(state, func(f *rekeyFile) error {
		old, err := keys.ReadFile(path, keys.Executor)
		if err != nil {
			return err
		}
		next, err := readNextKey(path, keys.Executor)
		switch {
		case err != nil:
			return err
		case next == nil:
			return errors.New("no replacement is under way: begin one without --finish")
		case next.Public() != f.admitted:
			return errors.New("the relay does not admit the next key yet: let the executor run until its log says that both are served")
		}
		f.retire = []keys.PublicKey{old.Public()}
		if err := f.write(filepath.Join(state, rekeyFileName)); err != nil {
			return err
		}
		_, _, err = finishRekey(path, keys.Executor)
		return err
	})
}

func newExecutorRekey(std stdio) *cobra.Command {
	var state string
	var overlap time.Duration
	var finish bool
	cmd := &cobra.Command{
		Use:   "rekey --state DIR [--overlap D] [--finish]",
		Short: "Replace this executor's key",
		Long: `Replace this executor's key, while it runs or not. The next key is made, and for the overlap both
are served: each client that comes with the old one is told the next one, checks that whoever has it says the
same, and puts it into its known_executors. After that much running time, or with --finish at once (but no
earlier than the relay admits the next key), the next key takes the place of the old one, which is gone then. A client that was not here in between has to
learn the new key by a join token, or by hand with postern known.

When a key may have been stolen this is not the way, since a thief could do the same: remove the
key at the relay and at the clients, and join anew with an empty state folder.

The next public key is printed.`,
		Example: `  postern executor rekey --state /var/lib/postern-executor`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			if state == "" {
				return errors.New("--state is missing: name the executor's state folder")
			}
			if overlap <= 0 {
				return fmt.Errorf("--overlap %v: want a time above zero", overlap)
			}
			if finish {
				return failed(finishExecutorRekey(state))
			}
			next, err := beginExecutorRekey(state, overlap)
			if err != nil {
				return failed(err)
			}
			fmt.Fprintln(std.out, next)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "the executor's state folder")
	f.DurationVar(&overlap, "overlap", 7*24*time.Hour, "how long both keys are served, in running time of the executor")
	f.BoolVar(&finish, "finish", false, "end the overlap now")
	return cmd
}
