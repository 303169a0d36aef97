package executor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/creack/pty"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/sandbox/egress"
	"github.com/postern-relay/postern/wire"
)

// sandboxRunner runs commands in the sandbox of this machine. It is the one place where
// wire's modes and codes meet the sandbox's.
type sandboxRunner struct {
	launcher *sandbox.Launcher
	proxies  proxies
}

// NewSandboxRunner is the Runner of the product. The launcher stays the caller's. Commands with an allow-list reach hosts of
// the public Internet, and in the permitted networks, such as that of a registry beside this machine.
func NewSandboxRunner(l *sandbox.Launcher, permit ...netip.Prefix) Runner {
	return &sandboxRunner{launcher: l, proxies: proxies{permit: permit}}
}

var sandboxModes = map[wire.SandboxMode]sandbox.Mode{
	wire.SandboxReadOnly:       sandbox.ReadOnly,
	wire.SandboxWorkspaceWrite: sandbox.WorkspaceWrite,
	wire.SandboxFullAccess:     sandbox.FullAccess,
}

var networkModes = map[wire.NetworkMode]sandbox.NetworkMode{
	wire.NetworkNone:      sandbox.NetworkNone,
	wire.NetworkAllowList: sandbox.NetworkProxy,
	wire.NetworkHost:      sandbox.NetworkHost,
}

// sandboxNetwork is n for the sandbox, where those share a network whose whole request is the same.
func sandboxNetwork(n Network) sandbox.Network {
	s := sandbox.Network{Mode: networkModes[n.Mode], Session: n.Session}
	if n.Session != "" {
		s.Owner = n.owner
		s.Session += "\x00" + n.Rules.String()
	}
	return s
}

// sandboxLimits are those that the sandbox enforces; time and output are the executor's own.
func sandboxLimits(l wire.Limits) sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: l.Memory, Processes: l.Processes, CPUMilli: l.CPUMilli,
		OpenFiles: l.OpenFiles, FileBytes: l.FileSize, CPUSeconds: (l.CPUMillis + 999) / 1000,
	}
}

// Run implements Runner.
func (r *sandboxRunner) Run(ctx context.Context, s Spec) (Running, error) {
	cmd := sandbox.Command{Argv: s.Argv, Arg0: s.Arg0, Env: s.Env, Dir: s.Dir, Umask: int(s.Umask)}
	policy := sandbox.Policy{
		Mode: sandboxModes[s.Policy.Sandbox], Roots: s.Policy.Roots, View: sandbox.ViewMinimal, TmpBytes: int64(min(s.Policy.Limits.Tmp, 1<<62)),
		Limits: sandboxLimits(s.Policy.Limits), Network: sandboxNetwork(s.Policy.Network),
	}
	if s.Policy.View == wire.ViewFull {
		policy.View = sandbox.ViewFull
	}
	p := &sandboxProcess{}
	if s.TTY != nil {
		cmd.TTY = &sandbox.WinSize{Rows: s.TTY.Rows, Cols: s.TTY.Cols}
	} else if err := p.makePipes(s, &cmd); err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "no pipe for the command: %v", err)
	}
	proc, err := r.launcher.Start(ctx, policy, cmd)
	for _, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		if f != nil {
			f.Close() // the command has them now; a merged one is closed twice, which is harmless
		}
	}
	if err != nil {
		p.closeOurs()
		return nil, startError(s, err)
	}
	p.proc, p.rules, p.leaveProxy = proc, s.Policy.Network.Rules, func() {}
	if l := proc.Listener(); l != nil {
		if p.refused, p.leaveProxy, err = r.proxies.use(l, s.Policy.Network); err != nil {
			_ = proc.Kill()
			p.closeOurs()
			if tty := proc.TTY(); tty != nil {
				tty.Close()
			}
			return nil, wire.Errorf(wire.CodeInternal, "no proxy for the command, which was ended: %v", err)
		}
	}
	if s.TTY != nil {
		p.tty = proc.TTY()
		if s.Stdin {
			p.stdin = p.tty
		}
		p.outputs = []OutputPipe{{wire.Terminal, p.tty}}
	}
	return p, nil
}

// sandboxProcess implements Running.
type sandboxProcess struct {
	proc    *sandbox.Process
	stdin   io.WriteCloser
	outputs []OutputPipe
	tty     *os.File

	rules      egress.Rules
	refused    *egress.Record // by the proxy; nil: there is none
	leaveProxy func()
}

