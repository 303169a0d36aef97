package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// executorOptions are the flags of `postern executor`.
type executorOptions struct {
	relay       keys.RelayURL // zero: the one that the executor has joined
	name        string        // empty: the one that it has joined with
	state       string
	join        string // file of a join token, "-" for standard input; empty: none
	std         stdio
	clients     string // empty: the one in the state folder
	workspaces  []string
	max         wire.SandboxMode
	view        wire.View
	network     executor.Network // the most of a command's
	permit      []netip.Prefix   // networks that allowed hosts may be in
	limits      wire.Limits      // of every command
	keep        keepOptions
	hide        []string // besides the state folder
	reduced     bool
	readRoots   []string
	sockets     []string
	runAs       int
	registered  func(wire.HopWelcome)
	backoff     quicconn.Backoff // the zero value is for production
	log         *slog.Logger
	environment []string
	watched     observation
	textfile    string // for the metrics; empty: none
}

// keepOptions say what an executor keeps of execs; zero fields are the defaults of executor.LocalConfig.
type keepOptions struct {
	results    time.Duration
	perExec    byteSize
	total      byteSize
	maxExecs   int
	maxAbsence time.Duration
}

func (k *keepOptions) add(f *pflag.FlagSet) {
	f.DurationVar(&k.results, "keep", 24*time.Hour, "how long results and output of ended commands can be fetched")
	f.Var(&k.perExec, "keep-output", "most output kept in files of one command (default 256M)")
	f.Var(&k.total, "keep-output-total", "most output kept in files of all commands (default 8G)")
	f.IntVar(&k.maxExecs, "max-execs", 1024, "commands that may run at once")
	f.DurationVar(&k.maxAbsence, "max-absence", 24*time.Hour, "end a command that was not started detached when no client came back for this long")
}

func (k *keepOptions) check() error {
	switch {
	case k.results <= 0:
		return fmt.Errorf("--keep %v: want a time above zero", k.results)
	case k.maxAbsence <= 0:
		return fmt.Errorf("--max-absence %v: want a time above zero", k.maxAbsence)
	case k.maxExecs <= 0:
		return fmt.Errorf("--max-execs %d: want a number above zero", k.maxExecs)
	case k.perExec > 1<<62 || k.total > 1<<62:
		return fmt.Errorf("--keep-output and --keep-output-total: too large")
	}
	return nil
}

// executorNode is an executor with its state folder and its sandbox.
type executorNode struct {
	state    *stateDir
	ring     *keyring
	clients  *keys.File[*keys.AuthorizedClients]
	launcher *sandbox.Launcher
	backend  *executor.Local
	ids      *identities
	registry *prometheus.Registry
	monitor  *monitor
	textfile string
	log      *slog.Logger

	name    string
	relayMu sync.Mutex
	relay   relayFile
}

// executorKeyName is the executor's key in its state folder.
const executorKeyName = "executor.key"

const authorizedComment = `# Who may run commands here, one client key a line:
#   client_... NAME
`

