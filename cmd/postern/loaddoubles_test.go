//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// loadPeer is a peer of a relay with nothing behind it: real QUIC, the real handshake, heartbeats. An executor sends
// back what comes on a circuit.
type loadPeer struct {
	key      *keys.PrivateKey
	relay    keys.RelayURL
	instance wire.ID
	serve    func(wire.Stream) // of an executor, after Incoming; nil: echo
}

func newLoadPeer(key *keys.PrivateKey, relay keys.RelayURL) *loadPeer {
	return &loadPeer{key: key, relay: relay, instance: wire.ID(wire.NewExecID())}
}

func (p *loadPeer) role() wire.Role {
	if p.key.Kind() == keys.Executor {
		return wire.RoleExecutor
	}
	return wire.RoleClient
}

// join connects once.
func (p *loadPeer) join(ctx context.Context) (*noiseconn.Hop, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	c, err := quicconn.Dial(ctx, net.JoinHostPort(p.relay.Host, strconv.Itoa(int(p.relay.Port))), quicconn.Options{Role: p.role()})
	if err != nil {
		return nil, err
	}
	hop, err := noiseconn.Join(ctx, c, p.key, p.relay.Key, &wire.HopHello{Role: p.role(), Versions: wire.Versions, Instance: p.instance})
	if err != nil {
		_ = c.Close(wire.CodeShutdown, "")
		return nil, err
	}
	return hop, nil
}

// stay keeps an executor registered until ctx ends, with the waits of a real one.
func (p *loadPeer) stay(ctx context.Context) error {
	return quicconn.Redial(ctx, quicconn.Backoff{}, func(ctx context.Context) (time.Time, error) {
		hop, err := p.join(ctx)
		if err != nil {
			return time.Time{}, err
		}
		begun := time.Now()
		err = p.live(ctx, hop)
		if leaving := hop.Leaving(); leaving != nil {
			err = leaving
		}
		return begun, err
	})
}

// live serves one connection until it ends.
func (p *loadPeer) live(ctx context.Context, hop *noiseconn.Hop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var circuits sync.WaitGroup
	defer circuits.Wait()
	defer hop.Transport.Close(wire.CodeShutdown, "")
	circuits.Go(func() {
		for {
			s, err := hop.Transport.AcceptStream(ctx)
			if err != nil {
				return
			}
			circuits.Go(func() {
				if _, err := wire.ReadFrame(s); err != nil {
					s.Reset(wire.CodeProtocol)
					return
				}
				if p.serve != nil {
					p.serve(s)
					return
				}
				if _, err := io.Copy(s, s); err != nil {
					s.Reset(wire.CodeCancelled)
					return
				}
				_ = s.CloseWrite()
				s.Reset(wire.CodeCancelled)
			})
		}
	})
	return hop.Run(ctx, wire.ExecutorHeartbeat)
}

// loadClient is a client's connection.
type loadClient struct {
	hop    *noiseconn.Hop
	cancel context.CancelFunc
	ended  chan struct{}
}

func (p *loadPeer) client(ctx context.Context) (*loadClient, error) {
	hop, err := p.join(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &loadClient{hop, cancel, make(chan struct{})}
	go func() {
		defer close(c.ended)
		_ = hop.Run(ctx, wire.ClientHeartbeat)
	}()
	return c, nil
}

func (c *loadClient) close() {
	c.cancel()
	_ = c.hop.Transport.Close(wire.CodeShutdown, "")
	<-c.ended
}

// dial begins a circuit. A refusal is a *wire.Error.
func (c *loadClient) dial(ctx context.Context, executor keys.PublicKey) (wire.Stream, error) {
	s, err := c.hop.Transport.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	if err := wire.WriteFrame(s, &wire.Dial{Executor: executor.Raw()}); err != nil {
		return nil, err
	}
	m, err := wire.ReadFrame(s)
	if err != nil {
		return nil, err
	}
	reply, ok := m.(*wire.DialReply)
	if !ok {
		return nil, errors.New("a dial was answered with something else")
	}
	if reply.Err() != nil {
		s.Reset(wire.CodeCancelled)
		return nil, reply.Err()
	}
	return s, nil
}

// roundTrip sends a message of so many bytes there and back.
func roundTrip(s wire.Stream, size int) (time.Duration, error) {
	b := make([]byte, size)
	begun := time.Now()
	if _, err := s.Write(b); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(s, b); err != nil {
		return 0, fmt.Errorf("echo: %w", err)
	}
	return time.Since(begun), nil
}
