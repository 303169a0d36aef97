package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire/quicconn"
)

// relayNode is a relay with its state folder and its socket.
type relayNode struct {
	state    *stateDir
	ring     *keyring
	server   *relay.Server
	listener *quicconn.Listener
	roster   *roster.Roster
	url      keys.RelayURL
	log      *slog.Logger
}

const tenantsComment = `# Who may use this relay. Reread when it changes; see: postern tenant --help
#   tenant NAME [conns=N] [execs=N] [circuits=N]
#   client KEY NAME
#   exec KEY NAME
`

func openRelay(dir, listen, advertise string, log *slog.Logger) (_ *relayNode, err error) {
	n := &relayNode{log: log}
	if n.state, err = openState(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.ring, err = openKeyring(n.state.join("relay.key"), keys.Relay); err != nil {
		return nil, err
	}
	if n.roster, err = openRoster(n.state, log); err != nil {
		return nil, err
	}
	if n.server, err = relay.New(relay.Config{Keys: n.ring.keys, Roster: n.roster, Log: log}); err != nil {
		return nil, err
	}
	key, _ := n.ring.keys()
	if n.listener, err = quicconn.Listen(listen, quicconn.ListenOptions{Secret: key.ECDH().Bytes()}); err != nil {
		return nil, err
	}
	n.url, err = relayURL(listen, advertise, n.listener.Addr(), key.Public())
	return n, err
}

// openRoster makes the operator's list where there is none. The list of earlier versions had no tenants.
func openRoster(state *stateDir, log *slog.Logger) (*roster.Roster, error) {
	path := state.join(roster.ListedFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(state.join("authorized")); err == nil {
			return nil, fmt.Errorf("%s is not read any more: move its lines to %s, below a line \"tenant NAME\"", state.join("authorized"), path)
		}
	}
	if err := createList(path, tenantsComment); err != nil {
		return nil, err
	}
	return roster.Open(state.path, log)
}

// relayURL is how peers find the relay: as advertised, else where it listens, under the
// machine's name if it listens everywhere.
func relayURL(listen, advertise string, addr net.Addr, key keys.PublicKey) (keys.RelayURL, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return keys.RelayURL{}, err
	}
	port := addr.(*net.UDPAddr).Port
	if advertise != "" {
		var text string
		if host, text, err = net.SplitHostPort(advertise); err != nil {
			return keys.RelayURL{}, fmt.Errorf("--advertise %q: want HOST:PORT", advertise)
		}
		if port, err = strconv.Atoi(text); err != nil {
			return keys.RelayURL{}, fmt.Errorf("--advertise %q: want HOST:PORT", advertise)
		}
	} else if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return keys.RelayURL{}, fmt.Errorf("this machine has no name: say how peers reach it with --advertise HOST:PORT (%w)", err)
		}
	}
	return keys.ParseRelayURL("postern://" + net.JoinHostPort(host, strconv.Itoa(port)) + "#" + key.String())
}

// run serves until ctx ends. A value on reload makes it read its lists at once, as SIGHUP does.
func (n *relayNode) run(ctx context.Context, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() { n.roster.Run(ctx, n.server.Recheck) })
	watch.Go(func() { n.ring.run(ctx, n.log, n.keysChanged) })
	watch.Go(func() {
		for {
			select {
			case <-reload:
				n.reload()
			case <-ctx.Done():
				return
			}
		}
	})
	err := n.server.Serve(ctx, n.listener)
	cancel()
	watch.Wait()
	return err
}

func (n *relayNode) reload() {
	if err := n.roster.Reload(); err != nil {
		n.log.Error("list refused, the old one stays in force", "err", err)
		return
	}
	n.server.Recheck()
	n.log.Info("lists reread")
}

// keysChanged tells the operator what peers are told.
func (n *relayNode) keysChanged() {
	current, next := n.ring.keys()
	url := n.url
	if next != nil {
		url.Key = next.Public()
		n.log.Info("the relay's key is going to be replaced, and both are accepted", "next", url.String())
		return
	}
	url.Key = current.Public()
	n.log.Info("the relay's key has been replaced, and the old one is not accepted any more", "url", url.String())
}

func (n *relayNode) close() {
	if n.listener != nil {
		n.listener.Close()
	}
	n.state.close()
}
