package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postern-relay/postern/wire"
)

// console is this process's end of an exec that it controls: files, terminal, signals.
type console struct {
	std      stdio
	notes    *notes
	link     *link
	terminal *terminal
	signals  *signals
}

func newConsole(std stdio, l *link) *console {
	return &console{std: std, notes: l.notes, link: l, terminal: &terminal{file: std.in}, signals: watchSignals()}
}

// open starts an exec or takes one over. A signal gives up; where that comes too late, the
// command gets it.
func (c *console) open(do func(context.Context) (wire.ExecProcess, error)) (wire.ExecProcess, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first := c.signals.untilFirst(cancel)
	p, err := do(ctx)
	sig := first()
	switch {
	case sig != nil && err != nil:
		return nil, &exitError{128 + int(*sig), ""}
	case sig != nil:
		c.signals.take()
		c.signals.c <- *sig
	}
	return p, err
}

// control says how to attend to an exec.
type control struct {
	after  uint64
	to     sink
	stdin  bool   // pass it on
	input  uint64 // from this offset of the command's input on
	escape byte   // zero: none
	raw    bool   // the command has a terminal, for which the one here is
	typed  bool   // say so when there is nobody to type for
}

// attend passes input, signals and the size of the terminal on, and the log back, until the exec
// has ended or the user leaves. It closes p.
func (c *console) attend(p wire.ExecProcess, o control) (outcome, error) {
	defer p.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var in io.Reader = c.std.in
	if o.raw && o.stdin && c.terminal.exists() {
		if err := c.terminal.raw(); err != nil {
			return outcome{}, fmt.Errorf("the terminal cannot be set to raw mode: %w", err)
		}
		c.notes.raw.Store(true)
		defer func() {
			c.terminal.restore()
			c.notes.raw.Store(false)
		}()
		in = typing(in, o.escape, c.notes.write, func() { c.leaveSoon(cancel) })
	}
	c.forward(ctx, cancel, p)
	if o.stdin {
		go func() {
			switch err := feed(ctx, p, in, o.input); {
			case errors.Is(err, errLeft):
				cancel(errLeft)
			case errors.Is(err, wire.ErrStdinClosed) && o.typed:
				c.notes.say("the command takes no input: it was started without -i, or has closed it")
			}
		}()
	}
	end := following{process: p, after: o.after, to: o.to, control: true}.run(ctx)
	if end.err != nil && context.Cause(ctx) != nil {
		end.err = context.Cause(ctx)
		if c.notes.raw.Load() {
			fmt.Fprint(c.std.err, "\r\n") // the line on which the user left
		}
	}
	return end, nil
}

// leaveSoon gives what was typed before leaving a moment to go out.
func (*console) leaveSoon(cancel context.CancelCauseFunc) {
	time.AfterFunc(time.Second, func() { cancel(errLeft) })
}
