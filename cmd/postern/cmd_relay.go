package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
)

func newRelay(std stdio) *cobra.Command {
	var listen, state, advertise string
	var logs logFlags
	cmd := &cobra.Command{
		Use:   "relay --state DIR",
		Short: "Serve as the relay that executors and clients dial",
		Long: `Serve as the relay that executors and clients dial. It joins their streams and cannot
read them. The first line on stdout is its address with its pinned key, which
executors and clients need; the key is made in DIR/relay.key at the first start.

DIR/tenants lists who may use it, and is reread when it changes, and at SIGHUP: edit it, or
use postern tenant. DIR/enrolled is the relay's own list of join tokens and of who came with one.`,
		Example: `  postern relay --listen :4433 --state /var/lib/postern-relay --advertise relay.example.org:4433`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			log, err := logs.logger(std.err)
			if err != nil {
				return err
			}
			if state == "" {
				return errors.New("--state is missing: name the folder for the key and the lists of tenants")
			}
			if err := checkListen(listen); err != nil {
				return err
			}
			if err := checkAdvertise(advertise); err != nil {
				return err
			}
			n, err := openRelay(state, listen, advertise, log)
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
	f.StringVar(&listen, "listen", ":4433", "UDP address to listen on, IPv6 and IPv4; port 0 picks a free one")
	f.StringVar(&state, "state", "", "folder for the key and the lists of tenants")
	f.StringVar(&advertise, "advertise", "", "HOST:PORT under which peers reach this relay")
	logs.add(cmd)
	cmd.AddCommand(newRelayRekey(std))
	return cmd
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
