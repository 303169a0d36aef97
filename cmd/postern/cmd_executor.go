package main

import (
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

// maxName is what a hello to the relay has room for; a longer name would be refused at every dial.
const maxName = 255

func newExecutor(std stdio) *cobra.Command {
	o := executorOptions{}
	var relayURL, mode, view string
	var limits limitFlags
	var network networkFlags
	var logs logFlags
	cmd := &cobra.Command{
		Use:   "executor --state DIR [--join FILE | --relay URL --name NAME]",
		Short: "Run commands on this machine for the clients in its list",
		Long: `Run commands on this machine for the clients in its list. The executor dials out to the
relay and stays registered; nothing needs to reach this machine. The first line on
stdout is its public key; it is made in DIR/executor.key at the first start.

A new machine joins with a token that a client has made (postern token new): --join reads it
from a file, or from stdin with -, shows it to the relay, lets the token's clients in, removes the
file, and only then serves. Later starts need neither --join nor --relay; a --join file that is not there is passed
over then. Without a token, --relay and --name say which relay, whose operator has to list the key.

DIR/authorized_clients lists who may run commands, one client key a line, with options before it
that narrow what it may do. It is reread when it changes, and at SIGHUP; an empty list admits nobody.

DIR/execs has the ids of all commands that were ever started, so that none starts twice, and
the results and output of recent ones. A folder that is restored from a copy has forgotten what
was started since; a copy on another machine can start a command a second time.

Each flag may also be given as POSTERN_NAME in the environment, or in the file of --config.

Commands work in the workspaces. --sandbox-max is the most that a client may ask for:
read-only, workspace-write, or full-access, which is no sandbox at all.`,
		Example: `  postern executor --join - --state /var/lib/postern-executor --workspace /srv/build
  postern executor --relay postern://relay.example.org:4433#relay_... --name builder \
      --state /var/lib/postern-executor --workspace /srv/build`,
		Args: noWords,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if o.log, err = logs.logger(std.err); err != nil {
				return err
			}
			if relayURL != "" {
				if o.join != "" {
					return fmt.Errorf("--relay and --join: the token names the relay, so give only one of the two")
				}
				if o.relay, err = keys.ParseRelayURL(relayURL); err != nil {
					return fmt.Errorf("--relay: %w", err)
				}
			}
			if o.name != "" {
				if err := checkExecutorName(o.name); err != nil {
					return fmt.Errorf("--name %q: %w", o.name, err)
				}
			}
			if o.state == "" {
				return fmt.Errorf("--state is missing: name the folder for the key and the list of clients")
			}
			if err := o.watched.check(); err != nil {
				return err
			}
			if err := o.checkRelay(); err != nil {
				return err
			}
			if o.max, err = wire.ParseSandboxMode(mode); err != nil {
				return fmt.Errorf("--sandbox-max: %w", err)
			}
			if o.view, err = wire.ParseView(view); err != nil {
				return fmt.Errorf("--view-max: %w", err)
			}
			if o.network, o.permit, err = network.get(); err != nil {
				return err
			}
			if o.limits, err = limits.get(); err != nil {
				return err
			}
			if err := o.keep.check(); err != nil {
				return err
			}
			stdlog.SetOutput(quietUpstream{std.err})
			o.environment = os.Environ()
			o.std = std
			endCollector.use()
			shareProcessors()
			ctx, stop := untilSignal()
			defer stop()
			reload, still := reloadSignal()
			defer still()
			n, err := openExecutor(ctx, o)
			if err != nil {
				return failf(exitFailed, "%v", err)
			}
			defer n.close()
			key, _ := n.ring.keys()
			fmt.Fprintln(std.out, key.Public())
			o.log.Info("sandbox", "level", n.launcher.Level(), "max", o.max)
			logReport(o.log, n.probe(ctx, o))
			if err := n.run(ctx, reload); err != nil {
				return failf(exitFailed, "%v", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&relayURL, "relay", "", "postern://HOST:PORT#relay_..., as the relay prints it")
	f.StringVar(&o.join, "join", "", "file with a join token, or - for stdin: join its relay, then serve")
	f.StringVar(&o.name, "name", "", "name of this executor at the relay (default with --join: the token's, with this machine's name for its *)")
	f.StringVar(&o.state, "state", "", "folder for the key and the list of clients")
	f.StringVar(&o.clients, "authorized-clients", "", "list of clients, instead of the one in the state folder")
	f.StringArrayVar(&o.workspaces, "workspace", nil, "folder that commands may work in; may be repeated, the first is where they start")
	f.StringVar(&mode, "sandbox-max", "workspace-write", "the most a client may ask for: read-only, workspace-write or full-access")
	f.StringVar(&view, "view-max", "full", "the most a client may see: full or minimal")
	f.BoolVar(&o.reduced, "reduced-sandbox", false, "Landlock and seccomp only, for a machine without user namespaces: promises less, never chosen by itself")
	f.StringArrayVar(&o.hide, "hide", nil, "folder or file that no command may see, besides keys, credentials and /run; may be repeated")
	f.StringArrayVar(&o.readRoots, "read", nil, "folder that a minimal view shows too; may be repeated")
	f.StringArrayVar(&o.sockets, "unix-socket", nil, "socket of this machine that commands may connect to; may be repeated")
	network.add(f)
	limits.add(f)
	o.keep.add(f)
	f.IntVar(&o.runAs, "run-as", 0, "uid and gid of commands where the executor is root; 0 picks one that nobody else has")
	f.StringVar(&o.textfile, "metrics-file", "", "write metrics into this file every 15 s, for node_exporter's textfile collector (NAME.prom)")
	o.watched.add(f)
	logs.add(cmd)
	withSettings(cmd)
	cmd.AddCommand(newExecutorRekey(std))
	return cmd
}

// checkRelay finds out before a key is made that nothing says which relay, or which name.
func (o *executorOptions) checkRelay() error {
	if o.join != "" {
		return nil
	}
	saved, err := readRelayFile(filepath.Join(o.state, relayFileName))
	switch {
	case err != nil:
		return failed(err)
	case o.relay == keys.RelayURL{} && saved.relay == keys.RelayURL{}:
		return errors.New("--relay is missing: want the line postern://HOST:PORT#relay_... that the relay prints, or --join with a join token")
	case o.name == "" && saved.name == "":
		return errors.New("--name is missing: how clients and logs call this executor")
	}
	return nil
}

// checkExecutorName accepts one word.
func checkExecutorName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("want one word of at most %d bytes", maxName)
	}
	return nil
}

// logReport tells at start what `postern sandbox check` would.
func logReport(log *slog.Logger, report sandbox.Report) {
	for _, l := range report.Layers {
		switch {
		case l.OK:
			log.Info("sandbox layer works", "layer", l.Name, "detail", l.Detail)
		case l.Optional:
			log.Warn("sandbox layer is missing", "layer", l.Name, "reason", l.Reason, "remedy", l.Remedy)
		default:
			log.Error("the sandbox does not work here, commands will be refused", "layer", l.Name, "reason", l.Reason, "remedy", l.Remedy)
		}
	}
}
