package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postern-relay/postern/wire"
)

// Environment is a place where commands run: a name for people and a backend. Whether that is
// this machine or another behind a relay makes no difference to its users.
type Environment struct {
	Name    string
	Backend wire.ExecBackend
}

// Command is a command with no input and no output, to be filled in before it is started.
// Unlike a shell it takes every word as it is.
func (e Environment) Command(argv ...string) *Cmd {
	return &Cmd{Params: wire.ExecParams{Argv: argv}, backend: e.Backend}
}

// Cmd is one command and its files, in the manner of os/exec: fill in the fields, then Run, or
// Start and Wait. It cannot be used twice, and its fields must not be changed after Start.
type Cmd struct {
	// Params say what to run and how; Stdin in it is set by Start.
	Params wire.ExecParams
	// Stdin is read until its end or until the command reads no more; nil is the null
	// device. A Read that is blocked when the command ends stays blocked: close what it reads from.
	Stdin io.Reader
	// Stdout and Stderr get the output as it comes, one Write at a time; nil discards it. With a
	// terminal everything goes to Stdout.
	Stdout, Stderr io.Writer

	backend wire.ExecBackend
	process wire.ExecProcess
}

// ExitError says that the command ran and did not return zero.
type ExitError struct{ Status wire.ExitStatus }

// Error is the status in words.
func (e *ExitError) Error() string { return e.Status.String() }

// Run starts the command and waits for it. Its error is an *ExitError when the command
// failed, wire.ErrLost when the outcome is unknown, one of wire.CodeUnknown when output is missing
// (see Wait), and anything else when it did not run. When ctx ends first, the command is terminated.
func (c *Cmd) Run(ctx context.Context) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	status, err := c.Wait(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		c.abandon()
		return err
	case err != nil:
		return err
	case !status.Success():
		return &ExitError{status}
	}
	return nil
}

// Output is Run, and returns what the command wrote to stdout.
func (c *Cmd) Output(ctx context.Context) ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("client: Stdout is set already")
	}
	var b bytes.Buffer
	c.Stdout = &b
	err := c.Run(ctx)
	return b.Bytes(), err
}

// Start starts the command. The context bounds the start only.
func (c *Cmd) Start(ctx context.Context) error {
	if c.process != nil {
		return errors.New("client: command was started already")
	}
	c.Params.Stdin = c.Params.Stdin || c.Stdin != nil
	p, err := c.backend.Start(ctx, c.Params)
	if err != nil {
		return err
	}
	c.process = p
	return nil
}

// Process is the handle, nil before Start. Its output belongs to Wait.
func (c *Cmd) Process() wire.ExecProcess { return c.process }

// Wait passes input and output on until the command has ended and its last byte was written,
// and closes the handle. Where Stdout or Stderr takes no more, the command is told as
// a pipe would (PIPE, then an end), and the error of the Write is returned with the status.
// Where output is missing, an error of wire.CodeUnknown says so, together with the status
// if that is known; else the status is zero.
func (c *Cmd) Wait(ctx context.Context) (wire.ExitStatus, error) {
	if c.process == nil {
		return wire.ExitStatus{}, errors.New("client: command was not started")
	}
	if c.Stdin != nil {
		feeding, stop := context.WithCancel(ctx)
		defer stop()
		go feed(feeding, c.process, c.Stdin)
	}
	status, err := c.follow(ctx)
	if ctx.Err() == nil {
		c.process.Close()
	}
	return status, err
}

// abandon ends a command whose caller has no more time.
func (c *Cmd) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = c.process.Terminate(ctx, 0) // if it does not arrive, the detach grace ends the command
	c.process.Close()
}

func (c *Cmd) follow(ctx context.Context) (wire.ExitStatus, error) {
	var broken, missing error
	for e, err := range c.process.Events(ctx, 0) {
		switch {
		case err != nil:
			return wire.ExitStatus{}, err
		case e.Exit != nil:
			// Acknowledges Exit, so that the executor need not keep anything for us.
			_, _ = c.process.Read(ctx, wire.ReadRequest{After: e.Seq})
			if missing == nil {
				return *e.Exit, broken
			}
			if e.Exit.Cause == wire.CauseExecutorLost {
				return wire.ExitStatus{}, errors.Join(fmt.Errorf("the executor was lost while the command ran, and %w", missing), broken)
			}
			return *e.Exit, errors.Join(fmt.Errorf("%v, but %w", *e.Exit, missing), broken)
		case e.Gap != nil:
			if missing == nil {
				missing = missingOutput(e.Gap)
			}
		case broken == nil:
			if broken = c.deliver(e.Chunk); broken != nil {
				go BreakPipe(ctx, c.process)
			}
		}
	}
	return wire.ExitStatus{}, wire.ErrLost
}

// missingOutput is the error for a gap: nobody can say what was in it.
func missingOutput(g *wire.Gap) error {
	if g.Bytes == 0 {
		return wire.Errorf(wire.CodeUnknown, "some of its output is missing: the executor does not have it any more")
	}
	return wire.Errorf(wire.CodeUnknown, "%d bytes of its output are missing: the executor does not keep them any more", g.Bytes)
}

func (c *Cmd) deliver(chunk *wire.Chunk) error {
	w := c.Stdout
	if chunk.Stream == wire.Stderr {
		w = c.Stderr
	}
	if w == nil {
		return nil
	}
	_, err := w.Write(chunk.Data)
	return err
}

// BreakPipe tells a command that nobody takes its output any more, as a closed pipe would: SIGPIPE, and an end
// for those that ignore it for a second. It returns when that is sent, when the command or the handle
// has ended, or when ctx ends. p must control the exec.
func BreakPipe(ctx context.Context, p wire.ExecProcess) {
	if p.Signal(ctx, "PIPE") == nil {
		patience := time.NewTimer(time.Second)
		defer patience.Stop()
		select {
		case <-patience.C:
		case <-ctx.Done():
			return
		}
	}
	_ = p.Terminate(ctx, 0) // fails only when the command or the connection has ended
}

// feed copies stdin. What the command does not read is of no interest.
func feed(ctx context.Context, p wire.ExecProcess, r io.Reader) {
	buf := make([]byte, wire.MaxChunk)
	var offset uint64
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if p.Write(ctx, offset, buf[:n]) != nil {
				return
			}
			offset += uint64(n)
		}
		if err != nil {
			_ = p.CloseStdin(ctx) // an unreadable input ends as a finished one does
			return
		}
	}
}
