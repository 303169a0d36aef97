// Package executortest runs commands that exist only in memory: a Runner for executor.Local whose
// processes are goroutines with pipes of their own. It starts no real process and opens no
// descriptor, so that an executor works inside a testing/synctest bubble, on its clock.
//
// It is for tests only and has no sandbox: what a command may do is not its subject. Nor does
// it imitate a shell; the first word chooses one of a few commands that are made to
// disturb (commands.go), and a test can add others.
//
// Start with [Runner], then see [Process] for what a command can do.
package executortest

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/wire"
)

// Runner is an executor.Runner of scripted commands. The zero value knows the commands of this
// package. It is safe for concurrent use and has nothing to close: a process ends when its
// command returns or a signal ends it.
type Runner struct {
	mu       sync.Mutex
	commands map[string]Command
	specs    []executor.Spec
	running  int
}

var _ executor.Runner = (*Runner)(nil)

// Command is what a process does. Its result is the exit code, unless a signal ended the
// process before. It must return soon after a method of p has failed or p.Context has ended.
type Command func(p *Process) int

// Handle makes name a command of this runner; it goes before one of the package's.
func (r *Runner) Handle(name string, c Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commands == nil {
		r.commands = make(map[string]Command)
	}
	r.commands[name] = c
}

// Starts is how many processes were ever started: what proves that nothing ran twice.
func (r *Runner) Starts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.specs)
}

// Specs are the commands that were started, in order.
func (r *Runner) Specs() []executor.Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.specs)
}

// Running is how many processes have not ended.
func (r *Runner) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// Run implements executor.Runner. An unknown command is not found, "noexec" cannot be executed.
func (r *Runner) Run(ctx context.Context, s executor.Spec) (executor.Running, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := s.Argv[0]
	do := r.commands[name]
	if do == nil {
		do = builtin[name]
	}
	switch {
	case name == "noexec":
		return nil, wire.Errorf(wire.CodeNotExec, "noexec: permission denied")
	case do == nil:
		return nil, wire.Errorf(wire.CodeNotFoundCmd, "%s: command not found", name)
	}
	r.specs = append(r.specs, s)
	r.running++
	p := newProcess(s)
	go p.run(do, r.ended)
	return running{p}, nil
}

func (r *Runner) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

func newProcess(s executor.Spec) *Process {
	p := &Process{Argv: s.Argv, Env: s.Env, Signals: make(chan wire.Signal, 64), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if s.TTY != nil {
		p.size = *s.TTY
		p.tty = true
	}
	output := func(stream wire.OutputStream) *pipe {
		o := newPipe()
		p.outputs = append(p.outputs, executor.OutputPipe{Stream: stream, Pipe: reader{o}})
		p.pipes = append(p.pipes, o)
		return o
	}
	switch {
	case p.tty:
		p.stdout = output(wire.Terminal)
		p.stderr = p.stdout
	case s.Merge:
		p.stdout = output(wire.Stdout)
		p.stderr = p.stdout
	default:
		p.stdout, p.stderr = output(wire.Stdout), output(wire.Stderr)
	}
	p.Stdin, p.Stdout, p.Stderr = eof{}, writer{p.stdout}, writer{p.stderr}
	if s.Stdin {
		p.stdin = newPipe()
		p.Stdin = reader{p.stdin}
		if p.tty {
			p.Stdin = &lineInput{reader: reader{p.stdin}}
		}
	}
	return p
}

// eof is the null device.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
func (eof) Close() error             { return nil }

// lineInput ends where a terminal's end-of-file character stands.
type lineInput struct {
	reader
	over bool
}

func (l *lineInput) Read(b []byte) (int, error) {
	if l.over {
		return 0, io.EOF
	}
	n, err := l.reader.Read(b)
	if i := bytes.IndexByte(b[:n], 4); i >= 0 {
		l.over = true
		if n = i; n == 0 {
			return 0, io.EOF
		}
	}
	return n, err
}
