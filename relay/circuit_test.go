package relay_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

func TestCircuitTellsTheExecutorItsNumberAndTheClientsKey(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	seen := make(map[uint64]bool)
	for range 3 {
		s := client.ask(executor.key.Public())
		say(t, s, "may be sent at once") // before the reply
		reply := client.reply(s)
		e, in := executor.incoming()
		if reply.Err() != nil || reply.Circuit == 0 || reply.Circuit != in.Circuit || seen[in.Circuit] {
			t.Fatalf("reply %+v, incoming %+v, want the same new number", reply, in)
		}
		seen[in.Circuit] = true
		if in.Client != client.key.Public().Raw() {
			t.Error("incoming has another client's key")
		}
		hear(t, e, "may be sent at once")
		say(t, e, "answer")
		hear(t, s, "answer")
	}
}

// rawReply is everything that comes back on a refused dial.
func rawReply(t *testing.T, client *peer, executor keys.PublicKey) string {
	t.Helper()
	b, err := io.ReadAll(client.ask(executor))
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

func TestUnknownOfflineAndForeignExecutorsAnswerAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		client, left, removed := r.newPeer(t, keys.Client), r.newPeer(t, keys.Executor), r.newPeer(t, keys.Executor)
		_ = left.Close(wire.CodeShutdown, "bye")
		r.Remove(removed.key.Public())
		synctest.Wait()
		want := rawReply(t, client, generate(t, keys.Executor).Public())
		for name, key := range map[string]keys.PublicKey{
			"listed, never here":  r.NewPeer(keys.Executor).Public(),
			"listed, gone":        left.key.Public(),
			"not listed any more": removed.key.Public(),
			"a client's key":      client.key.Public(),
			"the relay's key":     r.Key.Public(),
		} {
			if got := rawReply(t, client, key); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		m, err := wire.ReadFrame(client.ask(generate(t, keys.Executor).Public()))
		if reply, ok := m.(*wire.DialReply); !ok || reply.Code != wire.CodeUnreachable {
			t.Errorf("answer %#v, %v, want code %v", m, err, wire.CodeUnreachable)
		}
	})
}

func TestHalfCloseGoesThroughInEitherOrder(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	for _, first := range []string{"client", "executor"} {
		t.Run(first+" first", func(t *testing.T) {
			a, b := circuit(t, client, executor)
			if first == "executor" {
				a, b = b, a
			}
			say(t, a, "last words")
			if err := a.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, b); got != "last words" {
				t.Errorf("read %q", got)
			}
			say(t, b, "still here") // the other direction is open
			hear(t, a, "still here")
			if err := b.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, a); got != "" {
				t.Errorf("read %q after the end", got)
			}
		})
	}
}

func TestResetGoesThroughWithItsCodeInBothDirections(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	for _, who := range []string{"client", "executor"} {
		for _, code := range []wire.Code{wire.CodeCancelled, wire.CodeNoChannel, 4711} {
			a, b := circuit(t, client, executor)
			if who == "executor" {
				a, b = b, a
			}
			say(t, a, "x")
			hear(t, b, "x")
			a.Reset(code)
			wantCode(t, who+" resets: read", wire.CodeOf(readErr(b)), code)
			wantCode(t, who+" resets: write", wire.CodeOf(writeErr(b)), code)
		}
	}
}

func TestEndThatStopsReadingStillDeliversWhatItSaid(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	c, e := circuit(t, client, executor)
	output := bytes.Repeat([]byte("output "), 5000)
	if _, err := e.Write(output); err != nil {
		t.Fatal(err)
	}
	if err := e.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	e.Reset(wire.CodeEnded) // the command is over: no more input is wanted
	wantCode(t, "client's write", wire.CodeOf(writeErr(c)), wire.CodeEnded)
	if got := readAll(t, c); got != string(output) {
		t.Errorf("client read %d bytes, want %d", len(got), len(output))
	}
}

func TestEndOfOneConnectionResetsTheOtherSideAsUnknown(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	// Superseded, unauthorized and the like say something to the peer that was closed, and
	// something wrong to the one at the other end.
	for _, code := range []wire.Code{wire.CodeSuperseded, wire.CodeShutdown} {
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		c, _ := circuit(t, client, executor)
		_ = executor.Close(code, "gone")
		wantCode(t, "client's read", wire.CodeOf(readErr(c)), wire.CodeUnknown)

		executor = r.newPeer(t, keys.Executor)
		_, e := circuit(t, client, executor)
		_ = client.Close(code, "gone")
		wantCode(t, "executor's read", wire.CodeOf(readErr(e)), wire.CodeUnknown)
	}
}

