package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

func newToken(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token new|ls|rm",
		Short: "Let new machines join by a one-time token",
		Long: `Let new machines join by a one-time token. A token has all that an executor needs: the relay with
its key, a secret that admits it there, a secret that proves to this client which key the new
machine made, and the keys of the clients that may run commands on it. Whoever holds a token can join in
the machine's place, so hand it over as you would a password; it is good for one machine and one hour.`,
		Example: `  postern token new --name builder           # on your machine
  postern executor --join - --state DIR      # on the new one; paste the token
  postern executors                          # on yours again: who has joined`,
		RunE: wantVerb,
	}
	cmd.AddCommand(newTokenNew(std), newTokenList(std), newTokenRemove(std))
	return cmd
}

// tokenFlags are the flags of `postern token new`.
type tokenFlags struct {
	relay, name, out string
	uses             int
	ttl, wait        time.Duration
	clients          []string

	others []keys.TokenClient // what clients says
}

func newTokenNew(std stdio) *cobra.Command {
	var o tokenFlags
	cmd := &cobra.Command{
		Use:   "new [flags]",
		Short: "Make a join token",
		Long: `Make a join token and print it, or write it to a new file that only its owner can read. The
relay is told its hash. A client key is made if this client has none; as long as the relay does not admit it, this
waits, and says on stderr what the relay's operator has to do.`,
		Example: `  postern token new --relay 'postern://relay.example.org:4433#relay_...' --name builder
  postern token new --name 'ci-*' --uses 20 --ttl 8h --out ci.token`,
		Args: noWords,
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			h, err := findHome()
			if err != nil {
				return failed(err)
			}
			relay, err := h.relay(o.relay)
			if err != nil {
				return err
			}
			return underSignals(func(ctx context.Context) error { return o.make(ctx, std, h, relay) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.relay, "relay", "", "postern://HOST:PORT#relay_..., as the relay prints it (default: the only one this client uses)")
	f.StringVar(&o.name, "name", "*", "name of the machine; one * stands for what the machine chooses")
	f.IntVar(&o.uses, "uses", 1, "machines that may join with it")
	f.DurationVar(&o.ttl, "ttl", time.Hour, "how long it is good for")
	f.StringVar(&o.out, "out", "", "write the token to this new file instead of stdout")
	f.DurationVar(&o.wait, "wait", 10*time.Minute, "how long to wait until the relay admits this client; 0: not at all")
	f.StringArrayVar(&o.clients, "client", nil, "another client key that may run commands on the machine, as KEY or NAME=KEY; may be repeated")
	return cmd
}

func (o *tokenFlags) check() error {
	switch {
	case o.uses < 1 || o.uses > roster.MaxUses:
		return fmt.Errorf("--uses %d: want a number from 1 to %d", o.uses, roster.MaxUses)
	case o.ttl <= 0 || o.ttl > roster.MaxTTL:
		return fmt.Errorf("--ttl %v: want a time above zero, at most %v", o.ttl, roster.MaxTTL)
	case o.wait < 0:
		return fmt.Errorf("--wait %v: a time cannot be negative", o.wait)
	}
	if err := keys.CheckPattern(o.name); err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	if err := o.parseClients(); err != nil {
		return fmt.Errorf("--client: %w", err)
	}
	if o.out != "" {
		if _, err := os.Lstat(o.out); err == nil {
			return fmt.Errorf("--out %s: there is such a file, and it is not overwritten", o.out)
		}
	}
	return nil
}

// make makes the token, remembers its pairing, tells the relay, and only then hands it out.
func (o *tokenFlags) make(ctx context.Context, std stdio, h home, relay keys.RelayURL) error {
	if err := os.MkdirAll(h.path, 0o700); err != nil {
		return failed(err)
	}
	key, _, err := keys.LoadOrGenerate(h.join(keyFile), keys.Client)
	if err != nil {
		return failed(err)
	}
	c, err := h.open(relay)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	n := &notes{w: std.err}
	if err := o.awaitAdmission(ctx, c, n, key.Public()); err != nil {
		return failed(err)
	}
	token, err := keys.NewJoinToken(relay, o.clientsWith(key.Public()), o.name, time.Now().Add(o.ttl))
	if err != nil {
		return failed(err)
	}
	pairing := keys.Pairing{ID: token.ID, Secret: token.Pairing, Relay: relay, Pattern: o.name, Uses: o.uses, Expires: token.Expires}
	if err := keys.AddPairing(h.join(pairingsFile), pairing); err != nil {
		return failed(err)
	}
	err = c.AddToken(ctx, wire.AddToken{
		ID: wire.ID(token.ID), Hash: token.Hash(), Pattern: o.name, Uses: uint32(o.uses), TTLMillis: uint64(o.ttl.Milliseconds()),
	})
	if err == nil {
		if err = o.handOut(std, token); err != nil {
			err = takeBack(ctx, c, token.ID, err)
		}
	}
	if err != nil {
		return failed(errors.Join(err, keys.RemovePairing(h.join(pairingsFile), token.ID)))
	}
	n.say("join token %s: for %s called %s, until %s", token.ID, machines(o.uses), o.name, token.Expires.Local().Format(time.DateTime))
	if known, err := h.known(); err == nil {
		if old, taken := known.Lookup(o.name); taken {
			n.say("%s stands for %s here; for the machine that joins to get that name, run: postern known rm %s", o.name, old.Key, o.name)
		}
	}
	return nil
}

func machines(n int) string {
	if n == 1 {
		return "one machine"
	}
	return fmt.Sprintf("%d machines", n)
}

// handOut writes the token where it was wanted.
func (o *tokenFlags) handOut(std stdio, token *keys.JoinToken) error {
	text, err := token.Text()
	if err != nil {
		return err
	}
	if o.out == "" {
		_, err = fmt.Fprintln(std.out, text)
		return err
	}
	f, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text+"\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// parseClients reads the clients that were named.
func (o *tokenFlags) parseClients() error {
	for _, word := range o.clients {
		name, text, named := strings.Cut(word, "=")
		if !named {
			name, text = "", word
		}
		key, err := keys.ParsePublicKey(text)
		if err != nil {
			return err
		}
		if key.Kind() != keys.Client {
			return errors.New("want a key that begins with client_")
		}
		if err := listable(key, name); err != nil {
			return err
		}
		o.others = append(o.others, keys.TokenClient{Key: key, Name: name})
	}
	return nil
}

// clientsWith is who may run commands: this client, and those that were named.
func (o *tokenFlags) clientsWith(own keys.PublicKey) []keys.TokenClient {
	clients := []keys.TokenClient{{Key: own, Name: userName(own)}}
	for _, c := range o.others {
		if c.Key != own {
			clients = append(clients, c)
		}
	}
	return clients
}

// userName is how the executor's list calls this client, if the user's name can stand there.
func userName(own keys.PublicKey) string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	name := filepath.Base(strings.ReplaceAll(u.Username, `\`, "/"))
	if !keys.MatchName("*", name) || listable(own, name) != nil {
		return ""
	}
	return name
}

// listable refuses a name that authorized_clients of the new machine would refuse: it could not join.
func listable(key keys.PublicKey, name string) error {
	_, err := keys.ParseAuthorizedClients("NAME="+key.Short(), strings.NewReader(key.String()+" "+name))
	return err
}

// awaitAdmission returns once the relay admits this client.
func (o *tokenFlags) awaitAdmission(ctx context.Context, c *client.Client, n *notes, key keys.PublicKey) error {
	wait, cancel := context.WithTimeout(ctx, max(o.wait, learnTimeout))
	defer cancel()
	for told := false; ; {
		_, err := c.Tokens(wait)
		if wire.CodeOf(err) != wire.CodeUnauthorized {
			return err
		}
		advice := fmt.Sprintf("postern tenant add --state DIR TENANT %s %s", key, orName(userName(key)))
		if o.wait == 0 {
			return fmt.Errorf("the relay does not admit this client yet; there, run: %s", advice)
		}
		if !told {
			n.say("the relay does not admit this client yet, waiting; there, run: %s", advice)
			told = true
		}
		select {
		case <-time.After(time.Second):
		case <-wait.Done():
			if ctx.Err() == nil {
				return fmt.Errorf("the relay did not admit this client within %v; there, run: %s", o.wait, advice)
			}
			return context.Cause(ctx)
		}
	}
}

func orName(name string) string {
	if name == "" {
		return "NAME"
	}
	return name
}

// tokenJSON is one join token.
type tokenJSON struct {
	Token     string    `json:"token"` // its id
	Names     string    `json:"names"`
	Uses      int       `json:"uses"`
	Used      int       `json:"used"`
	ExpiresAt time.Time `json:"expires_at"`
	Expired   bool      `json:"expired"`
	Own       bool      `json:"own"` // made by this client
}

func newTokenList(std stdio) *cobra.Command {
	var relayURL string
	var json bool
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Short:   "List the join tokens of the tenant, spent ones included",
		Example: `  postern token ls --json`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			return onRelay(relayURL, func(ctx context.Context, c *client.Client, own keys.PublicKey) error {
				tokens, err := c.Tokens(ctx)
				if err != nil {
					return err
				}
				var list []tokenJSON
				for _, t := range tokens {
					list = append(list, tokenJSON{
						Token: keys.TokenID(t.ID).String(), Names: t.Pattern, Uses: int(t.Uses), Used: int(t.Used),
						ExpiresAt: time.UnixMilli(t.Expires).UTC(), Expired: t.Expired, Own: t.By == own.Raw(),
					})
				}
				return listTokens(std.out, list, json)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&relayURL, "relay", "", "the relay (default: the only one this client uses)")
	f.BoolVar(&json, "json", false, "print one JSON object a line")
	return cmd
}

func listTokens(out io.Writer, tokens []tokenJSON, json bool) error {
	if json {
		lines := newJSONLines(out)
		for _, t := range tokens {
			if err := lines.write(t); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "TOKEN\tNAMES\tUSED\tUNTIL\tMADE BY")
	for _, t := range tokens {
		until, by := t.ExpiresAt.Local().Format(time.DateTime), "another"
		if t.Expired {
			until = "expired"
		}
		if t.Own {
			by = "this client"
		}
		fmt.Fprintf(w, "%s\t%s\t%d of %d\t%s\t%s\n", t.Token, oneLine(t.Names), t.Used, t.Uses, until, by)
	}
	return w.Flush()
}

func newTokenRemove(std stdio) *cobra.Command {
	var relayURL string
	cmd := &cobra.Command{
		Use:   "rm [flags] TOKEN...",
		Short: "Withdraw join tokens",
		Long: `Withdraw join tokens, by their ids as token ls prints them. This client forgets them first, whatever
the relay says, and believes no announcement of theirs any more. Machines that have joined stay: to
remove one, the relay's operator runs postern tenant rm, or its own authorized_clients is emptied.`,
		Example: `  postern token rm 5f0c1d...`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("want a token's id")
			}
			var ids []keys.TokenID
			for _, word := range args {
				id, err := keys.ParseTokenID(word)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			h, err := findHome()
			if err != nil {
				return failed(err)
			}
			return h.withdraw(&notes{w: std.err}, relayURL, ids)
		},
	}
	cmd.Flags().StringVar(&relayURL, "relay", "", "the relay (default: the one of the token, or else the only one this client uses)")
	return cmd
}
