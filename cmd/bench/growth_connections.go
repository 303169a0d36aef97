//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// growPace is how many executors of a growth are on their way into a relay at a time: below the number from which it
// refuses some, whose coming again would be counted with the others.
const growPace = 32

// growConnections fills relays of their own with executors that do nothing.
func growConnections(ctx context.Context, b *bench, g *growth) error {
	g.About = fmt.Sprintf("a relay of its own for each number of executors that do nothing (real QUIC and handshakes, a heartbeat every 10 s), %d on their way in at a time. Memory and processor are the relay's, and what it has more than empty; "+
		"resident memory is as delivered, 20 s after the last came, of which \"in use\" are heap and stacks after collections; one executor's share of the former has the collector's room in it. Idle processor is of 30 s, as a minute's", growPace)
	for _, n := range b.o.sizes {
		b.atSize(n)
		if err := b.connections(ctx, g, n); err != nil {
			return fmt.Errorf("%d connections: %w", n, err)
		}
	}
	return nil
}

func (b *bench) connections(ctx context.Context, g *growth, n int) error {
	crowd, relay, err := b.crowdAndRelay(ctx, fmt.Sprintf("grow%d", n), n, growPace)
	if err != nil {
		return err
	}
	defer crowd.kill()
	defer relay.stop()
	pid := relay.cmd.Process.Pid
	empty, err := takeWeight(ctx, pid, relay.watched)
	if err != nil {
		return err
	}
	if empty.idle, err = b.idleMinute(ctx, pid); err != nil {
		return err
	}
	before, err := processor(pid)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := crowd.connect(relay.url); err != nil {
		return err
	}
	if _, err := crowd.lineWithin(ctx, time.Minute+time.Duration(n)*50*time.Millisecond); err != nil {
		return fmt.Errorf("not all have joined: %w", err)
	}
	took := time.Since(begun)
	after, err := processor(pid)
	if err != nil {
		return err
	}
	if there := online(ctx, relay.watched); there != n {
		return fmt.Errorf("the relay has %d executors of %d that joined", there, n)
	}
	if err := pause(ctx, b.settle()); err != nil { // every one has sent heartbeats
		return err
	}
	idle, err := b.idleMinute(ctx, pid)
	if err != nil {
		return err
	}
	full, err := takeWeight(ctx, pid, relay.watched)
	if err != nil {
		return err
	}
	if there := online(ctx, relay.watched); there != n {
		return fmt.Errorf("the relay has %d executors of %d a while later", there, n)
	}
	each := float64(n)
	g.total(n, "resident, all", "MiB", (full.resident-empty.resident)/(1<<20))
	g.flat(n, "resident, each", "KiB", (full.resident-empty.resident)/1024/each)
	g.flat(n, "in use, each", "KiB", (full.inUse-empty.inUse)/1024/each)
	g.flat(n, "goroutines, each", "", (full.goroutines-empty.goroutines)/each)
	g.total(n, "until all are in", "s", took.Seconds())
	g.total(n, "processor to let in all", "s", after-before)
	g.flat(n, "processor to let in each", "ms", (after-before)*1000/each)
	g.total(n, "processor in an idle minute, all", "s", idle-empty.idle)
	g.flat(n, "processor in an idle minute, each", "ms", (idle-empty.idle)*1000/each)
	return nil
}

// weight is what a daemon of the product takes at one moment.
type weight struct {
	resident, inUse, goroutines float64
	idle                        float64 // processor seconds in a minute
}

// takeWeight looks at the resident memory before it has garbage collected.
func takeWeight(ctx context.Context, pid int, watched string) (w weight, err error) {
	if w.resident, err = resident(pid); err != nil {
		return w, err
	}
	if w.goroutines, err = sampleOf(ctx, watched, "go_goroutines"); err != nil {
		return w, err
	}
	w.inUse, err = inUse(ctx, watched)
	return w, err
}
