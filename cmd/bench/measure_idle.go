//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// takeIdle measures what executors cost a relay of their own that do nothing.
func takeIdle(ctx context.Context, b *bench) error {
	for _, n := range b.o.idle {
		if err := b.idleWith(ctx, n); err != nil {
			return fmt.Errorf("%d idle executors: %w", n, err)
		}
	}
	return nil
}

func (b *bench) idleWith(ctx context.Context, n int) error {
	b.say("%s, %d executors", idle, n)
	crowd, relay, err := b.crowdAndRelay(ctx, fmt.Sprintf("idle%d", n), n, n)
	if err != nil {
		return err
	}
	defer crowd.kill()
	defer relay.stop()
	// What a relay has in hand before anybody comes, after one collection and the listener's own first use.
	if _, err := get(ctx, relay.watched, "/debug/pprof/heap?gc=1"); err != nil {
		return err
	}
	memory, err := resident(relay.cmd.Process.Pid)
	if err != nil {
		return err
	}
	goroutines, err := sampleOf(ctx, relay.watched, "go_goroutines")
	if err != nil {
		return err
	}
	if err := crowd.connect(relay.url); err != nil {
		return err
	}
	patience := time.Minute + time.Duration(n)*50*time.Millisecond
	if err := await(ctx, "all executors are there", patience, func() bool { return online(ctx, relay.watched) == n }); err != nil {
		return err
	}
	if err := pause(ctx, b.settle()); err != nil { // every one has sent heartbeats
		return err
	}
	m := &measure{
		name: idle, path: fmt.Sprintf("%d executors", n), rounds: b.rounds(0.3),
		about:      "a relay of its own with executors that do nothing (real QUIC and handshakes, a heartbeat every 10 s), what it has more than empty, for each; memory is resident, as delivered, nothing collected by force",
		quantities: []quantity{{name: "memory", unit: "KiB"}, {name: "goroutines"}},
		contenders: []contender{{name: postern, sample: func(ctx context.Context) ([]float64, error) {
			now, err := resident(relay.cmd.Process.Pid)
			if err != nil {
				return nil, err
			}
			running, err := sampleOf(ctx, relay.watched, "go_goroutines")
			if err != nil {
				return nil, err
			}
			// One that the listener of the metrics has started is nobody's: to a tenth.
			each := math.Round((running-goroutines)/float64(n)*10) / 10
			return []float64{(now - memory) / 1024 / float64(n), each}, pause(ctx, time.Second)
		}}},
	}
	return b.take(ctx, m)
}

func (b *bench) settle() time.Duration {
	if b.o.quick {
		return 100 * time.Millisecond
	}
	return 20 * time.Second
}
