package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// The three parties, each the real one over real QUIC, on a network and a clock that are simulated:
// hours and outages take milliseconds, and times can be asked for exactly. Only the commands
// are not processes.
type parties struct {
	t       *testing.T
	network *network
	runner  *executortest.Runner
	backend *executor.Local
	serving *executor.Executor
	client  *client.Client
	remote  *client.Remote
	relay   struct {
		key    *keys.PrivateKey
		roster *roster.Roster
		cancel context.CancelFunc
		ended  chan error
		socket net.PacketConn
		counts *prometheus.Registry
	}
	me, it     *keys.PrivateKey
	registered chan time.Time
	ahead      struct{ client, executor atomic.Int64 } // of the session clocks, nanoseconds

	mu       sync.Mutex
	told     []client.Interruption
	connects int
	kinds    []byte // first byte of each circuit: 1 a handshake, 2 a channel of a known session
	cut      func() *cutter
}

// One way takes oneWay, so a round trip on a hop takes two of these, and one between client
// and executor four.
const (
	oneWay     = 10 * time.Millisecond
	hopTrip    = 2 * oneWay
	wholeTrip  = 2 * hopTrip
	relayHost  = 1
	itsHost    = 2
	clientHost = 3
)

func onNetwork(t *testing.T, test func(t *testing.T, p *parties)) {
	synctest.Test(t, func(t *testing.T) {
		p := &parties{
			t: t, network: newNetwork(), runner: new(executortest.Runner),
			me: newKey(t, keys.Client), it: newKey(t, keys.Executor), registered: make(chan time.Time, 100),
		}
		defer p.network.close()
		p.relay.key = newKey(t, keys.Relay)
		var err error
		dir, list := t.TempDir(), fmt.Sprintf("tenant t\nclient %s me\nexec %s it\n", p.me.Public(), p.it.Public())
		if err := os.WriteFile(filepath.Join(dir, roster.ListedFile), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		if p.relay.roster, err = roster.Open(dir, nil); err != nil {
			t.Fatal(err)
		}
		p.relay.socket = p.network.socket(relayHost)
		p.startRelay()
		defer p.stopRelay()
		defer p.startExecutor()()
		p.newClient(0)
		defer func() { p.client.Close() }()
		<-p.registered
		test(t, p)
	})
}

// impatient takes a client whose handles end with the first circuit that is lost.
func (p *parties) impatient() {
	p.t.Helper()
	p.client.Close()
	p.newClient(-1)
}

func (p *parties) newClient(patience time.Duration) {
	p.t.Helper()
	begun := time.Now()
	var err error
	p.client, err = client.New(client.Config{
		Key: p.me, Relay: keys.RelayURL{Host: "192.0.2.1", Port: 1, Key: p.relay.key.Public()},
		Connect: p.connect, Patience: patience,
		Clock: func() time.Duration { return time.Since(begun) + time.Duration(p.ahead.client.Load()) },
		Interrupted: func(i client.Interruption) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.told = append(p.told, i)
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.remote = p.client.Executor(p.it.Public())
}

func (p *parties) startRelay() {
	p.t.Helper()
	l, err := quicconn.ListenPacket(p.relay.socket, quicconn.ListenOptions{Secret: p.relay.key.ECDH().Bytes(), DisablePathMTUDiscovery: true})
	if err != nil {
		p.t.Fatal(err)
	}
	p.relay.counts = prometheus.NewRegistry()
	server, err := relay.New(relay.Config{
		Keys:   func() (current, next *keys.PrivateKey) { return p.relay.key, nil },
		Roster: p.relay.roster, Registry: p.relay.counts,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	var ctx context.Context
	ctx, p.relay.cancel = context.WithCancel(context.Background())
	p.relay.ended = make(chan error, 1)
	go func(ended chan error) {
		err := server.Serve(ctx, l)
		ended <- errors.Join(err, l.Close())
	}(p.relay.ended)
}

func (p *parties) stopRelay() {
	p.relay.cancel()
	if err := <-p.relay.ended; err != nil {
		p.t.Errorf("relay: %v", err)
	}
}

func (p *parties) startExecutor() (stop func()) {
	p.t.Helper()
	var err error
	if p.backend, err = executor.NewLocal(executor.LocalConfig{Runner: p.runner}); err != nil {
		p.t.Fatal(err)
	}
	begun := time.Now()
	p.serving, err = executor.New(executor.Config{
		Key: p.it, Name: "it", Relay: p.relay.key.Public(), Clients: admitting(p.t, p.me.Public()), Backend: p.backend,
		Clock: func() time.Duration { return time.Since(begun) + time.Duration(p.ahead.executor.Load()) },
		Dial: func(ctx context.Context) (wire.Transport, error) {
			return quicconn.DialPacket(ctx, p.network.socket(itsHost), p.relay.socket.LocalAddr(),
				quicconn.Options{Role: wire.RoleExecutor, DisablePathMTUDiscovery: true})
		},
		Registered: func(wire.HopWelcome) { p.registered <- time.Now() },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.serving.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
		p.backend.Close()
	}
}

func (p *parties) connect(ctx context.Context) (wire.Transport, error) {
	p.mu.Lock()
	p.connects++
	p.mu.Unlock()
	c, err := quicconn.DialPacket(ctx, p.network.socket(clientHost), p.relay.socket.LocalAddr(),
		quicconn.Options{Role: wire.RoleClient, DisablePathMTUDiscovery: true})
	if err != nil {
		return nil, err
	}
	return &watched{Transport: c, p: p}, nil
}

func (p *parties) opened() (connects int, kinds []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds, p.kinds = p.kinds, nil
	return p.connects, kinds
}

// mine is the client's own view of the executor's machine, without the network.
func (p *parties) mine() *executor.Local {
	return p.backend.As(executor.Caller{Principal: p.me.Public().String()})
}

func (p *parties) command(argv ...string) *client.Cmd {
	return client.Environment{Name: "it", Backend: p.remote}.Command(argv...)
}

// watched is the client's connection; its streams but the first are circuits.
type watched struct {
	wire.Transport
	p       *parties
	streams int
}

func (w *watched) OpenStream(ctx context.Context) (wire.Stream, error) {
	s, err := w.Transport.OpenStream(ctx)
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.streams++; err != nil || w.streams == 1 {
		return s, err
	}
	c := &circuit{Stream: s, p: w.p, cutter: uncut()}
	if w.p.cut != nil {
		c.cutter = w.p.cut()
	}
	return c, nil
}

// circuit notes how it begins, can be cut, and takes what is written without waiting. The last is for
// the simulated clock: it stands still while one goroutine waits for the lock of a Conn that
// another holds in a Write. Credit bounds how much there can be.
type circuit struct {
	wire.Stream
	p      *parties
	cutter *cutter

	mu      sync.Mutex
	writes  int
	queue   []byte
	pumping bool
	closing bool      // CloseWrite, when the queue is empty
	code    wire.Code // Reset then
	err     error
}

func (c *circuit) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.writes++; c.writes == 2 { // the first is for the relay
		c.p.mu.Lock()
		c.p.kinds = append(c.p.kinds, b[0])
		c.p.mu.Unlock()
	}
	c.queue = append(c.queue, b...)
	c.pump()
	return len(b), nil
}

// pump needs mu.
func (c *circuit) pump() {
	if c.pumping {
		return
	}
	c.pumping = true
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for len(c.queue) > 0 && c.err == nil {
			b := c.queue
			c.queue = nil
			c.mu.Unlock()
			n, cut := c.cutter.allow(&c.cutter.written, len(b))
			_, err := c.Stream.Write(b[:n])
			if cut {
				c.Stream.Reset(wire.CodeUnknown)
				err = wire.ErrLost
			}
			c.mu.Lock()
			if err != nil {
				c.err = err
			}
		}
		if c.pumping = false; c.closing && c.err == nil {
			c.Stream.CloseWrite()
			c.err = net.ErrClosed
		}
		if c.code != 0 {
			c.Stream.Reset(c.code)
		}
	}()
}

func (c *circuit) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.pump()
	return nil
}

func (c *circuit) Reset(code wire.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing && c.pumping {
		c.code = code
		c.Stream.SetReadDeadline(time.Unix(1, 0))
		return
	}
	c.Stream.Reset(code)
}

func (c *circuit) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	if _, cut := c.cutter.allow(&c.cutter.read, n); cut {
		c.Stream.Reset(wire.CodeUnknown)
		return 0, wire.ErrLost
	}
	return n, err
}

// cutter ends a circuit when one direction has carried so many bytes.
type cutter struct {
	mu            sync.Mutex
	read, written int64 // left; negative: cut
}

func uncut() *cutter { return &cutter{read: 1 << 40, written: 1 << 40} }

func (c *cutter) allow(left *int64, n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left < 0 {
		return 0, false
	}
	if *left -= int64(n); *left < 0 {
		return int(*left) + n, true
	}
	return n, false
}
