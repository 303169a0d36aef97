//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// mostCommands is how many one client may have open beside those that are timed: a relay gives its key 1024 circuits.
const mostCommands = 1000

// growCommands leaves ever more commands open on one executor, and compares it with another that has none.
func growCommands(ctx context.Context, b *bench, g *growth) error {
	g.About = fmt.Sprintf("so many open `cat` on one executor, each in a sandbox, started by package client in one program, each with 64 bytes there and back when it starts and again before it ends (at most %s: a relay gives a client's key 1024 circuits, and an executor runs 1024 commands). "+
		"Memory, goroutines, descriptors and processor are the daemon's own, what it has more than before the first; the commands' memory is their processes' share (PSS), with their inits. "+
		"The ratios are of times on this executor to those on another that runs nothing, on a relay of its own, in turns", thousands(mostCommands))
	busy, err := newPostern(ctx, b.program, filepath.Join(b.dir, "busy"), 0)
	if err != nil {
		return err
	}
	defer busy.close()
	quiet, err := newPostern(ctx, b.program, filepath.Join(b.dir, "quiet"), 0)
	if err != nil {
		return err
	}
	defer quiet.close()
	begin, err := b.load(ctx, busy)
	if err != nil {
		return err
	}
	open := &lines{size: 64}
	defer open.close()
	for _, n := range b.o.sizes {
		if n > mostCommands {
			continue
		}
		b.atSize(n)
		if err := open.fill(ctx, busy, n); err != nil {
			return fmt.Errorf("%d running commands: %w", n, err)
		}
		now, err := b.load(ctx, busy)
		if err != nil {
			return err
		}
		now.add(g, n, begin)
		if err := b.beside(ctx, g, n, busy, quiet); err != nil {
			return fmt.Errorf("%d running commands: %w", n, err)
		}
	}
	for i, one := range open.all {
		if _, err := one.roundTrips(1, open.size); err != nil {
			return fmt.Errorf("command %d of %d at the end: %w", i+1, len(open.all), err)
		}
	}
	return nil
}

// fill opens commands until there are n.
func (l *lines) fill(ctx context.Context, s *posternSite, n int) error {
	const atATime = 4
	var mu sync.Mutex
	var all sync.WaitGroup
	var failures []error
	next := len(l.all)
	for range atATime {
		all.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				one, err := opened(ctx, s.box, "cat")
				if err == nil {
					_, err = one.roundTrips(1, l.size)
				}
				mu.Lock()
				if one != nil {
					l.all = append(l.all, one)
				}
				if err != nil {
					failures = append(failures, fmt.Errorf("command %d: %w", i+1, err))
					next = n // the others stop
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// siteLoad is what running commands take of a site.
type siteLoad struct {
	executor, relay       weight
	descriptors           float64 // of the executor
	processes, theirBytes float64 // of the commands
}

func (b *bench) load(ctx context.Context, s *posternSite) (l siteLoad, err error) {
	// What the last command has begun, a sandbox made ahead say, is not weighed.
	if err := pause(ctx, b.settle()/2); err != nil {
		return l, err
	}
	executor, relay := s.executor.cmd.Process.Pid, s.relay.cmd.Process.Pid
	var idle error
	var both sync.WaitGroup
	both.Go(func() { l.relay.idle, idle = b.idleMinute(ctx, relay) })
	executorIdle, err := b.idleMinute(ctx, executor)
	both.Wait()
	if err = errors.Join(err, idle); err != nil {
		return l, err
	}
	relayIdle := l.relay.idle
	if l.executor, err = takeWeight(ctx, executor, s.watched); err != nil {
		return l, err
	}
	if l.relay, err = takeWeight(ctx, relay, s.relay.watched); err != nil {
		return l, err
	}
	l.executor.idle, l.relay.idle = executorIdle, relayIdle
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", executor))
	l.descriptors = float64(len(open))
	for pid := range tree(executor) {
		if pid != executor {
			l.processes++
			l.theirBytes += share(pid)
		}
	}
	return l, err
}

// share is a process's part of memory in bytes, what it shares with others divided by their number; zero when it has ended.
func share(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "Pss: %f kB", &kib); err == nil {
			return kib * 1024
		}
	}
	return 0
}

// add puts what n commands take more than none into a growth.
func (l siteLoad) add(g *growth, n int, none siteLoad) {
	each := float64(n)
	g.total(n, "executor resident, all", "MiB", (l.executor.resident-none.executor.resident)/(1<<20))
	g.flat(n, "executor resident, each", "KiB", (l.executor.resident-none.executor.resident)/1024/each)
	g.flat(n, "executor in use, each", "KiB", (l.executor.inUse-none.executor.inUse)/1024/each)
	g.flat(n, "executor goroutines, each", "", (l.executor.goroutines-none.executor.goroutines)/each)
	g.flat(n, "executor descriptors, each", "", (l.descriptors-none.descriptors)/each)
	g.flat(n, "relay in use, each", "KiB", (l.relay.inUse-none.relay.inUse)/1024/each)
	g.flat(n, "processes, each", "", (l.processes-none.processes)/each)
	g.flat(n, "memory of the commands, each", "KiB", (l.theirBytes-none.theirBytes)/1024/each)
	g.total(n, "executor's processor in an idle minute, all", "s", l.executor.idle-none.executor.idle)
	g.flat(n, "executor's processor in an idle minute, each", "ms", (l.executor.idle-none.executor.idle)*1000/each)
	g.total(n, "relay's processor in an idle minute, all", "s", l.relay.idle-none.relay.idle)
}

// beside times a warm exec and an echo on both sites.
func (b *bench) beside(ctx context.Context, g *growth, n int, busy, quiet *posternSite) error {
	times := &lines{size: 64, n: 200}
	execs := 10
	if b.o.quick {
		times.n, execs = 10, 1
	}
	m := &measure{
		name: "beside running commands", path: loopback, rounds: b.rounds(3),
		quantities: []quantity{{name: warmExec, unit: "ms"}, {name: echo, unit: "ms"}},
	}
	defer times.close()
	for _, side := range []struct {
		name string
		site *posternSite
	}{{"busy", busy}, {"quiet", quiet}} {
		c, err := times.contender(side.name, false, func() (*line, error) { return opened(ctx, side.site.box, "cat") })
		if err != nil {
			return err
		}
		echoed := c.sample
		c.sample = func(ctx context.Context) ([]float64, error) {
			p50, err := echoed(ctx)
			if err != nil {
				return nil, err
			}
			took, err := timed(func() error {
				for range execs {
					if err := side.site.box.Command("true").Run(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			return []float64{took[0] / float64(execs), p50[0]}, err
		}
		m.contenders = append(m.contenders, c)
	}
	all, err := m.run(ctx)
	if err != nil {
		return err
	}
	for q, quantity := range m.quantities {
		g.total(n, quantity.name+" beside them", quantity.unit, spreadOf(all["busy"][q]).Median)
		g.flat(n, quantity.name+", ratio to beside none", "", spreadOf(ratios(all["busy"][q], all["quiet"][q])).Median)
	}
	return nil
}
