package relay_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

func TestLimitsOnCircuitsAnswerBusy(t *testing.T) {
	cases := []struct {
		name   string
		limits relay.Limits
	}{
		{"of the client's key", relay.Limits{ClientCircuits: 2}},
		{"of the executor", relay.Limits{ExecutorCircuits: 2}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, c.limits)
				executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
				again := r.join(t, client.key, hello(client.key)) // counts together with client
				first, _ := circuit(t, client, executor)
				circuit(t, again, executor)
				s := client.ask(executor.key.Public())
				reply := client.reply(s)
				e, _ := errors.AsType[*wire.Error](reply.Err())
				if e == nil || e.Code != wire.CodeBusy || e.RetryAfter <= 0 {
					t.Fatalf("third circuit: %+v, want busy with a retry-after", reply)
				}
				if err := readErr(s); err != nil {
					t.Errorf("after the answer: %v, want a clean end", err)
				}
				first.Reset(wire.CodeCancelled)
				synctest.Wait()
				circuit(t, client, executor)
			})
		})
	}
}

func TestExecutorThatAcceptsNothingIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		start := time.Now()
		for {
			reply := client.reply(client.ask(executor.key.Public()))
			if reply.Code == wire.CodeBusy {
				break
			}
			if reply.Code != 0 {
				t.Fatalf("reply %+v, want ok until the executor is full, then busy", reply)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("the relay waited %v for an executor that is full", time.Since(start))
		}
	})
}

func TestDialHasFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		client := r.newPeer(t, keys.Client)
		start := time.Now()
		silent, err := client.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slow, err := client.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slow.Write([]byte{0, 40, 0xa2}); err != nil {
			t.Fatal(err)
		}
		for _, s := range []wire.Stream{silent, slow} {
			wantCode(t, "late dial", wire.CodeOf(readErr(s)), wire.CodeTimeout)
		}
		if took := time.Since(start); took != wire.HeaderTimeout {
			t.Errorf("stream ended after %v, want %v", took, wire.HeaderTimeout)
		}
		if client.Context().Err() != nil {
			t.Error("one late stream ended the connection")
		}
	})
}

func TestClientThatBreaksTheProtocolLosesItsConnectionOnly(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, other := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	c, e := circuit(t, other, executor)
	incoming := new(bytes.Buffer)
	if err := wire.WriteFrame(incoming, &wire.Incoming{Circuit: 1, Client: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"header above 1 KiB": {0x04, 0x01},
		"huge header":        {0xff, 0xff},
		"empty header":       {0, 0},
		"garbage":            {0, 3, 1, 2, 3},
		"another message":    incoming.Bytes(),
		"second handshake":   append([]byte{wire.Version, 0x04, 0xd0}, make([]byte, 1232)...),
	} {
		t.Run(name, func(t *testing.T) {
			hostile := r.newPeer(t, keys.Client)
			s, err := hostile.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(b); err != nil {
				t.Fatal(err)
			}
			wantCode(t, "close", ended(t, hostile), wire.CodeProtocol)
		})
	}
	say(t, c, "undisturbed")
	hear(t, e, "undisturbed")
}

func TestClientThatGivesUpItsStreamKeepsItsConnection(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	for _, end := range []func(wire.Stream){
		func(s wire.Stream) { s.Reset(wire.CodeProtocol) }, // its word, not the relay's finding
		func(s wire.Stream) { _ = s.CloseWrite() },
		func(s wire.Stream) { _, _ = s.Write([]byte{0}); _ = s.CloseWrite() },
	} {
		s, err := client.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		end(s)
		if err := readErr(s); err == nil {
			t.Error("a stream without a dial was answered")
		}
	}
	circuit(t, client, executor)
}

func TestExecutorThatAsksForAnExecutorLosesItsConnection(t *testing.T) {
	for name, m := range map[string]wire.Message{
		"dial": &wire.Dial{Executor: [32]byte{1}}, "list": &wire.ListExecutors{}, "tokens": &wire.ListTokens{},
		"token":    &wire.AddToken{ID: wire.ID{1}, Hash: [32]byte{1}, Pattern: "*", Uses: 1, TTLMillis: 1},
		"a record": &wire.Ping{},
	} {
		r := inMemory(t, relay.Limits{})
		executor := r.newPeer(t, keys.Executor)
		s, err := executor.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.WriteFrame(s, m); err != nil {
			t.Fatal(err)
		}
		wantCode(t, name, ended(t, executor), wire.CodeProtocol)
	}
}
