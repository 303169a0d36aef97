package main

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postern-relay/postern/executor/executortest"
)

// An exec goes on after an outage that ended the connection, without anybody's help.
func TestExecSurvivesAnOutageLongerThanTheIdleTimeout(t *testing.T) {
	for name, host := range map[string]byte{"of the client": clientHost, "of the executor": itsHost, "of the relay": relayHost} {
		t.Run(name, func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				const size = 1200 << 10 // takes 2 minutes
				p.runner.Handle("drip", drip(size))
				go func() {
					<-time.After(5 * time.Second)
					p.network.setDown(host, true)
					<-time.After(time.Minute)
					p.network.setDown(host, false)
				}()
				out, err := p.command("drip").Output(t.Context())
				if err != nil || !bytes.Equal(out, executortest.Pattern(size)) {
					t.Errorf("%d bytes of output, %v, want all %d", len(out), err, size)
				}
				if p.runner.Starts() != 1 {
					t.Errorf("%d commands ran, want 1", p.runner.Starts())
				}
			})
		})
	}
}

func TestExecSurvivesTheLossOfItsCircuits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 9))
	const size = 200_000
	onNetwork(t, func(t *testing.T, p *parties) {
		p.exchange(t, 10, true) // there is a session: what is sent first is the request
		p.mu.Lock()
		p.cut = func() *cutter {
			c := uncut()
			if r.IntN(2) == 0 {
				c.read = 100 + int64(r.IntN(size/3))
			} else {
				c.written = 600 + int64(r.IntN(size/3))
			}
			return c
		}
		p.mu.Unlock()
		p.opened()
		for range 10 {
			p.exchange(t, size, true)
		}
		if _, kinds := p.opened(); len(kinds) < 30 {
			t.Errorf("only %d circuits for 10 exchanges: this tested little", len(kinds))
		}
	})
}