// makePipes gives the command pipes as asked for: no stdin means the null device.
func (p *sandboxProcess) makePipes(s Spec, cmd *sandbox.Command) error {
	output := func(stream wire.OutputStream) (*os.File, error) {
		ours, theirs, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs.Fd() // makes the end blocking: the command must not meet EAGAIN
		p.outputs = append(p.outputs, OutputPipe{stream, ours})
		return theirs, nil
	}
	var err error
	if cmd.Stdout, err = output(wire.Stdout); err == nil {
		if s.Merge {
			cmd.Stderr = cmd.Stdout
		} else {
			cmd.Stderr, err = output(wire.Stderr)
		}
	}
	if err == nil && s.Stdin {
		var theirs, ours *os.File
		if theirs, ours, err = os.Pipe(); err == nil {
			theirs.Fd()
			cmd.Stdin, p.stdin = theirs, ours
		}
	}
	if err != nil {
		p.closeOurs()
		for _, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
			if f != nil {
				f.Close()
			}
		}
	}
	return err
}

func (p *sandboxProcess) closeOurs() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, o := range p.outputs {
		o.Pipe.Close()
	}
}

func (p *sandboxProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *sandboxProcess) Outputs() []OutputPipe { return p.outputs }

func (p *sandboxProcess) Signal(s wire.Signal) error {
	return p.proc.Signal(syscall.Signal(s.Number()))
}

func (p *sandboxProcess) SignalAll(s wire.Signal) error {
	return p.proc.SignalAll(syscall.Signal(s.Number()))
}

func (p *sandboxProcess) Kill() error { return p.proc.Kill() }

// Resize holds the terminal while it uses it, which may be closed at any time: its number could
// be that of another file by then.
func (p *sandboxProcess) Resize(size wire.WinSize) error {
	conn, err := p.tty.SyscallConn()
	if err != nil {
		return err
	}
	resized := conn.Control(func(uintptr) {
		err = pty.Setsize(p.tty, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
	})
	return cmp.Or(resized, err)
}

func (p *sandboxProcess) Wait() Ended {
	r, err := p.proc.Wait()
	p.leaveProxy()
	e := Ended{Strays: r.Strays, Hit: limitsHit(r.Hit)}
	switch {
	case err != nil: // the init is gone without a word: everything in the sandbox went with it
		e.Signal = "KILL"
	case r.Signal != 0:
		e.Signal = wire.SignalNumber(int(r.Signal))
	default:
		e.Code = r.ExitCode
	}
	e.OOM = e.Signal == "KILL" && r.Hit.Memory
	return e
}

func limitsHit(h sandbox.LimitsHit) (s wire.LimitSet) {
	for _, l := range []struct {
		hit   bool
		limit wire.LimitSet
	}{
		{h.Memory, wire.LimitMemory},
		{h.Processes, wire.LimitProcesses},
		{h.CPUTime, wire.LimitCPUTime},
		{h.FileSize, wire.LimitFileSize},
	} {
		if l.hit {
			s |= l.limit
		}
	}
	return s
}

// startError turns the sandbox's errors into codes and one clear line.
func startError(s Spec, err error) error {
	if e, ok := errors.AsType[*sandbox.CommandError](err); ok {
		return commandError(s, e)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &sandboxFailure{wire.Errorf(wire.CodeSandbox, "%v", err), stageOf(err)}
}

func commandError(s Spec, e *sandbox.CommandError) error {
	missing := errors.Is(e.Err, fs.ErrNotExist) || errors.Is(e.Err, syscall.ENOTDIR)
	switch {
	case e.Op == "chdir":
		return wire.Errorf(wire.CodeBadRequest, "working directory %s: %v", s.Dir, e.Err)
	case missing && strings.ContainsAny(s.Argv[0], " \t") && len(s.Argv) == 1:
		return wire.Errorf(wire.CodeNotFoundCmd, "%q: command not found (did you mean: sh -c '...'?)", s.Argv[0])
	case missing && e.Op == "exec":
		return wire.Errorf(wire.CodeNotFoundCmd, "%s: command not found, or its interpreter is missing", s.Argv[0])
	case missing:
		return wire.Errorf(wire.CodeNotFoundCmd, "%s: command not found", s.Argv[0])
	}
	return wire.Errorf(wire.CodeNotExec, "%s: %v", s.Argv[0], e.Err)
}
