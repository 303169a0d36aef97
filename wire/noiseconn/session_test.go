package noiseconn

import (
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) { wiretest.RunWithoutLeaks(m) }

func TestBothSessionClocksBeginWithTheThirdMessage(t *testing.T) {
	// Two machines whose clocks have nothing in common, and a network that takes no time.
	client, executor := newKey(t, keys.Client), newKey(t, keys.Executor)
	clientNow, executorNow := 1000*time.Hour, 5*time.Second
	a, b := wiretest.Pipe()
	hello := &wire.Hello{Versions: wire.Versions, Random: [32]byte{1}}
	welcome := &wire.Welcome{
		Versions: wire.Versions, Session: wire.ID{2}, Random: [32]byte{3},
		Limits: wire.SessionLimits{Message: 1, Window: 1, Sandbox: 1},
	}
	accepted := make(chan *Conn, 1)
	go func() {
		p, err := Accept(t.Context(), b, ResponderConfig{Static: executor, Prologue: EndToEndPrologue(), Clock: func() time.Duration { return executorNow }})
		if err != nil {
			t.Error(err)
			accepted <- nil
			return
		}
		c, err := p.Accept(welcome)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	i, err := Dial(t.Context(), a, InitiatorConfig{Static: client, Peer: executor.Public().Raw(), Prologue: EndToEndPrologue(), Clock: func() time.Duration { return clientNow }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.Finish(hello)
	if err != nil {
		t.Fatal(err)
	}
	s := <-accepted
	if s == nil {
		t.Fatal("the responder did not accept")
	}
	mine, err := NewSession(c, hello, welcome)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := NewSession(s, hello, welcome)
	if err != nil {
		t.Fatal(err)
	}
	if mine.Clock() != 0 || theirs.Clock() != 0 {
		t.Errorf("clocks begin at %v and %v, want 0", mine.Clock(), theirs.Clock())
	}
	clientNow, executorNow = clientNow+time.Minute, executorNow+time.Minute
	if mine.Clock() != time.Minute || theirs.Clock() != time.Minute {
		t.Errorf("after a minute the clocks are at %v and %v", mine.Clock(), theirs.Clock())
	}
	if mine.ID() != theirs.ID() || mine.secret != theirs.secret {
		t.Error("the two sides founded different sessions")
	}
	if mine.Peer() != executor.Public().Raw() || theirs.Peer() != client.Public().Raw() {
		t.Error("a session of other peers")
	}
	if mine.Channels() != 0 {
		t.Errorf("%d channels, want none", mine.Channels())
	}
}

func TestOtherRandomOnEitherSideIsAnotherSecret(t *testing.T) {
	v := channelVectors()[0]
	found := func(hash, client, executor byte) [32]byte {
		c := &Conn{secrets: &secrets{hash: [32]byte{hash}}}
		s, err := NewSession(c, &wire.Hello{Random: [32]byte{client}}, &wire.Welcome{Session: wire.ID(v.Session), Random: [32]byte{executor}})
		if err != nil {
			t.Fatal(err)
		}
		return s.secret
	}
	seen := map[[32]byte]bool{}
	for _, in := range [][3]byte{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}} {
		if s := found(in[0], in[1], in[2]); seen[s] {
			t.Errorf("inputs %v give a secret that others gave", in)
		} else {
			seen[s] = true
		}
	}
}

func TestClocksDoNotGoBack(t *testing.T) {
	for name, clock := range map[string]Clock{"boot": nil, "process": monotonicClock} {
		last := clock.now()
		for range 1000 {
			now := clock.now()
			if now < last {
				t.Fatalf("%s clock went from %v to %v", name, last, now)
			}
			last = now
		}
	}
}