// openExecutor joins first where that is wanted, for which ctx bounds the wait.
func openExecutor(ctx context.Context, o executorOptions) (_ *executorNode, err error) {
	n := &executorNode{log: o.log, registry: newRegistry("executor"), textfile: o.textfile}
	if n.state, err = openState(o.state); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.ring, err = openKeyring(n.state.join(executorKeyName), keys.Executor); err != nil {
		return nil, err
	}
	clients, comment := o.clients, ""
	if clients == "" {
		clients, comment = n.state.join("authorized_clients"), authorizedComment
	}
	if n.clients, err = openList(clients, comment, keys.ParseAuthorizedClients); err != nil {
		return nil, err
	}
	key, _ := n.ring.keys()
	joining := joining{path: o.join, name: o.name, std: o.std, log: o.log}
	if n.relay, err = joining.run(ctx, n.state, key, clients); err != nil {
		return nil, err
	}
	if err := n.clients.Reload(); err != nil {
		return nil, err
	}
	if err := n.chooseRelay(&o); err != nil {
		return nil, err
	}
	roots, err := workspaces(o.workspaces)
	if err != nil {
		return nil, err
	}
	n.launcher, err = sandbox.NewLauncher(sandbox.Options{
		AllowFullAccess: o.max == wire.SandboxFullAccess, UID: o.runAs, GID: o.runAs,
		HiddenPaths: append([]string{n.state.path}, o.hide...), ReadRoots: o.readRoots, UnixSockets: o.sockets, Reduced: o.reduced,
	})
	if err != nil {
		return nil, err
	}
	metrics, err := executor.NewMetrics(n.registry)
	if err != nil {
		return nil, err
	}
	n.backend, err = executor.NewLocal(executor.LocalConfig{
		Metrics: metrics,
		Runner:  executor.NewSandboxRunner(n.launcher, o.permit...), Workspaces: roots, Max: o.max, View: o.view, Network: o.network, Limits: o.limits,
		Environ: o.environment, Log: o.log,
		State: n.state.path, Keep: o.keep.results, LogBytes: int64(o.keep.perExec), StoreBytes: int64(o.keep.total),
		MaxExecs: o.keep.maxExecs, MaxAbsence: o.keep.maxAbsence,
	})
	if err != nil {
		return nil, err
	}
	n.ids = &identities{ring: n.ring, state: n.state, log: o.log, config: func(key *keys.PrivateKey) executor.Config {
		return executor.Config{
			Key: key, Name: o.name, Relay: n.pinned().Key, Clients: n.clients.Current, Backend: n.backend,
			Dial: func(ctx context.Context) (wire.Transport, error) {
				return quicconn.Dial(ctx, o.relay.Address(), quicconn.Options{Role: wire.RoleExecutor})
			},
			Registered: o.registered, RelayKeyReplaced: n.relayKeyReplaced,
			Backoff: o.backoff, Software: software(), Log: o.log, Metrics: metrics,
		}
	}}
	if err := n.ids.open(); err != nil {
		return nil, err
	}
	o.watched.registry, o.watched.ready, o.watched.status = n.registry, n.ready, n.status
	n.monitor, err = o.watched.open(o.log)
	return n, err
}

// ready is nil while clients can come.
func (n *executorNode) ready() error {
	registered := false
	n.ids.each(func(e *executor.Executor) { registered = registered || e.Registered() })
	if !registered {
		return errors.New("not registered with the relay")
	}
	return nil
}

// executorStatus is what an executor does at the moment. It names nobody.
type executorStatus struct {
	Registered bool   `json:"registered"`
	Name       string `json:"name"`
	Relay      string `json:"relay"`
	Commands   int    `json:"commands"` // that run
	Remembered int    `json:"remembered"`
}

func (n *executorNode) status() any {
	running, remembered := n.backend.Count()
	return executorStatus{Registered: n.ready() == nil, Name: n.name, Relay: n.pinned().Address(), Commands: running, Remembered: remembered}
}

// textfileEvery is how often the file of metrics is written anew.
const textfileEvery = 15 * time.Second

