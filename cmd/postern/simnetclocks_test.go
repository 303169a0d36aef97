package main

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// The clocks on which sessions count may differ, and may jump: a machine that slept finds its own
// ahead of everything that its timers have seen. Nothing goes backwards here, since these clocks are
// monotonic (boot time); the wall clock is not used between client and executor at all.
type jump struct {
	name string
	by   time.Duration
	of   func(p *parties) *atomic.Int64
	lost bool // the channel's lag shows in the Pings, and it ends
	anew bool // the session is of no use any more
}

func ofClient(p *parties) *atomic.Int64   { return &p.ahead.client }
func ofExecutor(p *parties) *atomic.Int64 { return &p.ahead.executor }

var jumps = []jump{
	{"client by 3 s", 3 * time.Second, ofClient, false, false},
	{"client by 45 s", 45 * time.Second, ofClient, false, false},
	{"client by 20 min", 20 * time.Minute, ofClient, true, true},
	{"client by 1 h", time.Hour, ofClient, true, true},
	{"client by 30 h", 30 * time.Hour, ofClient, true, true},
	{"executor by 3 s", 3 * time.Second, ofExecutor, false, false},
	{"executor by 45 s", 45 * time.Second, ofExecutor, false, true}, // more than a deadline
	{"executor by 20 min", 20 * time.Minute, ofExecutor, true, true},
	{"executor by 1 h", time.Hour, ofExecutor, true, true},
	{"executor by 30 h", 30 * time.Hour, ofExecutor, true, true},
}

func TestClockThatJumpsDuringAnExecCostsAtMostAFreshSession(t *testing.T) {
	for _, j := range jumps {
		t.Run(j.name, func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				s := p.beginStream(t, streamOptions{viewer: true, pace: 10 * tick})
				losses := s.through(t, func() {
					p.opened()
					j.of(p).Add(int64(j.by))
					<-time.After(wire.PingInterval + 3*time.Second)
					p.exchange(t, 1000, true)
					s.others++
					_, kinds := p.opened()
					if anew := bytes.Contains(kinds, []byte{1}); anew != j.anew {
						t.Errorf("circuits of kinds %v: a fresh session is %v, want %v", kinds, anew, j.anew)
					}
				})
				if lost := losses > 0; lost != j.lost || losses > 1 {
					t.Errorf("each handle was told of %d losses, want one: %v", losses, j.lost)
				}
			})
		})
	}
}

func TestClockThatJumpsBetweenExecsRunsNothingTwiceAndLosesNoResult(t *testing.T) {
	for _, j := range jumps {
		t.Run(j.name, func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				params := wire.ExecParams{ID: wire.NewExecID(), Argv: []string{"exit", "5"}}
				first, err := p.remote.Start(t.Context(), params)
				if err != nil {
					t.Fatal(err)
				}
				first.Close() // its result is left to be fetched
				p.opened()
				j.of(p).Add(int64(j.by))
				again, err := p.remote.Start(t.Context(), params)
				if err != nil {
					t.Fatalf("the same Start again: %v", err)
				}
				again.Close()
				fetched, err := p.remote.Attach(t.Context(), params.ID, wire.AttachOptions{Control: true})
				if err != nil {
					t.Fatalf("Attach: %v", err)
				}
				if status, err := fetched.Wait(t.Context()); err != nil || status.Code != 5 {
					t.Errorf("the result is %+v, %v, want code 5", status, err)
				}
				fetched.Close()
				p.exchange(t, 1000, true)
				if _, kinds := p.opened(); bytes.Contains(kinds, []byte{1}) != j.anew {
					t.Errorf("circuits of kinds %v: want a fresh session: %v", kinds, j.anew)
				}
				if n := p.runner.Starts(); n != 2 {
					t.Errorf("%d commands ran, want 2", n)
				}
			})
		})
	}
}

// A jump may come at any moment of an exec, between a request and its answer too.
func TestClocksThatJumpAtAnyMomentRunNothingTwice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	onNetwork(t, func(t *testing.T, p *parties) {
		const execs = 60
		for range execs {
			j := jumps[r.IntN(len(jumps))]
			timer := time.AfterFunc(time.Duration(r.Int64N(int64(6*wholeTrip))), func() { j.of(p).Add(int64(j.by)) })
			p.exchange(t, 2000, true)
			timer.Stop()
			<-time.After(time.Duration(r.Int64N(int64(time.Minute))))
		}
		if n := p.runner.Starts(); n != execs {
			t.Errorf("%d commands ran, want %d", n, execs)
		}
		p.wantPairs(t, 1)
	})
}

// Who sleeps is away as well: his link and his timers stand still while the others' time goes on.
func TestMachineThatSleptGoesOnWithItsExec(t *testing.T) {
	for _, c := range []struct {
		name string
		host byte
		of   func(p *parties) *atomic.Int64
		d    time.Duration
	}{
		{"client for 10 min", clientHost, ofClient, 10 * time.Minute},
		{"client for 1 h", clientHost, ofClient, time.Hour},
		{"executor for 10 min", itsHost, ofExecutor, 10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				s := p.beginStream(t, streamOptions{grace: 2 * time.Hour, pace: 10 * tick})
				losses := s.through(t, func() {
					p.network.setDown(c.host, true)
					<-time.After(20 * time.Second) // as much as its timers see of it
					c.of(p).Add(int64(c.d))
					p.network.setDown(c.host, false)
				})
				if losses > 2 {
					t.Errorf("told of %d losses, want at most 2", losses)
				}
			})
		})
	}
}
