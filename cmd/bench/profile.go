//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// profileSeconds is how long each load runs under the profilers.
const profileSeconds = 5

// profile writes CPU profiles of the three processes, where the client is this one, under each kind of load. Nothing
// of it is in the report.
func (b *bench) profile(ctx context.Context, s *posternSite) error {
	if err := os.MkdirAll(b.o.profiles, 0o755); err != nil {
		return err
	}
	loads := []struct {
		name string
		run  func(context.Context) error
	}{
		{"down", func(ctx context.Context) error { return s.pour(ctx, false) }},
		{"up", func(ctx context.Context) error { return s.pour(ctx, true) }},
		{"execs", s.manyExecs},
	}
	for _, load := range loads {
		b.say("profiles: %s", load.name)
		if err := b.profileOne(ctx, s, load.name, load.run); err != nil {
			return fmt.Errorf("profiles: %s: %w", load.name, err)
		}
	}
	return nil
}

func (b *bench) profileOne(ctx context.Context, s *posternSite, name string, run func(context.Context) error) error {
	file := func(who string) string {
		return filepath.Join(b.o.profiles, fmt.Sprintf("%s-%s.pprof", name, who))
	}
	before, begun := s.used(), time.Now()
	loading, enough := context.WithCancel(ctx)
	defer enough()
	var load sync.WaitGroup
	var failed error
	load.Go(func() { failed = run(loading) })
	var mine bytes.Buffer
	if err := pprof.StartCPUProfile(&mine); err != nil {
		return err
	}
	var watched sync.WaitGroup
	failures := make([]error, 2)
	for i, who := range []struct{ name, address string }{{"relay", s.relay.watched}, {"executor", s.watched}} {
		watched.Go(func() {
			text, err := get(ctx, who.address, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
			if err == nil {
				err = os.WriteFile(file(who.name), text, 0o644)
			}
			failures[i] = err
		})
	}
	watched.Wait()
	used, share := s.used(), 100/time.Since(begun).Seconds()
	b.say("%s: of one processor, client %.0f %%, relay %.0f %%, executor %.0f %%, what it runs %.0f %%", name,
		(used.client-before.client)*share, (used.relay-before.relay)*share, (used.executor-before.executor)*share, (used.commands-before.commands)*share)
	pprof.StopCPUProfile()
	enough()
	load.Wait()
	if errors.Is(failed, context.Canceled) {
		failed = nil // that was us
	}
	return errors.Join(append(failures, failed, os.WriteFile(file("client"), mine.Bytes(), 0o644))...)
}

// usage is processor time so far, in seconds.
type usage struct{ client, relay, executor, commands float64 }

func (s *posternSite) used() usage {
	at := func(pid int) float64 { return tree(pid)[pid].own }
	executor := s.executor.cmd.Process.Pid
	u := usage{client: at(os.Getpid()), relay: at(s.relay.cmd.Process.Pid), executor: at(executor)}
	u.commands = treeCPU(executor) - u.executor // sandboxes, and what makes them
	return u
}

// pour moves zeros until its context ends.
func (s *posternSite) pour(ctx context.Context, up bool) error {
	if !up {
		c := s.box.Command("cat", "/dev/zero")
		c.Stdout = io.Discard
		return c.Run(ctx)
	}
	p, err := s.box.Backend.Start(ctx, wire.ExecParams{Argv: []string{"wc", "-c"}, Stdin: true})
	if err != nil {
		return err
	}
	defer p.Close()
	buf := make([]byte, bulkBuffer)
	for offset := uint64(0); ; offset += uint64(len(buf)) {
		if err := p.Write(ctx, offset, buf); err != nil {
			return err
		}
	}
}

// manyExecs runs true, four at a time, until its context ends.
func (s *posternSite) manyExecs(ctx context.Context) error {
	var all sync.WaitGroup
	failures := make([]error, 4)
	for i := range failures {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := s.box.Command("true").Run(ctx); err != nil && ctx.Err() == nil {
					failures[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}
