//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// churn is peers of one relay that come and go.
type churn struct {
	relay   *loadRelay
	kill    bool
	list    []string
	members [][]*keys.PrivateKey

	mu   sync.Mutex
	done map[string]int
}

const (
	soakExecutors = 6 // of each tenant
	soakClients   = 3
)

func newChurn(t *testing.T, r *loadRelay, kill bool) *churn {
	c := &churn{relay: r, kill: kill, done: make(map[string]int)}
	c.list, c.members = soakList(t, []string{"", "bytes/s=2M circuits=20", "conns=7 execs=5"}, soakExecutors, soakClients)
	return c
}

func (c *churn) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[what]++
}

func (c *churn) counts() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c.done)) {
		all = append(all, fmt.Sprintf("%d %s", c.done[what], what))
	}
	return strings.Join(all, ", ")
}

// wantAll fails when something never happened: then the soak shows less than it says.
func (c *churn) wantAll(t *testing.T) {
	t.Helper()
	want := []string{"circuits ended in order", "circuits reset by the client", "circuits reset by the executor", "dials refused", "hostile headers", "executors left", "clients left"}
	if c.kill {
		want = append(want, "executors killed", "clients killed")
	}
	for _, what := range want {
		if c.done[what] == 0 {
			t.Errorf("there were no %s", what)
		}
	}
}

// run has everybody come and go for so long, and returns when all have gone.
func (c *churn) run(t *testing.T, long time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var all sync.WaitGroup
	for _, tenant := range c.members {
		var executors []keys.PublicKey
		for _, key := range tenant[:soakExecutors] {
			executors = append(executors, key.Public())
		}
		for _, key := range tenant {
			all.Go(func() {
				for ctx.Err() == nil {
					if key.Kind() == keys.Executor {
						c.executor(ctx, key)
					} else {
						c.client(ctx, key, executors)
					}
					pause(ctx, 200)
				}
			})
		}
	}
	all.Wait()
}

// pause waits for a random time of so many milliseconds at most.
func pause(ctx context.Context, most int) {
	select {
	case <-time.After(time.Duration(rand.IntN(most)) * time.Millisecond):
	case <-ctx.Done():
	}
}

// join connects over a socket of its own; drop ends the connection without a word to the relay.
func (c *churn) join(ctx context.Context, key *keys.PrivateKey) (hop *noiseconn.Hop, drop func(), err error) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	p := newLoadPeer(key, c.relay.url)
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(c.relay.address))
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	q, err := quicconn.DialPacket(ctx, socket, to, quicconn.Options{Role: p.role()})
	if err == nil {
		hop, err = noiseconn.Join(ctx, q, key, c.relay.url.Key, &wire.HopHello{Role: p.role(), Versions: wire.Versions, Instance: p.instance})
		if err != nil {
			_ = q.Close(wire.CodeShutdown, "")
		}
	}
	if err != nil {
		_ = socket.Close()
		return nil, nil, err
	}
	return hop, func() { _ = socket.Close() }, nil
}

// leave ends a connection in order or, sometimes, as a killed process does.
func (c *churn) leave(who string, hop *noiseconn.Hop, drop func()) {
	if c.kill && rand.IntN(8) == 0 {
		drop()
		_ = hop.Transport.Close(wire.CodeShutdown, "") // into a closed socket
		c.count(who + " killed")
		return
	}
	_ = hop.Transport.Close(wire.CodeShutdown, "")
	drop()
	c.count(who + " left")
}

func (c *churn) executor(ctx context.Context, key *keys.PrivateKey) {
	hop, drop, err := c.join(ctx, key)
	if err != nil {
		c.count("executors refused")
		return
	}
	p := newLoadPeer(key, c.relay.url)
	p.serve = c.serve
	stay, cancel := context.WithTimeout(ctx, time.Duration(200+rand.IntN(3000))*time.Millisecond)
	defer cancel()
	var living sync.WaitGroup
	living.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stop := context.AfterFunc(hop.Transport.Context(), cancel)
		defer stop()
		_ = p.live(ctx, hop)
	})
	<-stay.Done()
	c.leave("executors", hop, drop)
	living.Wait()
}

// serve is what an executor does with a circuit.
func (c *churn) serve(s wire.Stream) {
	defer s.Reset(wire.CodeCancelled) // after a clean end it changes nothing
	switch rand.IntN(8) {
	case 0: // resets in the middle
		_, _ = io.CopyN(s, s, 1000)
		s.Reset(wire.CodeNoChannel)
		c.count("circuits reset by the executor")
	case 1: // has nothing to say
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, s)
	case 2: // reads late, so that the relay holds something
		<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
		fallthrough
	default:
		if _, err := io.Copy(s, s); err == nil {
			_ = s.CloseWrite()
		}
	}
}

func (c *churn) client(ctx context.Context, key *keys.PrivateKey, executors []keys.PublicKey) {
	hop, drop, err := c.join(ctx, key)
	if err != nil {
		c.count("clients refused")
		return
	}
	l := &loadClient{hop: hop}
	var circuits sync.WaitGroup
	for range 1 + rand.IntN(5) {
		circuits.Go(func() {
			for range 1 + rand.IntN(5) {
				if ctx.Err() == nil {
					c.circuit(ctx, l, executors[rand.IntN(len(executors))])
				}
			}
		})
	}
	if rand.IntN(4) > 0 { // else it goes in the middle
		circuits.Wait()
	} else {
		pause(ctx, 300)
	}
	if rand.IntN(10) == 0 { // says what no client says, and is thrown out
		if s, err := hop.Transport.OpenStream(ctx); err == nil {
			_, _ = s.Write([]byte{0xff, 0xff, 1, 2, 3})
			c.count("hostile headers")
			pause(ctx, 100)
		}
	}
	c.leave("clients", hop, drop)
	circuits.Wait()
}

func (c *churn) circuit(ctx context.Context, l *loadClient, executor keys.PublicKey) {
	s, err := l.dial(ctx, executor)
	if err != nil {
		if _, refused := errors.AsType[*wire.Error](err); refused {
			c.count("dials refused")
		}
		pause(ctx, 50)
		return
	}
	defer s.Reset(wire.CodeCancelled)
	size := rand.IntN(1 << (8 + rand.IntN(13)))
	var sent sync.WaitGroup
	sent.Go(func() {
		if _, err := s.Write(make([]byte, size)); err == nil {
			_ = s.CloseWrite()
		}
	})
	defer sent.Wait()
	if rand.IntN(4) == 0 {
		_ = s.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(50)) * time.Millisecond))
		_, _ = io.Copy(io.Discard, s)
		s.Reset(wire.CodeCancelled)
		c.count("circuits reset by the client")
		return
	}
	if _, err := io.Copy(io.Discard, s); err == nil {
		c.count("circuits ended in order")
	} else {
		c.count("circuits broken")
		s.Reset(wire.CodeCancelled)
	}
}
