package sandbox

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a started command with its sandbox. It is safe for concurrent use.
type Process struct {
	launcher *Launcher
	pid      int
	pidfd    *os.File // of the init, which is the spawner's child
	rawPidfd int      // the same, as a number
	ctl      *control
	plan     *plan
	session  *netSession // of the plan, which leaves it at the end; nil: none
	tty      *os.File
	listener *os.File // of NetworkProxy
	notices  *notices // nil: refused calls are not told

	ready   chan struct{} // the init is confined and waits for its command
	started chan error    // one value: nil, or why there is no command
	done    chan struct{} // the result is known and nothing of the command lives
	gone    chan struct{} // the init is dead too

	fresh func() bool // of a sandbox made ahead: whether it may still be used

	mu     sync.Mutex
	killed bool
	dead   bool // the init
	result Result
	err    error

	group  *group // nil: no limit needed one
	left   bool   // the init is dead and its group removed
	limits Limits // of the command
	dir    string // where it began
}

func newProcess(l *Launcher, pid, pidfd int, ctl *control, pl *plan) *Process {
	_ = unix.SetNonblock(pidfd, true) // so that its end is a poller's event
	return &Process{
		launcher: l, pid: pid, pidfd: os.NewFile(uintptr(pidfd), "sandbox-init"), rawPidfd: pidfd, ctl: ctl, plan: pl,
		ready: make(chan struct{}), started: make(chan error, 1), done: make(chan struct{}), gone: make(chan struct{}),
	}
}

// listen follows the init to its end.
func (p *Process) listen() {
	told := false
	tell := func(err error) {
		if !told {
			told = true
			p.started <- err
		}
	}
	var failure error
	var result *Result
	finished, ready := false, false
	for {
		kind, body, fds, err := p.ctl.recv()
		if err != nil {
			break
		}
		switch {
		case kind == msgTTY && len(fds) == 1 && p.tty == nil && !told:
			if unix.SetNonblock(fds[0], true) == nil {
				p.tty = os.NewFile(uintptr(fds[0]), "sandbox-terminal")
				fds = nil
			}
		case kind == msgListener && len(fds) == 1 && p.listener == nil && !ready && p.plan.setup.network.Mode == NetworkProxy && p.plan.setup.network.Session == "":
			listener, err := proxyListener(fds[0])
			fds = nil // it is not ours any more, whatever came of it
			if err != nil {
				failure = &SetupError{Stage: "proxy listener", Err: err}
				_ = p.Kill()
				break
			}
			p.listener = listener
		case kind == msgNotices && len(fds) == 1 && p.notices == nil && !ready:
			if unix.SetNonblock(fds[0], true) == nil {
				p.notices = listenForNotices(fds[0])
				fds = nil
			}
		case kind == msgReady && !ready:
			ready = true
			close(p.ready)
		case kind == msgStarted:
			tell(nil)
		case kind == msgError && !told:
			failure = decodeError(body)
		case kind == msgExit && result == nil:
			res, err := decodeExit(body)
			if err != nil {
				break
			}
			result = &res
			// Nothing of the command lives any more; the kernel is still taking the
			// view down. Removing a placeholder that is still mounted over takes
			// several times as long as waiting for that. Where sandboxes are kept
			// ready, places stay for a while anyway and nobody waits for their end.
			last := p.plan.lastUse()
			if !last {
				p.plan.release()
			}
			if finished = !last || p.launcher.pool != nil; finished {
				p.finish(res, nil)
			}
		}
		closeAll(fds)
	}
	if p.listener != nil && p.plan.setup.network.Session == "" {
		endListening(p.listener)
	}
	p.await()
	p.leaveGroup()
	if failure == nil {
		failure = ErrInitLost
	}
	p.plan.release()
	if !finished {
		p.finish(p.verdict(result, failure))
	}
	tell(failure)
	p.ctl.close()
	p.launcher.mu.Lock()
	delete(p.launcher.running, p)
	p.launcher.mu.Unlock()
	p.notices.close()
	close(p.gone)
}

// verdict is how it ended when the init is dead: as it reported, or by a SIGKILL that
// came from here or, if failure says so, from elsewhere.
func (p *Process) verdict(reported *Result, failure error) (Result, error) {
	if reported != nil {
		return *reported, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed && errors.Is(failure, ErrInitLost) {
		failure = nil
	}
	return Result{ExitCode: -1, Signal: syscall.SIGKILL}, failure
}

// finish makes the result known.
func (p *Process) finish(res Result, err error) {
	res.Hit = p.limitsHit(res)
	p.mu.Lock()
	p.result, p.err = res, err
	p.mu.Unlock()
	close(p.done)
}

// await waits for the death of the init. Its end of the socket closes a little
// earlier.
func (p *Process) await() {
	ended := func(timeout int) bool {
		fds := []unix.PollFd{{Fd: int32(p.rawPidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, timeout)
		return n == 1 || err != nil && err != unix.EINTR
	}
	rc, err := p.pidfd.SyscallConn()
	if err == nil {
		err = rc.Read(func(uintptr) bool { return ended(0) })
	}
	for err != nil && !ended(-1) { // not pollable: at the cost of a thread
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	p.pidfd.Close()
}

// PID is the process id of the sandbox's init as the daemon sees it.
func (p *Process) PID() int { return p.pid }

// TTY is the master of the command's terminal, or nil without one. The caller
// closes it.
func (p *Process) TTY() *os.File { return p.tty }

// Listener is the daemon's listening socket in the network of a command under NetworkProxy, else nil. Whoever accepts on a copy of
// it decides what the command reaches; make that with egress.FileListener, since the file may be closed at any time. It stays the
// sandbox's, which ends it, and whoever accepts, when the command has ended, or with the session, if there is one; in a session
// it is the same for all commands.
func (p *Process) Listener() *os.File { return p.listener }

// Done is closed when the result is known and no process of the command lives.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the command and returns how it ended. After Kill that
// is SIGKILL, unless the command had ended before. The error is ErrInitLost if the
// init was killed by somebody else; everything of the command is dead then too.
func (p *Process) Wait() (Result, error) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result, p.err
}

// Signal sends a signal to the command's process group; with a terminal, to the
// terminal's foreground group. It returns os.ErrProcessDone after the end.
func (p *Process) Signal(sig syscall.Signal) error { return p.sendSignal(sig, false) }

// SignalAll sends a signal to every process of the sandbox but its init. It
// returns os.ErrProcessDone after the end.
func (p *Process) SignalAll(sig syscall.Signal) error { return p.sendSignal(sig, true) }

func (p *Process) sendSignal(sig syscall.Signal, all bool) error {
	if sig <= 0 || sig > 64 {
		return syscall.EINVAL
	}
	var w writer
	w.num(uint64(sig))
	w.flag(all)
	return p.tell(msgSignal, w.b)
}

// tell sends a request to the init.
func (p *Process) tell(kind byte, body []byte) error {
	if p.ended() {
		return os.ErrProcessDone
	}
	err := p.ctl.send(kind, body)
	if err != nil && (p.ended() || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)) {
		return os.ErrProcessDone
	}
	return err
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill sends SIGKILL to everything at once, without waiting for the end. It returns
// os.ErrProcessDone after the end.
func (p *Process) Kill() error {
	if p.plan.setup.full || p.plan.setup.reduced {
		// without a pid namespace only the init can find everything
		return p.tell(msgKill, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return os.ErrProcessDone
	}
	p.killed = true
	err := unix.PidfdSendSignal(p.rawPidfd, unix.SIGKILL, nil, 0)
	if err == unix.ESRCH {
		return os.ErrProcessDone
	}
	return err
}
