package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The spawner is a small process between the daemon and its inits. Cloning into a
// new user namespace copies the page tables of the caller, which takes the longer
// the more memory the daemon has touched; the spawner has next to none.

// maxTrees bounds the mounts passed for one command; the kernel passes 253
// descriptors at a time.
const maxTrees = 240

// spawner is the daemon's side of it: one request at a time.
type spawner struct {
	mu  sync.Mutex
	fd  int // socket, -1 when closed
	pid int // zero: not a child of this process, and not its to reap
}

func newSpawner() (*spawner, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[1])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	defer null.Close()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{roleSpawner}, &syscall.ProcAttr{
		Env: helperEnv(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pair[1])},
		// a session of its own, so that the daemon's terminal does not interrupt it
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		unix.Close(pair[0])
		return nil, err
	}
	return &spawner{fd: pair[0], pid: pid}, nil
}

// close ends the spawner. Inits that still run are not affected.
func (s *spawner) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

func (s *spawner) end() {
	if s.fd < 0 {
		return
	}
	unix.Close(s.fd)
	s.fd = -1
	if s.pid != 0 {
		reapProcess(s.pid)
	}
}

// errSpawnerGone tells that a request was not answered; it may be made again of
// another spawner, since whatever it began ends with its socket.
var errSpawnerGone = errors.New("the sandbox spawner has died")

// ask makes one request and returns the number and the descriptor of the answer.
func (s *spawner) ask(kind byte, body []byte, fds ...int) (int, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return 0, -1, errSpawnerGone
	}
	err := sendMessage(s.fd, 0, kind, body, fds...)
	var answer byte
	var got []int
	if err == nil {
		answer, body, got, err = recvMessage(s.fd, 0)
	}
	if err != nil {
		s.end()
		return 0, -1, errors.Join(errSpawnerGone, err)
	}
	if answer == msgError {
		closeAll(got)
		return 0, -1, decodeError(body)
	}
	r := reader{b: body}
	n := int(r.num())
	if r.done() != nil || len(got) != 1 {
		closeAll(got)
		return 0, -1, errors.New("the sandbox spawner gave a malformed answer")
	}
	return n, got[0], nil
}

// ask makes a request of the launcher's spawner, with one new spawner if the old one
// has died.
func (l *Launcher) ask(kind byte, body []byte, fds ...int) (int, int, error) {
	for attempt := 0; ; attempt++ {
		s, err := l.liveSpawner(attempt > 0)
		if err != nil {
			return 0, -1, &SetupError{Stage: "spawner", Err: err}
		}
		n, fd, err := s.ask(kind, body, fds...)
		if !errors.Is(err, errSpawnerGone) {
			return n, fd, err
		}
		if attempt > 0 {
			return 0, -1, &SetupError{Stage: "spawner", Err: err}
		}
	}
}

func (l *Launcher) liveSpawner(replace bool) (*spawner, error) {
	l.spawnMu.Lock()
	defer l.spawnMu.Unlock()
	if replace && l.spawner != nil && l.spawner.dead() {
		l.spawner = nil
	}
	if l.spawner == nil {
		s, err := newSpawner()
		if err != nil {
			return nil, err
		}
		l.spawner = s
	}
	return l.spawner, nil
}

func (s *spawner) dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd < 0
}

// spawnerMain is the spawner's own side. It never returns.
func spawnerMain() {
	resetSignals()
	serveSpawns()
}

// serveSpawns answers the daemon until it is gone. It never returns.
func serveSpawns() {
	_ = unix.Chdir("/")
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			reapDead()
		}
	}()
	for {
		kind, body, fds, err := recvMessage(controlFD, 0)
		if err != nil {
			unix.Exit(0) // the daemon is gone, or wants no more
		}
		n, fd, err := serveSpawn(kind, body, fds)
		closeAll(fds)
		if err != nil {
			err = sendMessage(controlFD, 0, msgError, encodeError(err))
		} else {
			var w writer
			w.num(uint64(n))
			err = sendMessage(controlFD, 0, msgReady, w.b, fd)
			unix.Close(fd)
		}
		if err != nil {
			unix.Exit(exitBroken)
		}
	}
}

// serveSpawn starts an init and returns its pid and pidfd, or makes a user
// namespace for ID-mapped mounts.
func serveSpawn(kind byte, body []byte, fds []int) (int, int, error) {
	r := reader{b: body}
	id := &identity{uid: int(r.num()), gid: int(r.num()), asRoot: os.Geteuid() == 0}
	switch kind {
	case msgMap:
		o := owner{uint32(r.num()), uint32(r.num())}
		if err := r.done(); err != nil {
			return 0, -1, fail("request", "", err)
		}
		fd, err := newMapping(o, id)
		return 0, fd, fail("namespaces", "", err)
	case msgFork:
		kind := birth(r.num())
		if err := r.done(); err != nil {
			return 0, -1, fail("request", "", err)
		}
		pid, pidfd, err := id.fork(kind, fds)
		if kind == bornReduced || kind == bornFull {
			return pid, pidfd, fail("identity", "", err) // no namespaces are asked for
		}
		return pid, pidfd, fail("namespaces", "", err)
	}
	return 0, -1, fail("request", "", errors.New("unknown request"))
}

// birth is how a helper comes into being.
type birth uint8

const (
	bornApart     birth = 1 + iota // an init in namespaces of its own
	bornHost                       // the same in the machine's network
	bornInSession                  // the same in the network and user namespaces of the one that forks it
	bornFull                       // the init of a command without a sandbox
	bornReduced                    // the init of the reduced level
	bornSession                    // what forks the inits of a session, in new network and user namespaces
)

// fork clones an init, or the spawner of a session. It is the only place that makes sandbox namespaces for
// commands. The file is its control socket.
func (id *identity) fork(kind birth, files []int) (pid, pidfd int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, -1, err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Env: helperEnv(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	role := roleBuilder
	switch kind {
	case bornFull:
		role = roleInit
	case bornReduced:
		role = roleReduced
		if id.asRoot {
			attr.Sys.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
		}
	case bornApart:
		attr.Env, attr.Sys = builderEnv(), id.attr(sandboxNamespaces&^testOnlyOmit.namespaces)
	case bornHost:
		attr.Env, attr.Sys = builderEnv(), id.attr(sandboxNamespaces&^unix.CLONE_NEWNET)
	case bornInSession: // who forks it is the command's user already, with the rights of its namespaces
		attr.Env, attr.Sys.Cloneflags = builderEnv(), sandboxNamespaces&^sessionNamespaces
	case bornSession:
		role, attr.Sys = roleSession, id.attr(sessionNamespaces)
	default:
		return 0, -1, errors.New("unknown kind of helper")
	}
	pidfd = -1
	attr.Sys.PidFD = &pidfd
	pid, err = syscall.ForkExec("/proc/self/exe", []string{role}, attr)
	if err == unix.EACCES && kind != bornFull {
		err = fail("init program", "", fmt.Errorf("%w: the program that starts commands must be executable by uid %d", err, id.uid))
	}
	if err == nil && pidfd < 0 {
		err = unix.ENOSYS
	}
	return pid, pidfd, err
}
