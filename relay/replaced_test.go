package relay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

// listen answers pings until the connection ends, and returns the notices that come.
func (p *peer) listen() <-chan *wire.HopNotice {
	notices, done := make(chan *wire.HopNotice, 100), make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := p.control.Recv()
			if err != nil {
				return
			}
			switch m := m.(type) {
			case *wire.HopPing:
				_ = p.control.Send(&wire.HopPong{Number: m.Number})
			case *wire.HopNotice:
				notices <- m
			}
		}
	}()
	p.t.Cleanup(func() {
		_ = p.Close(wire.CodeShutdown, "test is over")
		<-done
	})
	return notices
}

func TestReplacedConnectionKeepsItsCircuitUntilThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		key, client := r.NewPeer(keys.Executor), r.newPeer(t, keys.Client)
		h := hello(key)
		old := r.join(t, key, h)
		notices := old.listen()
		c, e := circuit(t, client, old)
		c2, e2 := circuit(t, client, old)
		fresh := r.join(t, key, h)
		synctest.Wait()
		if len(notices) != 1 || (<-notices).Code != wire.CodeSuperseded {
			t.Error("the old connection is not told once that it was replaced")
		}
		for range 2 { // both ways, also a day later
			say(t, c, "up")
			hear(t, e, "up")
			say(t, e, "down")
			hear(t, c, "down")
			time.Sleep(24 * time.Hour) // on the bubble's clock
		}
		circuit(t, client, fresh) // new ones go to the new connection
		c2.Reset(wire.CodeCancelled)
		_ = readErr(e2)
		synctest.Wait()
		if old.Context().Err() != nil {
			t.Fatal("closed with a circuit still on it")
		}
		_ = c.CloseWrite()
		if got := readAll(t, e); got != "" {
			t.Errorf("read %q", got)
		}
		say(t, e, "last words")
		_ = e.CloseWrite()
		if got := readAll(t, c); got != "last words" {
			t.Errorf("read %q, want what was said on the old connection", got)
		}
		wantCode(t, "old connection", ended(t, old), wire.CodeSuperseded)
		if fresh.Context().Err() != nil {
			t.Error("the new connection has ended too")
		}
	})
}

func TestThirdConnectionEndsTheFirstAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		key, client := r.NewPeer(keys.Executor), r.newPeer(t, keys.Client)
		h := hello(key)
		first := r.join(t, key, h)
		c1, _ := circuit(t, client, first)
		second := r.join(t, key, h)
		c2, e2 := circuit(t, client, second)
		third := r.join(t, key, h)
		synctest.Wait()
		if first.Context().Err() == nil {
			t.Fatal("the first goes on")
		}
		wantCode(t, "first", ended(t, first), wire.CodeSuperseded)
		if err := readErr(c1); err == nil {
			t.Error("its circuit ended cleanly")
		}
		say(t, c2, "up")
		hear(t, e2, "up") // the second keeps its own
		fourth := r.join(t, key, h)
		wantCode(t, "second", ended(t, second), wire.CodeSuperseded)
		wantCode(t, "third, without circuits", ended(t, third), wire.CodeSuperseded)
		circuit(t, client, fourth)
		if n := value(t, r.Relay, "superseded_total", "same_instance"); n != 3 {
			t.Errorf("counted %v takeovers, want 3", n)
		}
	})
}

func TestIncumbentIsToldOfASecondMachineOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := logged(t, relay.Limits{})
		key := r.NewPeer(keys.Executor)
		incumbent := r.join(t, key, hello(key))
		notices := incumbent.listen()
		come := func() {
			t.Helper()
			tr := r.dial(t)
			_, _, err := shake(t.Context(), tr, r.Key.Public(), key, hello(key))
			wantCode(t, "second machine", wire.CodeOf(err), wire.CodeDuplicate)
			_ = tr.Close(wire.CodeShutdown, "bye")
			synctest.Wait()
		}
		for minute := range 3 {
			for range 5 {
				come()
			}
			if len(notices) != 1 {
				t.Fatalf("minute %d: told %d times, want once", minute, len(notices))
			}
			if n := <-notices; n.Code != wire.CodeDuplicate || n.Text == "" {
				t.Errorf("told %+v, want duplicate and a text", n)
			}
			time.Sleep(time.Minute) // on the bubble's clock
		}
		if incumbent.Context().Err() != nil {
			t.Error("the notice ended the connection")
		}
		if n := value(t, r.Relay, "duplicate_identity_total"); n != 15 {
			t.Errorf("counted %v, want every one of 15", n)
		}
		if log.String() == "" {
			t.Error("nothing in the log")
		}
	})
}

// Notices come from other connections, so one may come while the connection that gets it ends.
func TestNoticeMayComeWhileItsConnectionEnds(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	for range 50 {
		key := r.NewPeer(keys.Executor)
		old, tr, done := r.join(t, key, hello(key)), r.dial(t), make(chan struct{})
		go func() { // it is alive, and gone right after it has said so
			defer close(done)
			if m, err := old.control.Recv(); err == nil {
				_ = old.control.Send(&wire.HopPong{Number: m.(*wire.HopPing).Number})
			}
			_ = old.Close(wire.CodeShutdown, "bye")
		}()
		_, _, _ = shake(t.Context(), tr, r.Key.Public(), key, hello(key))
		_ = tr.Close(wire.CodeShutdown, "bye")
		_ = old.Close(wire.CodeShutdown, "bye") // in case that nobody has asked it, since the newcomer took too long
		<-done
	}
}
