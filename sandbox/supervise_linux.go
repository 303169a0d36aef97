package sandbox

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// supervisor is the second life of the init: it runs one command, passes signals
// on, reaps whatever is orphaned, and ends everything when the command ends or the
// daemon is gone.
type supervisor struct {
	full       bool          // without a pid namespace of its own
	pid        int           // of the command
	running    chan struct{} // closed when the command runs
	watches    bool          // that packets find no way out, of a network that is not the machine's
	lostBefore uint64        // so many in the session, before the command

	mu    sync.Mutex // between a signal and the reaping of its target
	ended bool
}

// initMain never returns. Any way out ends the pid namespace and so everything in it.
func initMain() {
	resetSignals()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		exitWith(fail("init", "", err))
	}
	deafen()
	if os.Getpid() != 1 {
		// full access or reduced: no pid namespace, so orphans must come here to be found
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			exitWith(fail("init", "", err))
		}
	}
	s := &supervisor{running: make(chan struct{})}
	go s.obey() // its thread must exist before the limits of the command
	rehearse()
	if err := sendMessage(controlFD, 0, msgReady, nil); err != nil {
		unix.Exit(exitBroken)
	}
	c, stdio, err := awaitCommand()
	if err != nil {
		exitWith(fail("request", "", err))
	}
	path, err := enter(c)
	if c.held {
		awaitGo()
	}
	if err != nil {
		exitWith(err)
	}
	unpin(os.Args[1:])
	s.full = os.Getpid() != 1
	if s.watches = c.watched; c.shared {
		s.lostBefore = noRoutes()
	}
	if err := s.start(c, path, stdio); err != nil {
		exitWith(err)
	}
	close(s.running)
	s.reap()
}

func exitWith(err error) {
	_ = sendMessage(controlFD, 0, msgError, encodeError(err))
	unix.Exit(exitBroken)
}

// start executes the command; it returns once exec has succeeded.
func (s *supervisor) start(c *run, path string, stdio []int) error {
	argv := c.argv
	if c.arg0 != "" {
		argv = append([]string{c.arg0}, argv[1:]...)
	}
	syscall.Umask(c.umask)
	attr := &syscall.ProcAttr{Env: c.env, Sys: &syscall.SysProcAttr{Setsid: true}}
	if c.tty {
		slave, err := giveTerminal(c)
		if err != nil {
			return fail("terminal", "", err)
		}
		defer unix.Close(slave)
		attr.Files = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		attr.Sys.Setctty = true
	} else {
		for _, fd := range stdio {
			attr.Files = append(attr.Files, uintptr(fd))
		}
	}
	if c.limits.DataBytes != 0 {
		reserve()
	}
	if err := applyLimits(c.limits, c.full); err != nil {
		return err
	}
	pid, err := forkCommand(c, path, argv, attr)
	closeAll(stdio)
	var unconfined *stageError
	if errors.As(err, &unconfined) {
		return err
	}
	if err != nil {
		return &CommandError{Op: "exec", Path: path, Err: err}
	}
	s.pid = pid
	// A daemon that died meanwhile cannot be told: obey notices, and ends everything. To
	// leave here would let the command live on where no pid namespace takes it down.
	_ = sendMessage(controlFD, 0, msgStarted, nil)
	return nil
}

// obey carries out what the daemon says. When its lease is over everything goes.
func (s *supervisor) obey() {
	<-s.running
	for {
		kind, body, fds, err := recvMessage(controlFD, 0)
		closeAll(fds)
		if err != nil {
			outlive()
			s.killAll()
			unix.Exit(exitBroken)
		}
		switch kind {
		case msgKill:
			s.killAll()
		case msgSignal:
			r := reader{b: body}
			sig, all := syscall.Signal(r.num()), r.flag()
			if r.done() == nil {
				s.signal(sig, all)
			}
		}
	}
}

func (s *supervisor) signal(sig syscall.Signal, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case all && s.full:
		for _, pid := range descendants() {
			_ = unix.Kill(pid, sig)
		}
	case all:
		_ = unix.Kill(-1, sig)
	case !s.ended:
		group := s.pid
		if fg := foreground(s.pid); fg > 1 {
			group = fg
		}
		_ = unix.Kill(-group, sig)
	}
}

// reap waits for children until the command ends, ends the rest, and reports.
func (s *supervisor) reap() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			s.killAll()
			exitWith(fail("wait", "", err))
		}
		var status unix.WaitStatus
		var usage unix.Rusage
		s.mu.Lock()
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		if pid == s.pid && err == nil {
			s.ended = true
		}
		s.mu.Unlock()
		if !s.ended {
			continue
		}
		strays := s.clear()
		var lost uint64
		if s.watches && status != 0 {
			lost = noRoutes() - s.lostBefore
		}
		_ = sendMessage(controlFD, 0, msgExit, encodeExit(status, &usage, strays, lost))
		unix.Exit(0)
	}
}

// clear kills and reaps what is left, and tells how many were still alive.
func (s *supervisor) clear() int {
	if !reapDead() {
		return 0
	}
	strays := s.alive()
	s.killAll()
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		switch err {
		case nil, unix.EINTR:
			if s.full {
				s.killAll()
			}
		default:
			return strays
		}
	}
}

func (s *supervisor) alive() int {
	n := 0
	var pids []int
	if s.full {
		pids = descendants()
	} else {
		pids = allPIDs()
	}
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		if st, ok := procStat(pid); ok && st.state != 'Z' && st.state != 'X' {
			n++
		}
	}
	return n
}

// killAll sends SIGKILL to everything but the init. In a pid namespace that is one
// atomic call. Without one the tree is stopped first and walked until it no longer
// grows, since a process could fork between being listed and being killed.
func (s *supervisor) killAll() {
	if !s.full {
		_ = unix.Kill(-1, unix.SIGKILL)
		return
	}
	seen := map[int]bool{}
	for {
		grown := false
		for _, pid := range descendants() {
			if !seen[pid] {
				seen[pid] = true
				grown = true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if !grown {
			break
		}
	}
	for _, pid := range descendants() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
