package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
)

func newKnown(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "known add|ls|rm|replace",
		Short: "Say which executors this client trusts, under which names",
		Long: `Say which executors this client trusts, under which names: edit known_executors in the
client's folder, which is a text file of lines "ALIAS exec_... postern://HOST:PORT#relay_...".
Executors that join with a token of this client get there by themselves.`,
		Example: `  postern known ls
  postern known add builder exec_... postern://relay.example.org:4433#relay_...
  postern known rm builder`,
		RunE: wantVerb,
	}
	cmd.AddCommand(newKnownAdd(), newKnownList(std), newKnownRemove(std), newKnownReplace())
	return cmd
}

// wantVerb is for a command that only has subcommands.
func wantVerb(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown verb %q: want %s", args[0], cmd.Use)
	}
	return cmd.Help()
}

func newKnownAdd() *cobra.Command {
	return &cobra.Command{
		Use:     "add ALIAS exec_... postern://HOST:PORT#relay_...",
		Short:   "Trust an executor's key under a name",
		Example: `  postern known add builder exec_... postern://relay.example.org:4433#relay_...`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return fmt.Errorf("want an alias, an executor's key and a relay's address, got %d words", len(args))
			}
			e := keys.KnownExecutor{Alias: args[0]}
			var err error
			if e.Key, err = keys.ParsePublicKey(args[1]); err != nil {
				return err
			}
			if e.Relay, err = keys.ParseRelayURL(args[2]); err != nil {
				return err
			}
			h, err := findHome()
			if err == nil {
				err = os.MkdirAll(h.path, 0o700)
			}
			if err == nil {
				err = keys.AddKnownExecutor(h.join(knownFile), e)
			}
			return failed(err)
		},
	}
}

func newKnownList(std stdio) *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the executors that this client trusts",
		Example: `  postern known ls --json`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			h, err := findHome()
			if err != nil {
				return failed(err)
			}
			known, err := h.known()
			if err != nil {
				return failed(err)
			}
			if json {
				lines := newJSONLines(std.out)
				for _, e := range known.All() {
					if err := lines.write(knownJSON{e.Alias, e.Key.String(), e.Relay.String()}); err != nil {
						return failed(err)
					}
				}
				return nil
			}
			return failed(knownTable(std.out, known))
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "print one JSON object a line")
	return cmd
}

// knownJSON is one line of known_executors.
type knownJSON struct {
	Alias    string `json:"alias"`
	Executor string `json:"executor"`
	Relay    string `json:"relay"`
}

func knownTable(out io.Writer, known *keys.KnownExecutors) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "ALIAS\tEXECUTOR\tRELAY")
	for _, e := range known.All() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.Alias, e.Key, e.Relay.Address())
	}
	return w.Flush()
}

// distrust takes an executor out of known_executors, and before that the tokens that prove its key.
func (h home) distrust(std stdio, alias string) error {
	known, err := h.known()
	if err != nil {
		return err
	}
	pairings, err := h.pairings()
	if err != nil {
		return err
	}
	entry, listed := known.Lookup(alias)
	for _, p := range pairings {
		// A pinned key that is not known any more may be the one that the executor had before it was rekeyed.
		proves := slices.ContainsFunc(p.Pinned, func(key keys.PublicKey) bool { return key == entry.Key || !has(known, key, p.Relay) })
		if !listed || p.Relay != entry.Relay || !proves {
			continue
		}
		if err := keys.RemovePairing(h.join(pairingsFile), p.ID); err != nil && !errors.Is(err, keys.ErrNotListed) {
			return err
		}
		fmt.Fprintf(std.err, "postern: token %s, with which %s may have joined, is forgotten as well; at the relay it is good still: postern token rm %s\n", p.ID, alias, p.ID)
	}
	return keys.RemoveKnownExecutor(h.join(knownFile), alias)
}

func newKnownRemove(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ALIAS...",
		Short: "Trust an executor no longer",
		Long: `Trust an executor no longer. If it has joined with a token that more machines may join with, this client forgets
the token as well, or it would learn the executor's key again: others that join with it have to be added by hand.`,
		Example: `  postern known rm builder`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("want an alias")
			}
			h, err := findHome()
			for i := 0; i < len(args) && err == nil; i++ {
				err = h.distrust(std, args[i])
			}
			return failed(err)
		},
	}
}

func newKnownReplace() *cobra.Command {
	return &cobra.Command{
		Use:   "replace OLD NEW",
		Short: "Put a key in the place of another one",
		Long: `Put an executor's or a relay's key in the place of another one, wherever that stands. Keys that are replaced
in good order get here by themselves; this is for those that were lost.`,
		Example: `  postern known replace relay_... relay_...`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("want the old key and the new one, got %d words", len(args))
			}
			var pair [2]keys.PublicKey
			for i, word := range args {
				var err error
				if pair[i], err = keys.ParsePublicKey(word); err != nil {
					return err
				}
			}
			h, err := findHome()
			if err != nil {
				return failed(err)
			}
			changed, err := h.putKey(pair[0], pair[1])
			if err == nil && changed == 0 {
				err = fmt.Errorf("nothing here has the key %s", pair[0])
			}
			return failed(err)
		},
	}
}

// failed gives an error the exit code of a verb that runs no command.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return withCode(exitFailed, err)
}
