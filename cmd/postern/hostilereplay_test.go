package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// noChannel is the one answer to a channel that cannot be opened, whatever the reason (PROTOCOL.md 7.3).
var noChannel, _ = hex.DecodeString("000006a20118310208")

const newFolder = "after a restart with a new folder"

// secondMessage is all that an executor ever answers to a handshake whose third message does not verify.
const secondMessage = 1 + 2 + 1152

// run runs append to its end through the client, and checks what the client is told.
func (r *hostileRelay) run(t *testing.T, token string) wire.ExecID {
	t.Helper()
	p, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"append", token, "3", "100ms"}})
	if err != nil {
		t.Fatalf("%s: %v", token, err)
	}
	defer p.Close()
	status, err := p.Wait(t.Context())
	if err != nil || status.Code != 3 {
		t.Fatalf("%s: %+v, %v", token, status, err)
	}
	r.ledger.wantTruth(t, token, status)
	return p.ID()
}

// everything has the client use each kind of message that could act twice.
func (r *hostileRelay) everything(t *testing.T) {
	t.Helper()
	for i := range 3 {
		r.run(t, fmt.Sprint("exec", i))
	}
	long := wire.ExecParams{ID: wire.NewExecID(), Argv: []string{"signals", "long", "30h"}, Detach: true}
	for range 2 { // the second time it is there
		p, err := r.remote.Start(t.Context(), long)
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	<-time.After(time.Millisecond) // it ignores signals now
	p, err := r.remote.Attach(t.Context(), long.ID, wire.AttachOptions{Control: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 3; i++ {
		if err := p.Signal(t.Context(), wire.Signal(fmt.Sprintf("RTMIN+%d", i))); err != nil {
			t.Error(err)
		}
		if err := r.remote.Signal(t.Context(), wire.ExecRef{ID: long.ID}, wire.Signal(fmt.Sprintf("RTMIN+%d", i+3))); err != nil {
			t.Error(err)
		}
	}
	p.Close()
	ended, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"signals", "ended", "1h"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Terminate(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	if status, err := ended.Wait(t.Context()); err != nil || status.Cause != wire.CauseTerminated {
		t.Errorf("terminated: %+v, %v", status, err)
	}
	ended.Close()
	if err := r.remote.Remove(t.Context(), wire.ExecRef{ID: ended.ID()}); err != nil {
		t.Error(err)
	}
}

// R5, N3, C3: a circuit that is opened again does nothing, whenever that is, and tells nothing.
func TestRecordedCircuitsDoNothingAgain(t *testing.T) {
	busyFor := func(t *testing.T, r *hostileRelay, d time.Duration) {
		for i := 0; d > 0; d -= 5 * time.Minute {
			<-time.After(5 * time.Minute)
			r.run(t, fmt.Sprint("busy", i, r.clock()))
		}
	}
	idleFor := func(r *hostileRelay, d time.Duration) {
		r.dropClient()
		<-time.After(d)
	}
	for _, c := range []struct {
		name    string
		between func(t *testing.T, r *hostileRelay)
	}{
		{"at once", func(*testing.T, *hostileRelay) {}},
		{"a minute later", func(_ *testing.T, r *hostileRelay) { idleFor(r, time.Minute) }},
		{"after renewal of the session", func(t *testing.T, r *hostileRelay) { busyFor(t, r, 35*time.Minute) }},
		{"after expiry of the session", func(t *testing.T, r *hostileRelay) { busyFor(t, r, 70*time.Minute) }},
		{"after the results are swept", func(t *testing.T, r *hostileRelay) {
			idleFor(r, 2*time.Hour)
			if infos, err := r.remote.List(t.Context()); err != nil || len(infos) != 1 {
				t.Errorf("%d execs are listed, %v, want the one that runs", len(infos), err)
			}
		}},
		{"after the ids are forgotten", func(_ *testing.T, r *hostileRelay) { idleFor(r, 10*24*time.Hour) }},
		{"after a restart of the executor", func(_ *testing.T, r *hostileRelay) { r.restartExecutor(r.state) }},
		{newFolder, func(t *testing.T, r *hostileRelay) { r.restartExecutor(t.TempDir()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
				r.everything(t)
				c.between(t, r)
				starts := r.runner.Starts()
				all := r.recorded()
				var replaying sync.WaitGroup
				var mu sync.Mutex
				answers := make(map[string]int)
				for _, rec := range append(all, all...) {
					replaying.Go(func() {
						answer := r.replay(rec)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case bytes.Equal(answer, noChannel):
							answers["no_channel"]++
						case rec.all()[0] == 1 && answer[0] == 1 && len(answer) <= secondMessage:
							answers["no handshake"]++
						default:
							t.Errorf("circuit %d, which began with %d, was answered %x", rec.n, rec.all()[0], answer)
						}
					})
				}
				replaying.Wait()
				t.Logf("%d circuits, each twice: answered %v", len(all), answers)
				if n := r.runner.Starts(); n != starts {
					t.Errorf("%d commands were started by replays", n-starts)
				}
				r.ledger.wantOnce(t)
				if c.name == newFolder { // the client sees that only when it has asked
					_, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"append", "asked", "0", "0s"}})
					if wire.CodeOf(err) != wire.CodeUnknown || r.ledger.startsOf("asked") > 0 {
						t.Errorf("the first Start since: %v, and it ran %d times, want an unknown outcome", err, r.ledger.startsOf("asked"))
					}
				}
				r.run(t, "afterwards")
			})
		})
	}
}

