package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
)

func newRelay(std stdio) *cobra.Command {
	var o relayOptions
	var logs logFlags
	var exempt []string
	var keyRate string
	cmd := &cobra.Command{
		Use:   "relay --state DIR",
		Short: "Serve as the relay that executors and clients dial",
		Long: `Serve as the relay that executors and clients dial. It joins their streams and cannot
read them. The first line on stdout is its address with its pinned key, which
executors and clients need; the key is made in DIR/relay.key at the first start.

DIR/tenants lists who may use it, and is reread when it changes, and at SIGHUP: edit it, or
use postern tenant. DIR/enrolled is the relay's own list of join tokens and of who came with one.

TERM and INT drain it: no new connections and commands, those that run have --drain to end, and
clients that are cut then come back by themselves when it is up again. A second signal ends it at once.

Each flag may also be given as POSTERN_NAME in the environment, or in the file of --config; the command line goes
first, then the environment. At SIGHUP log-level is read again from the file; the others need a restart.`,
		Example: `  postern relay --listen :4433 --state /var/lib/postern-relay --advertise relay.example.org:4433
  postern relay --config /etc/postern/relay.conf --metrics 127.0.0.1:9464`,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logs.logger(std.err)
			if err != nil {
				return err
			}
			if o.state == "" {
				return errors.New("--state is missing: name the folder for the key and the lists of tenants")
			}
			if err := o.check(exempt); err != nil {
				return err
			}
			if keyRate != "" {
				if o.limits.ClientBytes, err = keys.ParseRate(keyRate); err != nil {
					return fmt.Errorf("--key-rate %q: %w", keyRate, err)
				}
			}
			if o.settings, err = relaySettings(cmd, &logs, log); err != nil {
				return failed(err)
			}
			o.log = log
			limitMemory(log) // before anything is sized by it
			n, err := openRelay(o)
			if err != nil {
				return failf(exitFailed, "%v", err)
			}
			defer n.close()
			ctx, stop := untilSignal()
			defer stop()
			reload, still := reloadSignal()
			defer still()
			fmt.Fprintln(std.out, n.url)
			if err := n.run(ctx, reload); err != nil {
				return failf(exitFailed, "%v", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", ":4433", "UDP address to listen on, IPv6 and IPv4; port 0 picks a free one")
	f.StringVar(&o.state, "state", "", "folder for the key and the lists of tenants")
	f.StringVar(&o.advertise, "advertise", "", "HOST:PORT under which peers reach this relay")
	f.DurationVar(&o.drain, "drain", 10*time.Second, "how long what runs may go on when the relay is to end")
	f.StringVar(&o.accounting, "accounting", "", "write a JSON line for each circuit into this file, and for each 5 minutes of a long one (default: none)")
	f.BoolVar(&o.tenantSeries, "tenant-metrics", false, "also show metrics with the names of tenants")
	f.StringArrayVar(&exempt, "exempt", nil, "network, such as 192.0.2.0/24, to which the limits for strangers of one address do not apply; may be repeated")
	f.StringVar(&keyRate, "key-rate", "", "bytes a second that all circuits of one client key carry, such as 20M (default: no limit)")
	f.IntVar(&o.limits.KeyHandshakes, "key-handshakes", 0, "connections a second that one key may make; 0: no limit")
	o.watched.add(f)
	logs.add(cmd)
	withSettings(cmd)
	cmd.AddCommand(newRelayRekey(std))
	return cmd
}

// check finds what is wrong on any machine, before a key is made.
func (o *relayOptions) check(exempt []string) error {
	if err := checkListen(o.listen); err != nil {
		return err
	}
	if err := checkAdvertise(o.advertise); err != nil {
		return err
	}
	if o.limits.KeyHandshakes < 0 {
		return fmt.Errorf("--key-handshakes %d: want a number above zero, or 0 for no limit", o.limits.KeyHandshakes)
	}
	if o.drain < 0 {
		return fmt.Errorf("--drain %v: a time cannot be negative", o.drain)
	}
	for _, text := range exempt {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--exempt %q: want a network such as 192.0.2.0/24", text)
		}
		o.exempt = append(o.exempt, prefix)
	}
	return o.watched.check()
}

// relaySettings is what SIGHUP rereads of the settings file; nil where there is none.
func relaySettings(cmd *cobra.Command, logs *logFlags, log *slog.Logger) (func() error, error) {
	path := cmd.Flags().Lookup("config").Value.String()
	if path == "" {
		return nil, nil
	}
	known, err := readSettings(path)
	if err != nil {
		return nil, err
	}
	return func() error {
		now, err := readSettings(path)
		if err != nil {
			return err
		}
		for _, name := range changedSettings(known, now) {
			if name != "log-level" {
				log.Warn("a setting has changed that needs a restart", "setting", name)
				continue
			}
			for _, s := range now {
				if s.name == name {
					if err := logs.setLevel(s.value); err != nil {
						return fmt.Errorf("%s:%d: %w", path, s.line, err)
					}
				}
			}
		}
		known = now
		return nil
	}, nil
}

// checkListen and checkAdvertise find what is no address on any machine, before a key is made.
func checkListen(listen string) error {
	if _, port, err := net.SplitHostPort(listen); err != nil || !isPort(port) {
		return fmt.Errorf("--listen %q: want HOST:PORT or :PORT", listen)
	}
	return nil
}

func checkAdvertise(advertise string) error {
	if advertise == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(advertise); err != nil || host == "" || !isPort(port) || port == "0" {
		return fmt.Errorf("--advertise %q: want HOST:PORT", advertise)
	}
	return nil
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
