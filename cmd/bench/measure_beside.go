//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// What a flood has carried when others are measured beside it: windows are full by then.
const floodBegins = 8_000_000

// floodArgv never ends by itself; who measures ends it.
var floodArgv = []string{"cat", "/dev/zero"}

// flooded takes a contender's turns while something else floods the way between its ends.
func flooded(c contender, flood func(context.Context) (stop func(), err error)) contender {
	quiet := c.sample
	c.sample = func(ctx context.Context) ([]float64, error) {
		stop, err := flood(ctx)
		if err != nil {
			return nil, fmt.Errorf("the flood: %w", err)
		}
		defer stop()
		return quiet(ctx)
	}
	return c
}

// floodOf runs a client process whose output floods, and returns when the first of it has come.
func floodOf(cmd *exec.Cmd) (stop func(), err error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	drained := make(chan struct{})
	end := func() {
		_ = cmd.Cancel()
		<-drained
		_ = cmd.Wait() // killed
	}
	if _, err := io.CopyN(io.Discard, out, floodBegins); err != nil {
		close(drained)
		end()
		return nil, err
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	return end, nil
}

// floodFrom is the same from package client, over the connection of its caller.
func floodFrom(ctx context.Context, box client.Environment) (stop func(), err error) {
	process, err := box.Backend.Start(ctx, wire.ExecParams{Argv: floodArgv})
	if err != nil {
		return nil, err
	}
	begun, drained := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(drained)
		came, open := 0, true
		for event, err := range process.Events(ctx, 0) {
			if err != nil {
				return
			}
			if event.Chunk != nil {
				came += len(event.Chunk.Data)
			}
			if open && came > floodBegins {
				open = false
				close(begun)
			}
		}
	}()
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		_ = process.Terminate(ctx, time.Millisecond) // else its handle's end does it a little later
		process.Close()
		<-drained
	}
	select {
	case <-begun:
		return end, nil
	case <-drained:
		end()
		return nil, errors.New("it has ended")
	}
}

// measureBeside times messages that cat sends back while another command of the same client floods.
func measureBeside(ctx context.Context, b *bench, p *path) (*measure, error) {
	l := &lines{size: 64, n: b.messages(p, 100)}
	m := &measure{
		name: beside, path: p.name, rounds: b.rounds(0.7), quantities: []quantity{{name: "p50", unit: "ms"}, {name: "p99", unit: "ms"}}, close: l.close,
		about: "64 bytes to an open `cat` and back, while another command sends zeros that are thrown away here: two processes of `postern exec`; the library with both over one connection; two of `ssh` through one ControlMaster",
	}
	var all error
	add := func(c contender, err error, flood func(context.Context) (func(), error)) {
		m.contenders, all = append(m.contenders, flooded(c, flood)), errors.Join(all, err)
	}
	mine, err := l.contender(postern, false, func() (*line, error) {
		return piped(p.postern.command(context.WithoutCancel(ctx), "exec", "-i", executorName, "--", "cat"))
	})
	add(mine, err, func(ctx context.Context) (func(), error) {
		return floodOf(p.postern.command(ctx, append([]string{"exec", "-q", "--grace", "1s", executorName, "--"}, floodArgv...)...))
	})
	library, err := l.contender(posternLibrary, false, func() (*line, error) { return opened(ctx, p.postern.box, "cat") })
	add(library, err, func(ctx context.Context) (func(), error) { return floodFrom(ctx, p.postern.box) })
	for _, s := range p.peers(sshDefault, sshTuned) {
		peer, err := l.contender(s.name, true, func() (*line, error) { return piped(s.warm(context.WithoutCancel(ctx), "cat")) })
		add(peer, err, func(ctx context.Context) (func(), error) { return floodOf(s.warm(ctx, floodArgv...)) })
	}
	if all != nil {
		l.close()
		return nil, all
	}
	return m, nil
}
