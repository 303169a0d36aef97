package executor

import (
	"context"
	"io"
	"time"

	"github.com/postern-relay/postern/wire"
)

// Runner turns a prepared command into a process. The sandbox is the one that the
// product uses (sandboxRunner); tests that need a simulated clock have another.
type Runner interface {
	// Run returns once the command runs, or a *wire.Error and nothing left behind.
	Run(context.Context, Spec) (Running, error)
}

// Spec is a command after the executor's policy: nothing in it is still the client's
// to choose.
type Spec struct {
	Policy Policy
	Argv   []string
	Arg0   string
	Dir    string
	Env    []string
	Umask  uint32
	Stdin  bool
	TTY    *wire.WinSize
	Merge  bool
}

// Running is one process. Its pipes belong to the exec that started it, which closes them.
type Running interface {
	Stdin() io.WriteCloser // nil: the null device
	Outputs() []OutputPipe
	Signal(wire.Signal) error    // the process group, or the terminal's foreground group
	SignalAll(wire.Signal) error // everything that the command started
	Kill() error                 // everything, at once
	Resize(wire.WinSize) error
	// Wait returns when the main process has ended and everything else in the sandbox with it.
	Wait() Ended
	// Denials are what the sandbox has refused, as far as that can be proven, for after Wait. Output is the last of what a
	// command printed that has failed: what it complains of counts where the policy says the same.
	Denials(output []byte) []wire.Denial
}

// OutputPipe is the reading end of one stream of output.
type OutputPipe struct {
	Stream wire.OutputStream
	Pipe   interface {
		io.ReadCloser
		SetReadDeadline(time.Time) error
	}
}

// Ended is how a process ended, as its runner saw it.
type Ended struct {
	Code   int
	Signal wire.Signal
	Strays int
	OOM    bool          // the memory limit ended it
	Hit    wire.LimitSet // limits that it ran into
}
