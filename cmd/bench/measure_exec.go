//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// timed is how long a function takes, in milliseconds.
func timed(do func() error) ([]float64, error) {
	begun := time.Now()
	err := do()
	return []float64{float64(time.Since(begun)) / float64(time.Millisecond)}, err
}

// timedCommand times a process from its start to its end.
func timedCommand(make func(context.Context) *exec.Cmd) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		return timed(func() error { return runOnce(make(ctx)) })
	}
}

var inMilliseconds = []quantity{{name: "time", unit: "ms"}}

// measureCold times a whole client process that connects, runs true and ends.
func measureCold(_ context.Context, b *bench, p *path) (*measure, error) {
	m := &measure{
		name: coldExec, path: p.name, quantities: inMilliseconds, rounds: b.rounds(1),
		about: "a client process that connects, runs `true` and ends: `postern exec` with no connection kept, `ssh` with ProxyJump",
		contenders: []contender{{name: postern, sample: timedCommand(func(ctx context.Context) *exec.Cmd {
			return p.postern.command(ctx, "exec", executorName, "--", "true")
		})}},
	}
	for _, s := range p.peers(sshDefault, sshCurve, sshTuned) {
		m.contenders = append(m.contenders, contender{name: s.name, peer: true, sample: timedCommand(func(ctx context.Context) *exec.Cmd {
			return s.cold(ctx, "true")
		})})
	}
	return m, nil
}

// inARow is how many warm commands follow each other in a turn.
const inARow = 8

// measureWarm times true over a connection that is there: several in a row, as a script runs them, where each finds what the one before
// has left behind, and the first of them, which comes after the pause between the turns.
func measureWarm(_ context.Context, b *bench, p *path) (*measure, error) {
	row := func(one func(context.Context) error) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) {
			var first, all float64
			for i := range inARow {
				took, err := timed(func() error { return one(ctx) })
				if err != nil {
					return nil, err
				}
				if all += took[0]; i == 0 {
					first = took[0]
				}
			}
			return []float64{all / inARow, first}, nil
		}
	}
	process := func(make func(context.Context) *exec.Cmd) func(context.Context) ([]float64, error) {
		return row(func(ctx context.Context) error { return runOnce(make(ctx)) })
	}
	m := &measure{
		name: warmExec, path: p.name, quantities: []quantity{{name: "time", unit: "ms"}, {name: "the first alone", unit: "ms"}}, rounds: b.rounds(1),
		about: fmt.Sprintf("`true` over a connection that is there, %d in a row: package client in a running program, and with a client process each where the command line client keeps a connection (agent); `ssh` through a ControlMaster, a process each; the first of the row comes after a pause", inARow),
		contenders: []contender{{name: posternLibrary, sample: row(func(ctx context.Context) error {
			return p.postern.box.Command("true").Run(ctx)
		})}},
	}
	if p.agent {
		m.contenders = append(m.contenders, contender{name: posternAgent, sample: process(func(ctx context.Context) *exec.Cmd {
			return p.postern.commandWith(ctx, "POSTERN_AGENT=on", "exec", executorName, "--", "true")
		})})
	}
	for _, s := range p.peers(sshDefault, sshTuned) {
		m.contenders = append(m.contenders, contender{name: s.name, peer: true, sample: process(func(ctx context.Context) *exec.Cmd {
			return s.warm(ctx, "true")
		})})
	}
	return m, nil
}

// measureParallel runs many commands at once and waits for all.
func measureParallel(_ context.Context, b *bench, p *path) (*measure, error) {
	n := 100
	if b.o.quick {
		n = 10
	}
	at := func(one func(context.Context) error) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) {
			failures := make([]error, n)
			var all sync.WaitGroup
			begun := time.Now()
			for i := range n {
				all.Go(func() { failures[i] = one(ctx) })
			}
			all.Wait()
			return []float64{float64(n) / time.Since(begun).Seconds()}, errors.Join(failures...)
		}
	}
	m := &measure{
		name: parallel, path: p.name, quantities: []quantity{{"rate", "execs/s", true}}, rounds: b.rounds(0.5),
		about: "100 `true` at once over a connection that is there, until the last has ended; few of postern's find a sandbox made ahead",
		contenders: []contender{{name: posternLibrary, sample: at(func(ctx context.Context) error {
			return p.postern.box.Command("true").Run(ctx)
		})}},
	}
	for _, s := range p.peers(sshDefault, sshTuned) {
		m.contenders = append(m.contenders, contender{name: s.name, peer: true, sample: at(func(ctx context.Context) error {
			return runOnce(s.warm(ctx, "true"))
		})})
	}
	return m, nil
}