// writeTextfile keeps a file for node_exporter's textfile collector up to date: an executor is where no Prometheus reaches.
func (n *executorNode) writeTextfile(ctx context.Context) {
	if n.textfile == "" {
		return
	}
	failing := false
	ticker := time.NewTicker(textfileEvery)
	defer ticker.Stop()
	for {
		err := prometheus.WriteToTextfile(n.textfile, n.registry)
		if err != nil && !failing {
			n.log.Error("the file of metrics cannot be written", "err", err)
		}
		failing = err != nil
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// chooseRelay is the relay that was named, under the key that has replaced the named one, or the one that was joined.
func (n *executorNode) chooseRelay(o *executorOptions) error {
	joined := n.relay.relay
	if o.relay = n.relay.follow(cmp.Or(o.relay, joined)); o.relay != joined { // somebody has chosen another one
		n.relay = relayFile{relay: o.relay, name: n.relay.name}
		if joined != (keys.RelayURL{}) {
			if err := n.relay.write(n.state.join(relayFileName)); err != nil {
				return err
			}
		}
	}
	n.name = cmp.Or(o.name, n.relay.name)
	if o.name = n.name; o.relay == (keys.RelayURL{}) || o.name == "" {
		return errors.New("executor without a relay or a name")
	}
	return nil
}

// pinned is the relay under the key that it has now.
func (n *executorNode) pinned() keys.RelayURL {
	n.relayMu.Lock()
	defer n.relayMu.Unlock()
	return n.relay.relay
}

// relayKeyReplaced writes down what the relay has announced, so that a restart pins the same.
func (n *executorNode) relayKeyReplaced(old, next keys.PublicKey) {
	n.relayMu.Lock()
	defer n.relayMu.Unlock()
	if n.relay.relay.Key != old {
		return // the other registration has heard it too
	}
	n.relay.relay.Key = next
	n.relay.replaced = append(n.relay.replaced, old)
	if err := n.relay.write(n.state.join(relayFileName)); err != nil {
		n.log.Error("the relay's next key could not be written down: give it with --relay at the next start", "err", err, "relay", n.relay.relay.String())
	}
}

// settleTime is how long clients have to read the exit status of commands that the executor
// ended because it goes away.
const settleTime = 2 * time.Second

// run stays registered until ctx ends. Then it ends every command, tells the clients, and
// only then leaves the relay. A value on reload makes it read its list at once, as SIGHUP does.
func (n *executorNode) run(ctx context.Context, reload <-chan os.Signal) error {
	serving, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		n.clients.Run(serving, func(*keys.AuthorizedClients) {
			n.log.Info("authorized clients reread")
			n.recheck()
		}, func(err error) { n.log.Error("authorized clients refused, the old ones stay in force", "err", err) })
	})
	tasks.Go(func() {
		defer leave()
		select {
		case <-serving.Done():
			return
		case <-ctx.Done():
		}
		notifyStopping()
		n.backend.Close()
		settling, done := context.WithTimeout(serving, settleTime)
		defer done()
		n.ids.each(func(e *executor.Executor) { e.Settle(settling) })
	})
	tasks.Go(func() {
		for {
			select {
			case <-reload:
				notifyReloading(n.reload)
			case <-serving.Done():
				return
			}
		}
	})
	tasks.Go(func() { n.writeTextfile(serving) })
	tasks.Go(func() { keepWatchdog(serving, func() { n.backend.Count() }) })
	notifyReady()
	n.ids.run(serving)
	leave()
	tasks.Wait()
	return n.backend.Close()
}

func (n *executorNode) recheck() { n.ids.each((*executor.Executor).Recheck) }

// reload is what SIGHUP asks for.
func (n *executorNode) reload() {
	if err := n.clients.Reload(); err != nil {
		n.log.Error("authorized clients refused, the old ones stay in force", "err", err)
		return
	}
	n.recheck()
	n.log.Info("authorized clients reread")
}

// probe tries the sandbox as a client would get it; full access needs none.
func (n *executorNode) probe(ctx context.Context, o executorOptions) sandbox.Report {
	if o.max == wire.SandboxFullAccess {
		return sandbox.Report{Layers: []sandbox.Layer{{Name: "none", OK: true}}}
	}
	return sandbox.Probe(ctx, sandbox.Options{UID: o.runAs, GID: o.runAs, Reduced: o.reduced})
}

func (n *executorNode) close() {
	n.monitor.close()
	if n.backend != nil {
		n.backend.Close()
	}
	if n.launcher != nil {
		n.launcher.Close()
	}
	n.state.close()
}

// reloadSignal gets SIGHUP until stop is called.
func reloadSignal() (c <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// untilSignal ends with the first TERM or INT. A second one is fatal at once, as if nobody
// had asked for it.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
