//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// bench is one run.
type bench struct {
	o        options
	dir      string // temporary
	program  string // the product, in dir
	ssh      *sshPrograms
	report   report
	progress io.Writer
	begun    time.Time
	atSize   func(n int) // a growth has got to a size
}

func newBench(o options, progress io.Writer) (*bench, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // as the kernel calls what runs from it
	}
	if err != nil {
		return nil, err
	}
	return &bench{o: o, dir: dir, progress: progress, begun: time.Now()}, nil
}

// close leaves nothing behind. What the run has started it has ended by now, but for what the product may have
// left in the background.
func (b *bench) close() {
	for _, pid := range strays(b.program) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = os.RemoveAll(b.dir) // at worst a temporary folder stays
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "bench: %4.0f s  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// rounds scales the number of rounds to what a turn costs.
func (b *bench) rounds(share float64) int { return max(1, int(float64(b.o.rounds)*share)) }

func (b *bench) wanted(name string) bool {
	return len(b.o.only) == 0 || slices.Contains(b.o.only, name)
}

// measureAll fills the report.
func (b *bench) measureAll(ctx context.Context) (err error) {
	b.report.describe()
	if len(b.o.only) == 1 && b.o.only[0] == noMeasure && b.o.profiles == "" && len(b.o.growth) == 0 {
		return nil
	}
	b.say("building postern")
	if b.program, err = buildPostern(ctx, b.dir, b.o.postern); err != nil {
		return err
	}
	b.findSSH()
	if err := b.onPath(ctx, loopback, 0); err != nil {
		return err
	}
	if b.o.delay > 0 {
		if err := b.onPath(ctx, delayed, b.o.delay); err != nil {
			return err
		}
	}
	for _, m := range once {
		if !b.wanted(m.name) {
			continue
		}
		if err := m.take(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return b.takeGrowth(ctx)
}

func (b *bench) findSSH() {
	if !b.o.ssh {
		b.report.SSH = "left out (-ssh=false)"
		return
	}
	p, err := findSSH()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.report.SSH = "not installed (" + err.Error() + ")"
	case err != nil:
		b.report.SSH = err.Error()
	default:
		b.ssh = &p
	}
}

// onPath takes the measures of one path, whose sides all run until the last.
func (b *bench) onPath(ctx context.Context, name string, delay time.Duration) (err error) {
	if !slices.ContainsFunc(onPath, func(m pathMeasure) bool { return b.wanted(m.name) }) && b.o.profiles == "" {
		return nil
	}
	p := &path{name: name, delay: delay}
	b.say("%s: bringing the sides up", name)
	if p.postern, err = newPostern(ctx, b.program, filepath.Join(b.dir, "p-"+name), delay); err != nil {
		return err
	}
	defer p.postern.close()
	if p.agent, err = p.postern.hasAgent(ctx); err != nil {
		return err
	}
	for i, settings := range sshVariants {
		if b.ssh == nil {
			break
		}
		s, err := newSSH(ctx, *b.ssh, filepath.Join(b.dir, fmt.Sprintf("s%d-%s", i, name)), settings, delay)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			// A machine may have an sshd that does not work, for this user say. The others are measured all the same.
			b.say("%s does not work here: %v", settings.name, err)
			b.report.Peers = append(b.report.Peers, peerReport{Name: settings.name, Path: name, Missing: err.Error()})
			continue
		}
		defer s.close()
		p.ssh = append(p.ssh, s)
		b.report.Peers = append(b.report.Peers, s.describe(name))
	}
	for _, m := range onPath {
		if !b.wanted(m.name) {
			continue
		}
		built, err := m.build(ctx, b, p)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", m.name, name, err)
		}
		if err := b.take(ctx, built); err != nil {
			return err
		}
	}
	if name == loopback && b.o.profiles != "" {
		return b.profile(ctx, p.postern)
	}
	return nil
}

// take runs a measure and puts it into the report.
func (b *bench) take(ctx context.Context, m *measure) error {
	if m.close != nil {
		defer m.close()
	}
	b.say("%s, %s: %d rounds of %d sides", m.name, m.path, m.rounds, len(m.contenders))
	m.settle = settling
	all, err := m.run(ctx)
	if err != nil {
		return err
	}
	b.report.add(m, all, b.o.delay)
	return nil
}