func TestEndOfAConnectionIsNoticedWhileTheOtherSideReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		c, e := circuit(t, client, executor)
		go func() { _ = writeErr(c) }() // fills everything up to the executor
		synctest.Wait()
		start := time.Now()
		_ = client.Close(wire.CodeShutdown, "gone")
		synctest.Wait()
		wantCode(t, "executor's read", wire.CodeOf(readErr(e)), wire.CodeUnknown)
		if time.Since(start) != 0 {
			t.Errorf("circuit stayed for %v", time.Since(start))
		}
	})
}

func TestSideThatTakesNothingForHalfAMinuteEndsTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		c, e := circuit(t, client, executor)
		start := time.Now()
		wantCode(t, "sender", wire.CodeOf(writeErr(e)), wire.CodeTimeout)
		if took := time.Since(start); took < 30*time.Second || took > time.Minute {
			t.Errorf("circuit ended after %v, want 30s to 60s", took)
		}
		wantCode(t, "sleeper", wire.CodeOf(readErr(c)), wire.CodeTimeout)
		// A slow reader is no sleeper.
		c, e = circuit(t, client, executor)
		sent := make(chan error, 1)
		go func() {
			_, err := e.Write(make([]byte, 400<<10))
			_ = e.CloseWrite()
			sent <- err
		}()
		for b := make([]byte, 8<<10); ; time.Sleep(20 * time.Second) { // fake time
			if _, err := io.ReadFull(c, b); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

func TestThousandCircuitsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{ClientCircuits: 8, ExecutorCircuits: 8})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		go func() {
			for {
				s, err := executor.AcceptStream(t.Context())
				if err != nil {
					return
				}
				go func() { // an echo
					if _, err := wire.ReadFrame(s); err != nil {
						return
					}
					_, err := io.Copy(s, s)
					if err == nil {
						_ = s.CloseWrite()
					}
					s.Reset(wire.CodeCancelled)
				}()
			}
		}()
		for round := range 125 {
			var wg sync.WaitGroup
			for n := range 8 { // as many as are allowed: one that is left over would be missed
				s := client.ask(executor.key.Public())
				if reply := client.reply(s); reply.Err() != nil {
					t.Fatalf("round %d: %v", round, reply.Err())
				}
				wg.Go(func() {
					_, _ = io.WriteString(s, "hello")
					switch n % 3 {
					case 0:
						s.Reset(wire.CodeCancelled)
					default:
						_ = s.CloseWrite()
						if b, err := io.ReadAll(s); err != nil || string(b) != "hello" {
							t.Errorf("echo %q, %v", b, err)
						}
					}
				})
			}
			wg.Wait()
			synctest.Wait()
		}
		if n := value(t, r.Relay, "circuits"); n != 0 {
			t.Errorf("%v circuits are open, want none", n)
		}
		if n := value(t, r.Relay, "dials_total", "ok"); n != 1000 {
			t.Errorf("%v dials counted, want 1000", n)
		}
		if n := value(t, r.Relay, "circuit_ends_total", "ok"); n != 625 {
			t.Errorf("%v clean ends counted, want 625", n)
		}
		if n := value(t, r.Relay, "circuit_ends_total", "cancelled"); n != 375 {
			t.Errorf("%v cancelled circuits counted, want 375", n)
		}
		if up, down := value(t, r.Relay, "relayed_bytes_total", "to_executor"), value(t, r.Relay, "relayed_bytes_total", "to_client"); up < 3125 || down < 3125 {
			t.Errorf("relayed %v bytes up and %v down, want at least 3125", up, down)
		}
		// Nothing of 1000 circuits is left: the bubble would not end with their goroutines.
		_ = client.Close(wire.CodeShutdown, "done")
		_ = executor.Close(wire.CodeShutdown, "done")
	})
}

func TestMetricsHaveAClosedSetOfLabelValues(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	count := func() (n int) {
		families, err := r.Metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetHelp() == "" {
				t.Errorf("%s has no help", f.GetName())
			}
			n += len(f.GetMetric())
		}
		return n
	}
	before := count()
	if before == 0 {
		t.Fatal("no series before the first connection: rates would miss its first event")
	}
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	c, _ := circuit(t, client, executor)
	c.Reset(4711)
	client.reply(client.ask(generate(t, keys.Executor).Public()))
	stranger := generate(t, keys.Client)
	_, _, _ = shake(t.Context(), r.dial(t), r.Key.Public(), stranger, hello(stranger))
	r.Remove(executor.key.Public())
	if after := count(); after != before {
		t.Errorf("%d series before, %d after some traffic", before, after)
	}
}
