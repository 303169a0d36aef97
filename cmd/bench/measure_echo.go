//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// line is an open command that sends back what it gets.
type line struct {
	io.Reader
	io.Writer
	close func()
}

// roundTrips sends so many messages of a size, each when the one before has come back, and yields the middle and
// the 99th of 100 times.
func (l *line) roundTrips(n, size int) ([]float64, error) {
	sent, got := bytes.Repeat([]byte("x"), size), make([]byte, size)
	times := make([]float64, n)
	for i := range times {
		sent[0] = 'a' + byte(i%26)
		begun := time.Now()
		if _, err := l.Write(sent); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(l, got); err != nil {
			return nil, err
		}
		times[i] = float64(time.Since(begun)) / float64(time.Millisecond)
		if !bytes.Equal(sent, got) {
			return nil, fmt.Errorf("%q came back as %q", sent, got)
		}
	}
	return []float64{quantile(times, 0.5), quantile(times, 0.99)}, nil
}

// piped opens a client process with pipes.
func piped(cmd *exec.Cmd) (*line, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &line{out, in, func() {
		in.Close()
		_ = cmd.Cancel() // it may have ended
		_ = cmd.Wait()
	}}, nil
}

// handle reads and writes an exec of package client.
type handle struct {
	ctx     context.Context
	process wire.ExecProcess
	sent    uint64
	next    uint64
	rest    []byte
}

func (h *handle) Write(b []byte) (int, error) {
	err := h.process.Write(h.ctx, h.sent, b)
	h.sent += uint64(len(b))
	return len(b), err
}

func (h *handle) Read(b []byte) (int, error) {
	for len(h.rest) == 0 {
		r, err := h.process.Read(h.ctx, wire.ReadRequest{After: h.next, Wait: time.Minute})
		if err != nil {
			return 0, err
		}
		if r.Exit != nil && len(r.Chunks) == 0 {
			return 0, io.EOF
		}
		for _, c := range r.Chunks {
			h.rest = append(h.rest, c.Data...)
		}
		h.next = r.Next
	}
	n := copy(b, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// opened opens a command with package client.
func opened(ctx context.Context, box client.Environment, argv ...string) (*line, error) {
	process, err := box.Backend.Start(ctx, wire.ExecParams{Argv: argv, Stdin: true})
	if err != nil {
		return nil, err
	}
	h := &handle{ctx: ctx, process: process}
	return &line{h, h, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		if process.CloseStdin(ctx) == nil {
			_, _ = process.Wait(ctx) // only so that it is gone
		}
		process.Close()
	}}, nil
}

// onTerminal opens a client process on a terminal, whose command says ready when it is.
func onTerminal(ctx context.Context, cmd *exec.Cmd) (*line, error) {
	cmd.SysProcAttr = nil
	terminal, err := pty.StartWithAttrs(cmd, &pty.Winsize{Rows: 24, Cols: 80}, &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL})
	if err != nil {
		return nil, err
	}
	l := &line{terminal, terminal, func() {
		_ = cmd.Cancel() // its group is its session's
		_ = cmd.Wait()
		terminal.Close()
	}}
	stop := context.AfterFunc(ctx, func() { terminal.Close() })
	defer stop()
	var said strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(said.String(), "ready\n") && !strings.HasSuffix(said.String(), "ready\r\n"); {
		if _, err := terminal.Read(one); err != nil {
			l.close()
			return nil, fmt.Errorf("a terminal: %w: %s", err, said.String())
		}
		said.Write(one)
	}
	return l, nil
}

// lines are the open commands of a measure.
type lines struct {
	all  []*line
	size int // of a message
	n    int // messages in a turn
}

func (l *lines) close() {
	for _, one := range l.all {
		one.close()
	}
}

// contender takes its turns on an open command.
func (l *lines) contender(name string, peer bool, open func() (*line, error)) (contender, error) {
	one, err := open()
	if err != nil {
		return contender{}, fmt.Errorf("%s: %w", name, err)
	}
	l.all = append(l.all, one)
	return contender{name, peer, func(ctx context.Context) ([]float64, error) {
		stop := context.AfterFunc(ctx, one.close) // nothing else ends a read
		defer stop()
		return one.roundTrips(l.n, l.size)
	}}, nil
}

func (b *bench) messages(p *path, n int) int {
	if p.delay > 0 || b.o.quick {
		return 10
	}
	return n
}

// measureEcho times messages that cat sends back.
func measureEcho(ctx context.Context, b *bench, p *path) (*measure, error) {
	l := &lines{size: 64, n: b.messages(p, 200)}
	m := &measure{
		name: echo, path: p.name, rounds: b.rounds(1), quantities: []quantity{{name: "p50", unit: "ms"}, {name: "p99", unit: "ms"}}, close: l.close,
		about: "64 bytes to an open `cat` and back: `postern exec -i` and `ssh` through a ControlMaster, both processes with pipes; the library without a process between",
	}
	argv := []string{"cat"}
	postern, err := l.contender(postern, false, func() (*line, error) {
		return piped(p.postern.command(context.WithoutCancel(ctx), "exec", "-i", executorName, "--", "cat"))
	})
	library, errLibrary := l.contender(posternLibrary, false, func() (*line, error) { return opened(ctx, p.postern.box, argv...) })
	m.contenders = append(m.contenders, postern, library)
	err = errors.Join(err, errLibrary)
	for _, s := range p.peers(sshDefault, sshTuned) {
		peer, errPeer := l.contender(s.name, true, func() (*line, error) { return piped(s.warm(context.WithoutCancel(ctx), argv...)) })
		m.contenders, err = append(m.contenders, peer), errors.Join(err, errPeer)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return m, nil
}

// measureKeystroke times bytes through a terminal at both ends.
func measureKeystroke(ctx context.Context, b *bench, p *path) (*measure, error) {
	l := &lines{size: 1, n: b.messages(p, 100)}
	m := &measure{
		name: keystroke, path: p.name, rounds: b.rounds(1), quantities: []quantity{{name: "p50", unit: "ms"}, {name: "p99", unit: "ms"}}, close: l.close,
		about: "a byte through a terminal here and one there, to a program that sends it back: `postern exec -it`, `ssh -tt` through a ControlMaster",
	}
	const script = "stty -icanon -echo; echo ready; exec cat"
	mine, err := l.contender(postern, false, func() (*line, error) {
		return onTerminal(ctx, p.postern.command(context.WithoutCancel(ctx), "exec", "-it", executorName, "--", "sh", "-c", script))
	})
	m.contenders = append(m.contenders, mine)
	for _, s := range p.peers(sshDefault, sshTuned) {
		peer, errPeer := l.contender(s.name, true, func() (*line, error) {
			cmd := s.warm(context.WithoutCancel(ctx), script)
			cmd.Args = append(cmd.Args[:1], append([]string{"-tt"}, cmd.Args[1:]...)...)
			return onTerminal(ctx, cmd)
		})
		m.contenders, err = append(m.contenders, peer), errors.Join(err, errPeer)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return m, nil
}
