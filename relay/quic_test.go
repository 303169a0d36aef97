package relay_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// dialQUIC connects to a relay, or whatever is at address, on loopback.
func dialQUIC(t *testing.T, address string, o quicconn.Options) *quicconn.Conn {
	t.Helper()
	c, err := relaytest.Dial(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(wire.CodeShutdown, "test is over") })
	return c
}

func overQUIC(t *testing.T, r *relaytest.Relay, kind keys.Kind) *peer {
	t.Helper()
	key := r.NewPeer(kind)
	h := hello(key)
	return joinBy(t, func() wire.Transport { return dialQUIC(t, r.Address(), quicconn.Options{Role: h.Role}) }, r, key, h)
}

func TestCircuitOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	executor, client := overQUIC(t, r, keys.Executor), overQUIC(t, r, keys.Client)
	c, e := circuit(t, client, executor)
	const size = 8 << 20 // more than all windows on the way
	go func() {
		_, _ = io.Copy(e, e)
		_ = e.CloseWrite()
	}()
	go func() {
		for sent := 0; sent < size; sent += 32 << 10 {
			_, _ = c.Write(make([]byte, 32<<10))
		}
		_ = c.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, c); err != nil || n != size {
		t.Errorf("%d bytes came back, %v, want %d and a clean end", n, err, size)
	}
	for _, code := range []wire.Code{wire.CodeCancelled, wire.CodeNoChannel} {
		c, e := circuit(t, client, executor)
		c.Reset(code)
		wantCode(t, "executor's read", wire.CodeOf(readErr(e)), code)
		c, e = circuit(t, client, executor)
		e.Reset(code)
		wantCode(t, "client's read", wire.CodeOf(readErr(c)), code)
	}
	c, _ = circuit(t, client, executor)
	_ = executor.Close(wire.CodeShutdown, "bye")
	wantCode(t, "client's read after the executor left", wire.CodeOf(readErr(c)), wire.CodeUnknown)
}

func TestManyCircuitsGiveTheirStreamsBack(t *testing.T) {
	r := relaytest.Start(t)
	key := r.NewPeer(keys.Executor)
	const atOnce = 4 // streams that the executor allows at a time: one that leaks is missed soon
	executor := join(t, dialQUIC(t, r.Address(), quicconn.Options{Role: wire.RoleExecutor, MaxStreams: atOnce}), r, key, hello(key))
	client := overQUIC(t, r, keys.Client)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = executor.Close(wire.CodeShutdown, "done") }()
	serving.Go(func() {
		for {
			s, err := executor.AcceptStream(context.Background())
			if err != nil {
				return
			}
			if _, err := wire.ReadFrame(s); err == nil {
				_, _ = io.Copy(s, s)
				_ = s.CloseWrite()
			}
			s.Reset(wire.CodeCancelled)
		}
	})
	busy := 0
	for done := 0; done < 200; {
		s := client.ask(key.Public())
		reply := client.reply(s)
		if reply.Code == wire.CodeBusy { // the credit for a stream that ended is on its way
			busy++
			continue
		}
		if reply.Err() != nil {
			t.Fatal(reply.Err())
		}
		say(t, s, "hello")
		_ = s.CloseWrite()
		if done++; done%5 == 0 {
			s.Reset(wire.CodeCancelled)
		} else if got := readAll(t, s); got != "hello" {
			t.Fatalf("echo %q", got)
		}
	}
	t.Logf("%d dials were told to come back", busy)
}

func TestExecutorAtItsStreamLimitIsBusyOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	key := r.NewPeer(keys.Executor)
	executor := join(t, dialQUIC(t, r.Address(), quicconn.Options{Role: wire.RoleExecutor, MaxStreams: 1}), r, key, hello(key))
	client := overQUIC(t, r, keys.Client)
	circuit(t, client, executor)
	reply := client.reply(client.ask(key.Public()))
	if e, ok := errors.AsType[*wire.Error](reply.Err()); !ok || e.Code != wire.CodeBusy || e.RetryAfter <= 0 {
		t.Errorf("second circuit: %+v, want busy with a retry-after", reply)
	}
}

func TestRestartedRelayIsNoticedByTheNextHeartbeat(t *testing.T) {
	r := relaytest.Start(t)
	executor := overQUIC(t, r, keys.Executor)
	r.Crash()
	r.Restart()
	if err := executor.control.Send(&wire.HopPing{Number: 1}); err != nil {
		t.Fatal(err)
	}
	_, err := executor.control.Recv()
	// Not the idle timeout of 30 s: the restarted relay says that it knows no such connection.
	if !errors.Is(err, wire.ErrLost) || !strings.Contains(err.Error(), "stateless reset") {
		t.Errorf("control stream ended with %v, want a loss by stateless reset", err)
	}
	join(t, dialQUIC(t, r.Address(), quicconn.Options{Role: wire.RoleExecutor}), r, executor.key, hello(executor.key))
}

func TestStoppedRelaySaysGoodbyeOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	executor, client := overQUIC(t, r, keys.Executor), overQUIC(t, r, keys.Client)
	r.Stop()
	wantCode(t, "executor", ended(t, executor), wire.CodeShutdown)
	wantCode(t, "client", ended(t, client), wire.CodeShutdown)
}

// middle terminates TLS between a client and a relay and passes on every byte of every
// stream as it is. It returns the address to give to the client.
func middle(t *testing.T, relayAddress string) string {
	t.Helper()
	l, err := quicconn.Listen("127.0.0.1:0", quicconn.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = l.Close()
	})
	pass := func(to, from wire.Stream) {
		if _, err := io.Copy(to, from); err == nil {
			_ = to.CloseWrite()
			return
		}
		to.Reset(wire.CodeUnknown)
		from.Reset(wire.CodeUnknown)
	}
	running.Go(func() {
		victim, err := l.Accept(ctx)
		if err != nil {
			return
		}
		far, err := relaytest.Dial(ctx, relayAddress, quicconn.Options{Role: wire.RoleClient})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = victim.Close(wire.CodeShutdown, ""); _ = far.Close(wire.CodeShutdown, "") }()
		stop := context.AfterFunc(far.Context(), func() { _ = victim.Close(wire.CodeOf(context.Cause(far.Context())), "") })
		defer stop()
		for {
			a, err := victim.AcceptStream(ctx)
			if err != nil {
				return
			}
			b, err := far.OpenStream(ctx)
			if err != nil {
				return
			}
			running.Go(func() { pass(b, a) })
			running.Go(func() { pass(a, b) })
		}
	})
	return l.Addr().String()
}

// unbound is a transport that pretends to have no channel binding, and unboundListener a
// relay's listener whose transports do: what both ends would be without one.
type unbound struct{ wire.Transport }

func (unbound) Binding() []byte { return nil }

type unboundListener struct{ *quicconn.Listener }

func (l unboundListener) Accept(ctx context.Context) (wire.Transport, error) {
	t, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return unbound{t}, nil
}

func TestMiddleIsRejectedByTheBinding(t *testing.T) {
	r := relaytest.Start(t)
	client := r.NewPeer(keys.Client)
	through := dialQUIC(t, middle(t, r.Address()), quicconn.Options{Role: wire.RoleClient})
	_, _, err := shake(t.Context(), through, r.Key.Public(), client, hello(client))
	if err == nil {
		t.Fatal("a middle that terminates TLS has an authenticated connection now")
	}
	wantCode(t, "victim's connection", ended(t, through), wire.CodeProtocol)
	if n := value(t, r, "handshakes_total", "bad_auth", "unknown"); n != 1 {
		t.Errorf("relay counted %v failed authentications, want 1", n)
	}
	direct := dialQUIC(t, r.Address(), quicconn.Options{Role: wire.RoleClient})
	if _, _, err := shake(t.Context(), direct, r.Key.Public(), client, hello(client)); err != nil {
		t.Errorf("without the middle: %v", err)
	}
}

// The counterpart shows that it is the binding which rejects the middle, and nothing
// else.
func TestMiddleWouldSucceedWithoutTheBinding(t *testing.T) {
	l, err := quicconn.Listen("127.0.0.1:0", quicconn.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := relaytest.Serve(t, unboundListener{l}, relay.Limits{})
	client := r.NewPeer(keys.Client)
	through := dialQUIC(t, middle(t, l.Addr().String()), quicconn.Options{Role: wire.RoleClient})
	if _, _, err := shake(t.Context(), unbound{through}, r.Key.Public(), client, hello(client)); err != nil {
		t.Fatalf("handshake through the middle: %v: then TestMiddleIsRejectedByTheBinding proves nothing", err)
	}
}

// What clients do not take must not stay in the window of the executor's connection, which all
// their neighbours share.
func TestCircuitsThatStandStillDoNotHoldUpTheirNeighbours(t *testing.T) {
	r := relaytest.Start(t)
	executor := overQUIC(t, r, keys.Executor)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer func() { _ = executor.Close(wire.CodeShutdown, "done") }()
	for range 8 {
		stuck := overQUIC(t, r, keys.Client)
		_, full := circuit(t, stuck, executor) // its client never reads
		writing.Go(func() {
			for left := wire.OutputWindow; left > 0; left -= 32 << 10 {
				if _, err := full.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		})
		c, e := circuit(t, overQUIC(t, r, keys.Client), executor)
		for range 20 {
			say(t, e, "down")
			wantSaid(t, c, "down")
			say(t, c, "up")
			wantSaid(t, e, "up")
		}
		c.Reset(wire.CodeCancelled)
	}
}

// wantSaid reads what say wrote, within a time that only a circuit that stands still needs.
func wantSaid(t *testing.T, s wire.Stream, text string) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v, want %q", got, err, text)
	}
}
