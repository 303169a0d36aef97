//go:build !linux

package sandbox

import (
	"context"
	"os"
	"runtime"
	"syscall"
)

// unsupported is the answer of every operating system but Linux. Nothing is ever
// run without the sandbox instead.
func unsupported() *UnsupportedError {
	return &UnsupportedError{Missing: []Layer{{
		Name: "operating system", Reason: "commands can be sandboxed on Linux only, this is " + runtime.GOOS,
		Remedy: "run the executor on Linux, for example in a virtual machine",
	}}}
}

// Init returns at once: there are no hidden helpers on this system.
func Init() {}

// Launcher exists so that programs build; none can be made on this system.
type Launcher struct{}

// NewLauncher returns an *UnsupportedError.
func NewLauncher(Options) (*Launcher, error) { return nil, unsupported() }

// Start returns an *UnsupportedError.
func (*Launcher) Start(context.Context, Policy, Command) (*Process, error) {
	return nil, unsupported()
}

// Level returns "none".
func (*Launcher) Level() string { return "none" }

// Stats returns the zero value.
func (*Launcher) Stats() Stats { return Stats{} }

// Close has nothing to do.
func (*Launcher) Close() error { return nil }

// Process exists so that programs build; none can be started on this system.
type Process struct{}

// PID returns 0.
func (*Process) PID() int { return 0 }

// TTY returns nil.
func (*Process) TTY() *os.File { return nil }

// Listener returns nil.
func (*Process) Listener() *os.File { return nil }

// Signal returns an *UnsupportedError.
func (*Process) Signal(syscall.Signal) error { return unsupported() }

// SignalAll returns an *UnsupportedError.
func (*Process) SignalAll(syscall.Signal) error { return unsupported() }

// Kill returns an *UnsupportedError.
func (*Process) Kill() error { return unsupported() }

// Wait returns an *UnsupportedError.
func (*Process) Wait() (Result, error) { return Result{}, unsupported() }

// Done returns nil, which never becomes ready.
func (*Process) Done() <-chan struct{} { return nil }

// Denials returns nil.
func (*Process) Denials([]byte) []Denial { return nil }

// Probe reports the operating system as the missing layer.
func Probe(context.Context, Options) Report { return Report{Layers: unsupported().Missing} }
