package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// relayNode is a relay with its state folder and its socket.
type relayNode struct {
	state    *stateDir
	server   *relay.Server
	listener *quicconn.Listener
	peers    *keys.File[*keys.RelayPeers]
	url      keys.RelayURL
	log      *slog.Logger
}

const relayPeersComment = `# Who may use this relay, one key a line:
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
	key, _, err := keys.LoadOrGenerate(n.state.join("relay.key"), keys.Relay)
	if err != nil {
		return nil, err
	}
	if n.peers, err = openList(n.state.join("authorized"), relayPeersComment, keys.ParseRelayPeers); err != nil {
		return nil, err
	}
	if n.server, err = relay.New(relay.Config{Key: key, Peers: n.peers.Current, Log: log}); err != nil {
		return nil, err
	}
	if n.listener, err = quicconn.Listen(listen, quicconn.ListenOptions{Secret: key.ECDH().Bytes()}); err != nil {
		return nil, err
	}
	n.url, err = relayURL(listen, advertise, n.listener.Addr(), key.Public())
	return n, err
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

// run serves until ctx ends.
func (n *relayNode) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		n.peers.Run(ctx, func(*keys.RelayPeers) {
			n.log.Info("list of peers reread")
			n.server.Recheck()
		}, func(err error) { n.log.Error("list of peers refused, the old one stays in force", "err", err) })
	})
	err := n.server.Serve(ctx, n.listener)
	cancel()
	watch.Wait()
	return err
}

func (n *relayNode) close() {
	if n.listener != nil {
		n.listener.Close()
	}
	n.state.close()
}

// executorOptions are the flags of `postern executor`.
type executorOptions struct {
	relay       keys.RelayURL
	name        string
	state       string
	clients     string // empty: the one in the state folder
	workspaces  []string
	max         wire.SandboxMode
	view        wire.View
	limits      wire.Limits // of every command
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
	key      *keys.PrivateKey
	clients  *keys.File[*keys.AuthorizedClients]
	launcher *sandbox.Launcher
	backend  *executor.Local
	executor *executor.Executor
	log      *slog.Logger
}

const authorizedComment = `# Who may run commands here, one client key a line:
#   client_... NAME
`

func openExecutor(o executorOptions) (_ *executorNode, err error) {
	n := &executorNode{log: o.log}
	if n.state, err = openState(o.state); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.key, _, err = keys.LoadOrGenerate(n.state.join("executor.key"), keys.Executor); err != nil {
		return nil, err
	}
	if o.clients == "" {
		n.clients, err = openList(n.state.join("authorized_clients"), authorizedComment, keys.ParseAuthorizedClients)
	} else {
		n.clients, err = openList(o.clients, "", keys.ParseAuthorizedClients)
	}
	if err != nil {
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
	n.backend, err = executor.NewLocal(executor.LocalConfig{
		Runner: executor.NewSandboxRunner(n.launcher), Workspaces: roots, Max: o.max, View: o.view, Limits: o.limits,
		Environ: o.environment, Log: o.log,
		State: n.state.path, Keep: o.keep.results, LogBytes: int64(o.keep.perExec), StoreBytes: int64(o.keep.total),
		MaxExecs: o.keep.maxExecs, MaxAbsence: o.keep.maxAbsence,
	})
	if err != nil {
		return nil, err
	}
	n.executor, err = executor.New(executor.Config{
		Key: n.key, Name: o.name, Relay: o.relay.Key, Clients: n.clients.Current, Backend: n.backend,
		Dial: func(ctx context.Context) (wire.Transport, error) {
			return quicconn.Dial(ctx, o.relay.Address(), quicconn.Options{Role: wire.RoleExecutor})
		},
		Registered: o.registered, Backoff: o.backoff, Software: software(), Log: o.log,
	})
	return n, err
}

// settleTime is how long clients have to read the exit status of commands that the executor
// ended because it goes away.
const settleTime = 2 * time.Second

// run stays registered until ctx ends. Then it ends every command, tells the clients, and
// only then leaves the relay.
func (n *executorNode) run(ctx context.Context) error {
	serving, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var tasks sync.WaitGroup
	tasks.Go(func() {
		n.clients.Run(serving, func(*keys.AuthorizedClients) {
			n.log.Info("authorized clients reread")
			n.executor.Recheck()
		}, func(err error) { n.log.Error("authorized clients refused, the old ones stay in force", "err", err) })
	})
	tasks.Go(func() {
		defer leave()
		select {
		case <-serving.Done():
			return
		case <-ctx.Done():
		}
		n.backend.Close()
		settling, done := context.WithTimeout(serving, settleTime)
		defer done()
		n.executor.Settle(settling)
	})
	err := n.executor.Run(serving)
	leave()
	tasks.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, n.backend.Close())
}

// probe tries the sandbox as a client would get it; full access needs none.
func (n *executorNode) probe(ctx context.Context, o executorOptions) sandbox.Report {
	if o.max == wire.SandboxFullAccess {
		return sandbox.Report{Layers: []sandbox.Layer{{Name: "none", OK: true}}}
	}
	return sandbox.Probe(ctx, sandbox.Options{UID: o.runAs, GID: o.runAs, Reduced: o.reduced})
}

func (n *executorNode) close() {
	if n.backend != nil {
		n.backend.Close()
	}
	if n.launcher != nil {
		n.launcher.Close()
	}
	n.state.close()
}

// untilSignal ends with the first TERM or INT. A second one is fatal at once, as if nobody
// had asked for it.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