// A flood of the first messages of handshakes leaves room for the client's own (C4).
func TestFloodOfRecordedHandshakesLeavesRoom(t *testing.T) {
	withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
		r.run(t, "first")
		m1 := &recording{changed: make(chan struct{}), bytes: r.recorded()[0].all()[:1+2+1232]}
		var flood sync.WaitGroup
		for range 100 {
			flood.Go(func() { r.replay(m1) })
		}
		<-time.After(time.Second)
		r.restartClient()
		r.run(t, "during the flood")
		flood.Wait()
		r.ledger.wantOnce(t)
	})
}

// Two circuits with the same bytes at the same time, the false one first: the client gets no_channel
// for its own, makes a fresh session and finds that what it asked for was done.
func TestEveryCircuitTwiceAtOnceActsOnce(t *testing.T) {
	withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
		r.run(t, "first")
		r.treats(func(n int) treatment { return treatment{copy: n%2 == 1} })
		r.everything(t)
		for i := 1; i <= 6; i++ {
			if n := len(r.ledger.actsOf("long", wire.Signal(fmt.Sprintf("RTMIN+%d", i)))); n != 1 {
				t.Errorf("signal %d acted %d times, want once", i, n)
			}
		}
		r.ledger.wantOnce(t)
	})
}

// Whatever a relay says about a Start that it has passed on, the command runs once. What the client is told then is
// an error at worst; but of some errors it is believed that the command was certainly not started (PROTOCOL.md 10).
func TestRelaysWordAboutAStartStartsNothingTwice(t *testing.T) {
	version, _ := hex.DecodeString("000007a2011831021818")
	for _, c := range []struct {
		name     string
		how      []treatment // of one circuit after the other, the last one of all others
		believed bool        // the client takes the relay's word that nothing was started
	}{
		{"no channel, then all is well", []treatment{{say: noChannel}, {}}, false},
		{"a copy first, then all is well", []treatment{{copy: true}, {}}, false},
		{"no answer", []treatment{{deaf: true}}, false},
		{"no such circuit", []treatment{{reply: wire.CodeUnreachable}}, true},
		{"no channel, then no circuit", []treatment{{say: noChannel}, {reply: wire.CodeUnreachable}}, false},
		{"no channel, then no handshake", []treatment{{say: noChannel}, {say: noChannel}}, false},
		{"a copy first, then no handshake", []treatment{{copy: true}, {deaf: true}}, false},
		{"another version", []treatment{{say: version}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
				r.run(t, "first")
				before := len(r.recorded())
				r.treats(func(n int) treatment { return c.how[min(n-before, len(c.how)-1)] })
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p, err := r.remote.Start(ctx, wire.ExecParams{Argv: []string{"append", "x", "0", "1s"}})
				if err == nil {
					p.Close()
				}
				<-time.After(time.Minute)
				if n := r.ledger.startsOf("x"); n != 1 {
					t.Errorf("it was started %d times, want once", n)
				}
				if wrong := err != nil && wire.CodeOf(err) != wire.CodeUnknown; wrong != c.believed {
					t.Errorf("the client believes that it was certainly not started: %v, want %v: %v", wrong, c.believed, err)
				}
				if strings.Contains(c.name, "well") && err != nil {
					t.Errorf("Start: %v", err)
				}
			})
		})
	}
}
