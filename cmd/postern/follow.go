package main

import (
	"context"
	"fmt"
	"io"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// sink is where the log of an exec goes. Its errors are those of a Write.
type sink interface {
	output(*wire.Chunk) error
	gap(*wire.Gap) error
	exit(seq uint64, status wire.ExitStatus) error
}

// following is a handle on an exec, and what is done with its log.
type following struct {
	process wire.ExecProcess
	after   uint64
	until   uint64 // stop after this number; zero: after Exit
	to      sink
	control bool // the handle controls: an output that is closed here is closed for the command
}

// outcome is how following ended: an exit status, or err.
type outcome struct {
	status  *wire.ExitStatus
	err     error // why there is no status
	broken  error // the output could not be written here
	missing bool  // some of the output was not kept
}

// run passes the log on until Exit, or until the connection is lost for good. When a Write fails, a
// viewer ends, and a controller goes on for the status.
func (f following) run(ctx context.Context) (o outcome) {
	for e, err := range f.process.Events(ctx, f.after) {
		if err != nil {
			o.err = err
			return o
		}
		o.missing = o.missing || e.Gap != nil
		if o.broken == nil {
			o.broken = f.pass(e)
			if o.broken != nil && !f.control {
				return o
			}
			if o.broken != nil && e.Exit == nil {
				go client.BreakPipe(ctx, f.process)
			}
		}
		if e.Exit != nil {
			// Acknowledges Exit, so that the executor need not keep anything for us.
			_, _ = f.process.Read(ctx, wire.ReadRequest{After: e.Seq})
			o.status = e.Exit
			return o
		}
		if f.until != 0 && e.Seq >= f.until {
			return o
		}
	}
	o.err = wire.ErrLost
	return o
}

func (f following) pass(e wire.Event) error {
	switch {
	case e.Gap != nil:
		return f.to.gap(e.Gap)
	case e.Chunk != nil:
		return f.to.output(e.Chunk)
	}
	return f.to.exit(e.Seq, *e.Exit)
}

// files puts the two streams of a command where they belong. A terminal has one, which is
// for stdout.
type files struct {
	out, err io.Writer
	notes    *notes
}

func (f files) output(c *wire.Chunk) error {
	w := f.out
	if c.Stream == wire.Stderr {
		w = f.err
	}
	_, err := w.Write(c.Data)
	return err
}

func (f files) gap(g *wire.Gap) error {
	f.notes.warn("%s", gapText(g))
	return nil
}

func (f files) exit(uint64, wire.ExitStatus) error { return nil }

// gapText says what is missing. How much is not always known.
func gapText(g *wire.Gap) string {
	if g.Bytes == 0 {
		return "output is missing here"
	}
	return fmt.Sprintf("%d bytes of output are no longer kept", g.Bytes)
}
