package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// goaway reads the next message on the control stream, which must be one.
func (p *peer) goaway() *wire.HopGoaway {
	p.t.Helper()
	_ = p.control.SetReadDeadline(time.Now().Add(time.Minute)) // none in place of a goaway is seen too
	m, err := p.control.Recv()
	if err != nil {
		p.t.Fatalf("control stream: %v, want a goaway", err)
	}
	g, ok := m.(*wire.HopGoaway)
	if !ok {
		p.t.Fatalf("got a %T, want a goaway", m)
	}
	return g
}

func TestDrainTellsEveryPeerWithinTheSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		const peers = 300 // two seconds' worth
		all := make([]*peer, 0, peers)
		key := r.NewPeer(keys.Client)
		for range peers - 200 {
			all = append(all, r.join(t, key, hello(key)))
		}
		executor := r.newPeer(t, keys.Executor)
		all = append(all, executor)
		other := r.NewPeer(keys.Client)
		for range 199 {
			all = append(all, r.join(t, other, hello(other)))
		}
		r.Drain(t.Context())
		const over = 2000
		var least, most uint64 = over, 0
		for _, p := range all {
			g := p.goaway()
			if g.Code != wire.CodeShutdown || g.WaitMillis > over {
				t.Errorf("goaway %+v, want shutdown and a wait of at most %d ms", g, over)
			}
			least, most = min(least, g.WaitMillis), max(most, g.WaitMillis)
		}
		if least > over/5 || most < over-over/5 { // 300 at random: (4/5)^300 says that this is no chance
			t.Errorf("waits are between %d and %d ms, want them over all of %d", least, most, over)
		}
		if clients, executors := value(t, r.Relay, "goaways_total", "client"), value(t, r.Relay, "goaways_total", "executor"); clients != peers-1 || executors != 1 {
			t.Errorf("counted %v clients and %v executors, want %d and 1", clients, executors, peers-1)
		}
		if ready, draining := value(t, r.Relay, "ready"), value(t, r.Relay, "draining"); ready != 0 || draining != 1 {
			t.Errorf("ready %v, draining %v, want 0 and 1", ready, draining)
		}
	})
}

func TestDrainRefusesWhatIsNewAndLetsTheRestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		c, e := circuit(t, client, executor)
		drained := false
		go func() {
			r.Drain(context.Background())
			drained = true
		}()
		synctest.Wait()
		client.goaway()
		executor.goaway()

		wantCode(t, "a dial", client.reply(client.ask(executor.key.Public())).Code, wire.CodeShutdown)
		wantCode(t, "a dial to nobody", client.reply(client.ask(generate(t, keys.Executor).Public())).Code, wire.CodeUnreachable)
		for _, kind := range []keys.Kind{keys.Client, keys.Executor} {
			key, tr := r.NewPeer(kind), r.dial(t)
			_, _, err := shake(t.Context(), tr, r.Key.Public(), key, hello(key))
			wantCode(t, "a new "+string(kind), wire.CodeOf(err), wire.CodeShutdown)
			wantCode(t, "its connection", ended(t, tr), wire.CodeShutdown)
		}
		time.Sleep(time.Hour) // of the fake clock; pings keep nothing alive in memory
		say(t, c, "undisturbed")
		hear(t, e, "undisturbed")
		_ = c.CloseWrite()
		synctest.Wait()
		if drained {
			t.Fatal("drained although a circuit has one direction left")
		}
		say(t, e, "last words")
		_ = e.CloseWrite()
		if got := readAll(t, c); got != "last words" {
			t.Errorf("read %q", got)
		}
		synctest.Wait()
		if !drained {
			t.Error("not drained with the last circuit")
		}
		if client.Context().Err() != nil || executor.Context().Err() != nil {
			t.Error("the drain has ended a connection, which is up to who ends Serve")
		}
		r.Stop()
		wantCode(t, "the client's connection", ended(t, client), wire.CodeShutdown)
	})
}

func TestDrainEndsWithItsContextAndASecondOneDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		c, e := circuit(t, client, executor)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		r.Drain(ctx)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the drain took %v, want the 10 s of its context", took)
		}
		client.goaway()
		r.Drain(t.Context()) // returns at once
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("a second drain waited %v", took-10*time.Second)
		}
		say(t, c, "still here")
		hear(t, e, "still here")
		synctest.Wait()
		if n := value(t, r.Relay, "goaways_total", "client"); n != 1 {
			t.Errorf("the client was told %v times, want once", n)
		}
	})
}

func TestDrainWithoutCircuitsWaitsOnlyForPeersToHearOfIt(t *testing.T) {
	for peers, most := range map[int]time.Duration{0: 0, 1: 250 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := inMemory(t, relay.Limits{})
			for range peers {
				r.newPeer(t, keys.Executor)
			}
			start := time.Now()
			r.Drain(context.Background())
			if took := time.Since(start); took > most {
				t.Errorf("%d peers: took %v, want at most %v", peers, took, most)
			}
		})
	}
}

// gated is a transport whose relay stands still right after its welcome.
type gated struct {
	wire.Transport
	reached, open chan struct{}
}

func (g *gated) Admit() {
	close(g.reached)
	<-g.open
}

func TestPeerThatIsWelcomedWhileTheDrainBeginsIsTold(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	mine, theirs := wiretest.Transports([]byte("binding"))
	g := &gated{theirs, make(chan struct{}), make(chan struct{})}
	if err := r.listener.Offer(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	key := r.NewPeer(keys.Client)
	p := join(t, mine, r.Relay, key, hello(key))
	<-g.reached
	r.Drain(t.Context())
	close(g.open)
	if g := p.goaway(); g.Code != wire.CodeShutdown {
		t.Errorf("goaway %+v, want shutdown", g)
	}
}

func TestDrainRefusesNewcomersAtOnceOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	executor, client := overQUIC(t, r, keys.Executor), overQUIC(t, r, keys.Client)
	c, e := circuit(t, client, executor)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.Drain(context.Background())
	}()
	client.goaway()
	executor.goaway()
	_, err := relaytest.Dial(t.Context(), r.Address(), quicconn.Options{Role: wire.RoleClient})
	// Not a timeout: the relay says that it takes nobody.
	wantCode(t, "a new connection", wire.CodeOf(err), wire.CodeBusy)
	wantCode(t, "a dial", client.reply(client.ask(executor.key.Public())).Code, wire.CodeShutdown)
	say(t, c, "undisturbed")
	hear(t, e, "undisturbed")
	select {
	case <-drained:
		t.Error("drained although a circuit goes on")
	default:
	}
	c.Reset(wire.CodeCancelled)
	<-drained
	if client.Context().Err() != nil {
		t.Error("the drain has ended a connection")
	}
	r.Stop()
	wantCode(t, "the client's connection", ended(t, client), wire.CodeShutdown)
}
