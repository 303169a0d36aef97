package sandbox

import "golang.org/x/sys/unix"

// blank is an init in its namespaces that waits to be told what to build. It knows no
// policy.
type blank struct {
	pid, pidfd int
	ctl        *control
	mounts     uint64 // generation of the mounts that its namespace has a copy of
}

// fork has a spawner start an init, or what serves a session: the one of the network session, or the launcher's.
func (l *Launcher) fork(kind birth, in *netSession) (*blank, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, &SetupError{Stage: "socket", Err: err}
	}
	defer unix.Close(pair[1])
	ctl, err := newControl(pair[0])
	if err != nil {
		return nil, &SetupError{Stage: "socket", Err: err}
	}
	var w writer
	w.num(uint64(l.id.uid))
	w.num(uint64(l.id.gid))
	w.num(uint64(kind))
	b := &blank{ctl: ctl}
	ask := l.ask
	if in != nil {
		ask = in.ask
	}
	if b.pid, b.pidfd, err = ask(msgFork, w.b, pair[1]); err != nil {
		ctl.close()
		return nil, err
	}
	return b, nil
}

// discard ends an init that is not to be used. It may be called on nil.
func (b *blank) discard() {
	if b == nil {
		return
	}
	_ = unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0)
	fds := []unix.PollFd{{Fd: int32(b.pidfd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			break
		}
	}
	unix.Close(b.pidfd)
	b.ctl.close()
}

// broken tells whether the init has ended or has an error to tell, which it would not
// have if it was started now.
func (b *blank) broken() bool {
	n, err := 0, error(nil)
	cerr := b.ctl.rc.Control(func(fd uintptr) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	})
	return n != 0 || err != nil || cerr != nil
}
