package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fault is something that happens to the way between client and executor, and passes.
type fault struct {
	name   string
	happen func(p *parties)
	// How often a handle is told of it, at least and at most.
	least, most int
}

var hostNames = map[byte]string{clientHost: "client", itsHost: "executor", relayHost: "relay"}

// blackhole takes a host from the network for d.
func blackhole(host byte, d time.Duration, losses int) fault {
	return fault{fmt.Sprintf("%s unreachable for %v", hostNames[host], d), func(p *parties) {
		p.network.setDown(host, true)
		<-time.After(d)
		p.network.setDown(host, false)
	}, losses, losses}
}

// crash ends the relay without a word to anybody, and starts it again after d.
func crash(d time.Duration) fault {
	return fault{fmt.Sprintf("relay crash, restart after %v", d), func(p *parties) {
		p.crashRelay()
		<-time.After(d)
		p.restartRelay()
	}, 1, 1}
}

func (p *parties) crashRelay() {
	p.network.setDown(relayHost, true)
	p.stopRelay()
}

func (p *parties) restartRelay() {
	p.network.setDown(relayHost, false)
	p.startRelay()
}

// move gives a host another address. QUIC may go on from there, or the link is lost.
func move(host byte) fault {
	return fault{hostNames[host] + " has another address", func(p *parties) { p.network.move(host) }, 0, 1}
}

// An executor's connection is idle for 30 s before it is lost, a client's for 15 s; nobody learns of
// less than that.
var linkFaults = []fault{
	blackhole(clientHost, time.Second, 0), blackhole(clientHost, 20*time.Second, 1), blackhole(clientHost, 90*time.Second, 1),
	blackhole(itsHost, time.Second, 0), blackhole(itsHost, 20*time.Second, 0), blackhole(itsHost, 90*time.Second, 1),
	blackhole(relayHost, time.Second, 0), blackhole(relayHost, 20*time.Second, 1), blackhole(relayHost, 90*time.Second, 1),
	crash(0), crash(5 * time.Second), crash(time.Minute),
	move(clientHost), move(itsHost),
}

// survive runs one fault in the middle of a counted stream.
func survive(t *testing.T, f fault, o streamOptions) {
	t.Helper()
	onNetwork(t, func(t *testing.T, p *parties) {
		s := p.beginStream(t, o)
		began := time.Now()
		losses := s.through(t, func() { f.happen(p) })
		if losses < f.least || losses > f.most {
			t.Errorf("each handle was told of %d losses, want %d to %d", losses, f.least, f.most)
		}
		t.Logf("%d bytes each way; %d losses told; %v in all", s.out.size(), losses, s.out.lastWrite().Sub(began).Round(time.Millisecond))
	})
}

func TestCountedStreamSurvivesBlackholesOfEitherEnd(t *testing.T) {
	for _, f := range linkFaults[:6] {
		t.Run(f.name, func(t *testing.T) { survive(t, f, streamOptions{}) })
	}
}

func TestCountedStreamSurvivesBlackholesOfTheRelay(t *testing.T) {
	for _, f := range linkFaults[6:9] {
		t.Run(f.name, func(t *testing.T) { survive(t, f, streamOptions{}) })
	}
}

func TestCountedStreamSurvivesRelayCrashesAndNewAddresses(t *testing.T) {
	for _, f := range linkFaults[9:] {
		t.Run(f.name, func(t *testing.T) { survive(t, f, streamOptions{viewer: true}) })
	}
}

func TestViewerComesBackLikeTheController(t *testing.T) {
	for _, f := range []fault{linkFaults[2], linkFaults[5]} {
		t.Run(f.name, func(t *testing.T) { survive(t, f, streamOptions{viewer: true}) })
	}
}

// More than the windows hold comes together meanwhile: command and client both have to wait.
func TestStreamThatFillsItsWindowsDuringABlackholeGoesOn(t *testing.T) {
	for _, f := range []fault{linkFaults[2], linkFaults[5]} {
		t.Run(f.name, func(t *testing.T) { survive(t, f, streamOptions{record: 4 << 10}) })
	}
}

// The grace counts only while the executor is registered, and anew each time.
func TestGraceDoesNotRunOutWhileTheExecutorIsUnreachable(t *testing.T) {
	survive(t, blackhole(itsHost, 90*time.Second, 1), streamOptions{grace: 15 * time.Second})
}

func TestCountedStreamSurvivesManyFaultsInARow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	onNetwork(t, func(t *testing.T, p *parties) {
		// Nobody's absence adds up to the grace, however the faults follow each other.
		s := p.beginStream(t, streamOptions{grace: time.Hour})
		survived := make(map[string]int)
		losses := s.through(t, func() {
			for range 12 {
				f := linkFaults[r.IntN(len(linkFaults))]
				f.happen(p)
				survived[f.name]++
				<-time.After(time.Duration(r.Int64N(int64(10 * time.Second)))) // the next may come before all are back
			}
		})
		for _, name := range slices.Sorted(maps.Keys(survived)) {
			t.Logf("survived %d times: %s", survived[name], name)
		}
		t.Logf("%d bytes out, %d in; %d losses told", s.out.size(), s.input.n, losses)
	})
}
