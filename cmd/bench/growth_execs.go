//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// growExecs runs ever more commands on one site, all of which its executor remembers.
func growExecs(ctx context.Context, b *bench, g *growth) error {
	g.About = "so many `true`, one after the other, by package client in a running program; the numbers follow each other on one relay and one executor, which remembers them all. Processor is each process's own, \"commands\" are the sandboxes, true, " +
		"and what makes them. Memory is what is in use (heap and stacks) after collections more than before the number, or resident then. A tenth is a tenth of the number"
	s, err := newPostern(ctx, b.program, filepath.Join(b.dir, "execs"), 0)
	if err != nil {
		return err
	}
	defer s.close()
	for _, n := range b.o.sizes {
		b.atSize(n)
		if err := s.execs(ctx, g, n); err != nil {
			return fmt.Errorf("%d execs: %w", n, err)
		}
	}
	return nil
}

// Parts of a site, as indexes.
const (
	ofClient = iota
	ofRelay
	ofExecutor
	ofCommands
)

var siteParts = [...]string{"client", "relay", "executor", "commands"}

// processors are processor seconds by part of a site.
type processors [4]float64

// clocks are what the parts have used so far, but for the commands.
func (s *posternSite) clocks() (used processors, err error) {
	for i, pid := range []int{os.Getpid(), s.relay.cmd.Process.Pid, s.executor.cmd.Process.Pid} {
		if used[i], err = processor(pid); err != nil {
			return used, err
		}
	}
	return used, nil
}

// ended is what the commands have used so far, to hundredths.
func (s *posternSite) ended() float64 {
	executor := s.executor.cmd.Process.Pid
	all := tree(executor)
	used := -all[executor].own
	for _, p := range all {
		used += p.cpu
	}
	return used
}

// siteMemory is what the parts of a site have in use after collections, and what its executor holds then, bytes.
type siteMemory struct {
	inUse    [3]float64
	resident float64
}

func (s *posternSite) memory(ctx context.Context) (m siteMemory, err error) {
	if m.inUse[ofRelay], err = inUse(ctx, s.relay.watched); err != nil {
		return m, err
	}
	if m.inUse[ofExecutor], err = inUse(ctx, s.watched); err != nil {
		return m, err
	}
	runtime.GC()
	runtime.GC()
	var mine runtime.MemStats
	runtime.ReadMemStats(&mine)
	m.inUse[ofClient] = float64(mine.HeapAlloc + mine.StackInuse)
	m.resident, err = resident(s.executor.cmd.Process.Pid)
	return m, err
}

// execs runs n commands and puts what they cost into a growth.
func (s *posternSite) execs(ctx context.Context, g *growth, n int) error {
	before, err := s.memory(ctx)
	if err != nil {
		return err
	}
	// A tenth of less is too short to be compared.
	tenths := n >= 100
	parts := []int{n}
	if tenths {
		parts = []int{n / 10, n - n/10*2, n / 10}
	}
	stretches := make([]stretch, len(parts))
	var all stretch
	for i, part := range parts {
		if stretches[i], err = s.stretch(ctx, part); err != nil {
			return err
		}
		all.took += stretches[i].took
		for j, used := range stretches[i].used {
			all.used[j] += used
		}
	}
	after, err := s.memory(ctx)
	if err != nil {
		return err
	}
	each := float64(n)
	g.flat(n, "time, each", "ms", all.took*1000/each)
	for i, part := range siteParts {
		g.flat(n, "processor of "+part+", each", "ms", all.used[i]*1000/each)
	}
	for i, part := range siteParts {
		g.total(n, "processor of "+part+", all", "s", all.used[i])
	}
	if tenths {
		first, last := stretches[0], stretches[2]
		g.flat(n, "time, last tenth to first", "", last.took/first.took)
		for i, part := range siteParts[:ofCommands] {
			g.flat(n, "processor of "+part+", last tenth to first", "", last.used[i]/first.used[i])
		}
	}
	for i, part := range siteParts[:ofCommands] {
		g.flat(n, "in use by "+part+", each", "KiB", (after.inUse[i]-before.inUse[i])/1024/each)
	}
	g.flat(n, "resident in executor, each", "KiB", (after.resident-before.resident)/1024/each)
	g.total(n, "resident in executor at the end", "MiB", after.resident/(1<<20))
	return nil
}

// stretch is some commands in a row.
type stretch struct {
	took float64 // seconds
	used processors
}

func (s *posternSite) stretch(ctx context.Context, n int) (t stretch, err error) {
	commands := s.ended() // which takes processor time of its own
	before, err := s.clocks()
	if err != nil {
		return t, err
	}
	begun := time.Now()
	for i := range n {
		if err := s.box.Command("true").Run(ctx); err != nil {
			return t, fmt.Errorf("number %d of %d in a row: %w", i+1, n, err)
		}
	}
	t.took = time.Since(begun).Seconds()
	// What was begun for the last command, the next sandbox say, belongs to it.
	if err := pause(ctx, 300*time.Millisecond); err != nil {
		return t, err
	}
	t.used, err = s.clocks()
	for i := range before {
		t.used[i] -= before[i]
	}
	t.used[ofCommands] = s.ended() - commands
	return t, err
}
