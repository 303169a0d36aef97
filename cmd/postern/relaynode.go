package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/accounting"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire/quicconn"
)

// relayOptions are the flags of `postern relay`.
type relayOptions struct {
	state, listen, advertise string
	drain                    time.Duration // that circuits have to end in order
	accounting               string        // file; empty: none
	tenantSeries             bool
	exempt                   []netip.Prefix
	limits                   relay.Limits
	watched                  observation
	// settings rereads what can change while the relay runs; nil: nothing can.
	settings func() error
	log      *slog.Logger
}

// relayNode is a relay with its state folder and its socket.
type relayNode struct {
	o          relayOptions
	state      *stateDir
	ring       *keyring
	server     *relay.Server
	guard      *quicconn.Guard
	listener   *quicconn.Listener
	socket     *net.UDPConn // systemd's; nil: the listener's own
	roster     *roster.Roster
	accounting *accounting.Log
	monitor    *monitor
	reloads    *reloads
	url        keys.RelayURL
	log        *slog.Logger
}

const tenantsComment = `# Who may use this relay. Reread when it changes; see: postern tenant --help
#   tenant NAME [conns=N] [execs=N] [circuits=N]
#   client KEY NAME
#   exec KEY NAME
`

func openRelay(o relayOptions) (_ *relayNode, err error) {
	n := &relayNode{o: o, log: o.log}
	if n.state, err = openState(o.state); err != nil {
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
	if n.roster, err = openRoster(n.state, o.log); err != nil {
		return nil, err
	}
	registry := newRegistry("relay")
	cfg := relay.Config{Keys: n.ring.keys, Roster: n.roster, Log: o.log, Registry: registry, TenantSeries: o.tenantSeries, Limits: o.limits}
	if o.accounting != "" {
		if err := n.openAccounting(&cfg, registry); err != nil {
			return nil, err
		}
	}
	if n.server, err = relay.New(cfg); err != nil {
		return nil, err
	}
	if err := n.listen(); err != nil {
		return nil, err
	}
	key, _ := n.ring.keys()
	if n.url, err = relayURL(o.listen, o.advertise, n.listener.Addr(), key.Public()); err != nil {
		return nil, err
	}
	n.reloads = newReloads(registry, n.roster.Refused)
	registry.MustRegister(guardCollector{n.guard}, socketCollector{n.listener})
	o.watched.registry, o.watched.ready, o.watched.status = registry, n.ready, func() any { return n.server.Status() }
	n.monitor, err = o.watched.open(o.log)
	return n, err
}

// listen opens the socket, or takes the one that systemd has opened.
func (n *relayNode) listen() (err error) {
	key, _ := n.ring.keys()
	n.guard = quicconn.NewGuard(quicconn.GuardOptions{Exempt: n.o.exempt})
	options := quicconn.ListenOptions{Secret: key.ECDH().Bytes(), Guard: n.guard}
	if n.socket, err = inheritedSocket(); err != nil {
		return err
	}
	if n.socket == nil {
		n.listener, err = quicconn.Listen(n.o.listen, options)
		return err
	}
	n.log.Info("listening on the socket that systemd has opened, not on --listen", "address", n.socket.LocalAddr())
	n.listener, err = quicconn.ListenPacket(n.socket, options)
	return err
}

// openAccounting makes the relay write down what circuits carry.
func (n *relayNode) openAccounting(cfg *relay.Config, registry *prometheus.Registry) (err error) {
	records := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Subsystem: "relay", Name: "accounting_records_total", Help: "Records of the accounting.",
	}, []string{"result"})
	written, dropped := records.WithLabelValues("written"), records.WithLabelValues("dropped")
	registry.MustRegister(records)
	n.accounting, err = accounting.Open(n.o.accounting, accounting.Options{Log: n.log, Written: func(ok bool) {
		if ok {
			written.Inc()
		} else {
			dropped.Inc()
		}
	}})
	if err == nil {
		cfg.Accounting = n.accounting.Write
	}
	return err
}

// ready is nil while the relay takes new work.
func (n *relayNode) ready() error {
	if n.server.Draining() {
		return errors.New("draining")
	}
	return nil
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

// run serves until asked ends, and then drains. A value on reload makes it read its lists at once, as SIGHUP does.
func (n *relayNode) run(asked context.Context, reload <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	asked, stop := context.WithCancel(asked) // also when Serve fails by itself
	context.AfterFunc(ctx, stop)
	var watch sync.WaitGroup
	watch.Go(func() {
		n.roster.Run(ctx, func() {
			n.reloads.accepted()
			n.server.Recheck()
		})
	})
	watch.Go(func() { keepWatchdog(ctx, func() { n.server.Status() }) })
	watch.Go(func() { n.ring.run(ctx, n.log, n.keysChanged) })
	watch.Go(func() {
		for {
			select {
			case <-reload:
				notifyReloading(n.reload)
			case <-ctx.Done():
				return
			}
		}
	})
	watch.Go(func() { n.drainFirst(asked, cancel) })
	notifyReady()
	err := n.server.Serve(ctx, n.listener)
	cancel()
	watch.Wait()
	return err
}

// drainFirst gives the circuits their time when somebody asks for the end, and then brings it about.
func (n *relayNode) drainFirst(asked context.Context, end func()) {
	<-asked.Done()
	defer end()
	notifyStopping()
	ctx, cancel := context.WithTimeout(context.Background(), n.o.drain)
	defer cancel()
	n.server.Drain(ctx)
}

func (n *relayNode) reload() {
	err := n.roster.Reload()
	n.server.Recheck() // a good one of two lists is in force
	if n.o.settings != nil {
		refused := n.o.settings()
		n.reloads.badSettings.Store(refused != nil)
		err = errors.Join(err, refused)
	}
	if err != nil {
		n.log.Error("refused at a reload, what was in force before stays", "err", err)
		return
	}
	n.reloads.accepted()
	n.log.Info("lists reread")
}

// keysChanged tells the operator what peers are told.
func (n *relayNode) keysChanged() {
	current, next := n.ring.keys()
	url := n.url
	if next != nil {
		url.Key = next.Public()
		n.server.AnnounceNextKey()
		n.log.Info("the relay's key is going to be replaced, and both are accepted", "next", url.String())
		return
	}
	url.Key = current.Public()
	n.log.Info("the relay's key has been replaced, and the old one is not accepted any more", "url", url.String())
}

func (n *relayNode) close() {
	n.monitor.close()
	if n.listener != nil {
		n.listener.Close()
	}
	if n.socket != nil {
		n.socket.Close()
	}
	if n.accounting != nil {
		if err := n.accounting.Close(); err != nil {
			n.log.Error("the last accounting records are lost", "err", err)
		}
	}
	n.state.close()
}
