package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
)

func newExecutors(std stdio) *cobra.Command {
	var relayURL string
	var json bool
	cmd := &cobra.Command{
		Use:   "executors [flags]",
		Short: "List executors: who is online, and who has joined",
		Long: `List executors: those that this client trusts, and the others of its tenants. One that has joined
with a token of this client is trusted from now on: it has proven that it had the token. One
that has not is shown as "not trusted", and postern known add is for those whose key you got in
another way. Nothing that a relay says makes a key trusted.`,
		Example: `  postern executors
  postern executors --json`,
		Args: noWords,
		RunE: func(*cobra.Command, []string) error {
			h, err := findHome()
			if err != nil {
				return failed(err)
			}
			relays, err := h.relays()
			if relayURL != "" || err == nil && len(relays) == 0 {
				var one keys.RelayURL
				if one, err = h.relay(relayURL); err != nil {
					return err
				}
				relays = []keys.RelayURL{one}
			}
			if err != nil {
				return failed(err)
			}
			return underSignals(func(ctx context.Context) error { return listExecutors(ctx, std, h, relays, json) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&relayURL, "relay", "", "only this relay (default: all that this client uses)")
	f.BoolVar(&json, "json", false, "print one JSON object a line")
	return cmd
}

// executorJSON is one executor. States: online, offline, unlisted (trusted here, and not in the
// relay's list any more), unknown (the relay could not be asked).
type executorJSON struct {
	Name     string     `json:"name"` // the alias of a trusted one, else its name at the relay
	Executor string     `json:"executor"`
	State    string     `json:"state"`
	SeenAt   *time.Time `json:"seen_at,omitempty"`
	Trusted  bool       `json:"trusted"`
	Follows  string     `json:"follows,omitempty"` // the key that this one is going to replace
	Relay    string     `json:"relay"`
}

func listExecutors(ctx context.Context, std stdio, h home, relays []keys.RelayURL, json bool) error {
	n := &notes{w: std.err}
	answers := make(map[keys.RelayURL][]client.ExecutorEntry)
	incomplete := false
	for _, relay := range relays {
		listed, problems, err := h.ask(ctx, relay)
		if err != nil {
			problems = append(problems, err)
		} else {
			answers[relay] = listed
		}
		for _, problem := range problems {
			n.warn("%v", problem)
			incomplete = true
		}
	}
	known, err := h.known()
	if err != nil {
		return failed(err)
	}
	list := executorList(known, relays, answers)
	if json {
		lines := newJSONLines(std.out)
		for _, e := range list {
			if err := lines.write(e); err != nil {
				return failed(err)
			}
		}
	} else if err := executorTable(std.out, list, time.Now()); err != nil {
		return failed(err)
	}
	if incomplete {
		return &exitError{code: exitFailed} // said above
	}
	return nil
}

// ask is one question to a relay, and pins what its answer proves.
func (h home) ask(ctx context.Context, relay keys.RelayURL) ([]client.ExecutorEntry, []error, error) {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	c, err := h.open(relay)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	return h.learn(ctx, c, relay)
}

// executorList has the trusted ones in the order of known_executors, then the others.
func executorList(known *keys.KnownExecutors, relays []keys.RelayURL, answers map[keys.RelayURL][]client.ExecutorEntry) []executorJSON {
	list := []executorJSON{}
	trusted := make(map[keys.PublicKey]bool)
	for _, k := range known.All() {
		asked := false
		for _, r := range relays {
			asked = asked || r == k.Relay
		}
		if !asked {
			continue
		}
		trusted[k.Key] = true
		e := executorJSON{Name: k.Alias, Executor: k.Key.String(), State: "unknown", Trusted: true, Relay: k.Relay.String()}
		if listed, answered := answers[k.Relay]; answered {
			e.State = "unlisted"
			for _, entry := range listed {
				if entry.Key == k.Key {
					e.describe(entry)
				}
			}
		}
		list = append(list, e)
	}
	for _, r := range relays {
		for _, entry := range answers[r] {
			if !trusted[entry.Key] {
				e := executorJSON{Name: entry.Name, Executor: entry.Key.String(), Relay: r.String()}
				e.describe(entry)
				list = append(list, e)
			}
		}
	}
	return list
}

// describe adds what the relay says.
func (e *executorJSON) describe(entry client.ExecutorEntry) {
	e.State = "offline"
	if entry.Online {
		e.State = "online"
	}
	if !entry.Seen.IsZero() {
		seen := entry.Seen.UTC()
		e.SeenAt = &seen
	}
	e.Follows = entry.Follows.String()
}

func executorTable(out io.Writer, list []executorJSON, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tSEEN\tTRUST\tEXECUTOR")
	for _, e := range list {
		seen, trust := "-", "trusted"
		switch {
		case e.State == "online":
			seen = "now"
		case e.SeenAt != nil:
			seen = units.HumanDuration(max(0, now.Sub(*e.SeenAt))) + " ago"
		}
		switch {
		case !e.Trusted && e.Follows != "":
			trust = "next key of another"
		case !e.Trusted:
			trust = "not trusted"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", oneLine(e.Name), e.State, seen, trust, e.Executor)
	}
	return w.Flush()
}
