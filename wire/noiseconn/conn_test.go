package noiseconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// pair is a finished end-to-end handshake, both sessions founded.
type pair struct {
	client, server               *Conn
	clientSession, serverSession *Session
}

func newKey(t testing.TB, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	k, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func handshake(t testing.TB) pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client, executor := newKey(t, keys.Client), newKey(t, keys.Executor)
	a, b := wiretest.Pipe()
	var p pair
	welcome := &wire.Welcome{
		Versions: wire.Versions, Session: wire.ID{7}, Random: [32]byte{8},
		Limits: wire.SessionLimits{Message: wire.MaxMessage, Window: wire.OutputWindow, Sandbox: uint8(wire.SandboxWorkspaceWrite)},
	}
	done := make(chan error, 1)
	go func() {
		pending, err := Accept(ctx, b, ResponderConfig{Static: executor, Prologue: EndToEndPrologue(), Epoch: wire.ID{9}})
		if err != nil {
			done <- err
			return
		}
		hello, err := wire.DecodeAs[*wire.Hello](pending.Hello())
		if err != nil {
			done <- err
			return
		}
		if pending.Peer() != client.Public().Raw() {
			done <- errors.New("wrong client key")
			return
		}
		if p.server, err = pending.Accept(welcome); err == nil {
			p.serverSession, err = NewSession(p.server, hello, welcome)
		}
		done <- err
	}()
	i, err := Dial(ctx, a, InitiatorConfig{Static: client, Peer: executor.Public().Raw(), Prologue: EndToEndPrologue()})
	if err != nil {
		t.Fatal(err)
	}
	if i.Epoch() != (wire.ID{9}) {
		t.Fatalf("epoch %x", i.Epoch())
	}
	hello := &wire.Hello{Versions: wire.Versions, Random: [32]byte{6}}
	if p.client, err = i.Finish(hello); err != nil {
		t.Fatal(err)
	}
	m, err := p.client.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if p.clientSession, err = NewSession(p.client, hello, m.(*wire.Welcome)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return p
}

// channel opens channel n of a session over a pipe of its own.
func (p pair) channel(t testing.TB, first wire.Message) (client, server *Conn) {
	t.Helper()
	a, b := wiretest.Pipe()
	client, err := p.clientSession.OpenChannel(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Send(first); err != nil {
		t.Fatal(err)
	}
	in, err := AcceptAny(t.Context(), b, ResponderConfig{}, func(id wire.ID) *Session {
		if id == p.serverSession.ID() {
			return p.serverSession
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, in.Conn
}

func TestChannelZeroCarriesMessagesBothWays(t *testing.T) {
	p := handshake(t)
	checkBothWays(t, p.client, p.server)
}

func TestDerivedChannelCarriesMessagesBothWays(t *testing.T) {
	p := handshake(t)
	for range 3 {
		client, server := p.channel(t, &wire.Ping{Clock: 5})
		if m, err := server.Recv(); err != nil || m.(*wire.Ping).Clock != 5 {
			t.Fatalf("first message: %v %v", m, err)
		}
		checkBothWays(t, client, server)
	}
}

func checkBothWays(t *testing.T, a, b *Conn) {
	t.Helper()
	for _, dir := range []struct{ from, to *Conn }{{a, b}, {b, a}} {
		sizes := []int{0, 1, 255, 4096, 32 << 10, 32<<10 + 1, 65000, 300000}
		go func() {
			for i, n := range sizes {
				dir.from.Send(&wire.Output{Seq: uint64(i + 1), Stream: wire.Stdout, Data: bytes.Repeat([]byte{byte(n)}, n)})
			}
			dir.from.CloseWrite()
		}()
		for i, n := range sizes {
			m, err := dir.to.Recv()
			if err != nil {
				t.Fatal(err)
			}
			o := m.(*wire.Output)
			if o.Seq != uint64(i+1) || !bytes.Equal(o.Data, bytes.Repeat([]byte{byte(n)}, n)) {
				t.Fatalf("message %d of %d bytes arrived as number %d with %d", i+1, n, o.Seq, len(o.Data))
			}
		}
		if m, err := dir.to.Recv(); err != io.EOF {
			t.Fatalf("after the end: %v %v, want io.EOF", m, err)
		}
	}
}

func TestUnknownSessionIsNoChannel(t *testing.T) {
	p := handshake(t)
	a, b := wiretest.Pipe()
	client, err := p.clientSession.OpenChannel(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Send(&wire.Ping{}); err != nil {
		t.Fatal(err)
	}
	if _, err := AcceptAny(t.Context(), b, ResponderConfig{}, func(wire.ID) *Session { return nil }); wire.CodeOf(err) != wire.CodeNoChannel {
		t.Fatalf("the executor says %v", err)
	}
	if _, err := client.Recv(); wire.CodeOf(err) != wire.CodeNoChannel {
		t.Fatalf("the client hears %v", err)
	}
}
