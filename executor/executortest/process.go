package executortest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/wire"
)

// Process is what a Command sees of itself. Its methods are safe for concurrent use.
type Process struct {
	Argv, Env []string
	// Stdin ends at once when the command has none. Closing it is what a command does
	// that wants no more input.
	Stdin io.ReadCloser
	// Stdout and Stderr hold 64 KiB each, then Write waits. Without a reader Write fails.
	Stdout, Stderr io.Writer
	// Signals gets what Ignore has made harmless, in order.
	Signals chan wire.Signal

	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{} // the command has returned
	stdin   *pipe
	stdout  *pipe
	stderr  *pipe
	pipes   []*pipe // of the output
	outputs []executor.OutputPipe
	tty     bool

	mu      sync.Mutex
	ignored bool
	size    wire.WinSize
	hold    time.Duration
	strays  int
	signal  wire.Signal // the one that ended it
	code    int
}

// Context ends with the process.
func (p *Process) Context() context.Context { return p.ctx }

// Ignore makes every signal but KILL harmless: they go to Signals.
func (p *Process) Ignore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ignored = true
}

// Hold keeps the output open for d after the process has ended, as a child that escaped would.
func (p *Process) Hold(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = d
}

// Stray makes the end report n processes that had to be ended with this one.
func (p *Process) Stray(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strays = n
}

// Size is the terminal's size, zero without one.
func (p *Process) Size() wire.WinSize {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// Die ends the process by a signal, as if it had sent it to itself.
func (p *Process) Die(s wire.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.die(s)
}

// Sleep waits for d, and reports whether the process lives on.
func (p *Process) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// die needs mu. A blocked read or write of the process fails; what it wrote stays readable.
func (p *Process) die(s wire.Signal) {
	if p.signal != "" || p.ctx.Err() != nil {
		return
	}
	p.signal = s
	p.cancel()
	if p.stdin != nil {
		p.stdin.closeRead()
	}
	for _, o := range p.pipes {
		o.fail()
	}
}

func (p *Process) run(do Command, ended func()) {
	code := do(p)
	p.mu.Lock()
	p.code = code
	p.cancel()
	hold := p.hold
	p.mu.Unlock()
	if p.stdin != nil {
		p.stdin.closeRead()
	}
	finish := func() {
		for _, o := range p.pipes {
			o.closeWrite()
		}
	}
	if hold > 0 {
		time.AfterFunc(hold, finish)
	} else {
		finish()
	}
	ended()
	close(p.ended)
}

// running is what the executor sees of a process.
type running struct{ p *Process }

func (r running) Stdin() io.WriteCloser {
	if r.p.stdin == nil {
		return nil
	}
	return writer{r.p.stdin}
}

func (r running) Outputs() []executor.OutputPipe { return r.p.outputs }

func (r running) Signal(s wire.Signal) error {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return errNoProcess
	case p.ignored && s != "KILL":
		select {
		case p.Signals <- s:
		default: // as with a real one, what is pending already is not queued without end
		}
	case s == "CHLD" || s == "CONT" || s == "URG" || s == "WINCH": // ignored by default
	default:
		p.die(s)
	}
	return nil
}

var errNoProcess = errors.New("no such process")

func (r running) SignalAll(s wire.Signal) error { return r.Signal(s) }
func (r running) Kill() error                   { return r.Signal("KILL") }

func (r running) Resize(size wire.WinSize) error {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.size = size
	return nil
}

func (r running) Wait() executor.Ended {
	p := r.p
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signal != "" {
		return executor.Ended{Signal: p.signal, Strays: p.strays}
	}
	return executor.Ended{Code: p.code, Strays: p.strays}
}

// Denials is none: there is no sandbox.
func (r running) Denials([]byte) []wire.Denial { return nil }
