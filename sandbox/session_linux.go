package sandbox

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A network session is a network and a user namespace that several commands share. A spawner of its own lives in there and
// forks their inits, each with the other namespaces anew: nobody else could get in, since entering a network takes rights in
// its user namespace, and a Go program cannot enter that. It runs as the commands' user, has no way to
// be seen from within their process namespaces, and is not dumpable.

const sessionNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNET

// sessionIdle is how long a session lasts beyond its last sandbox, those that are kept ready included.
const sessionIdle = 5 * time.Minute

// maxSessions bounds how many there are at a time, and sessionsPerOwner those of one owner, who cannot lock the others out so;
// each is a process of some 5 MiB. One that is idle makes room for a new one.
const (
	maxSessions      = 64
	sessionsPerOwner = 32
)

var errSessions = errors.New("there are as many network sessions in use as there may be: use one of them, or wait until a command in one has ended")

// netSessions are the sessions of a launcher by what their commands name. The zero value is ready for use.
type netSessions struct {
	mu     sync.Mutex
	byName map[Network]*netSession
	closed bool
}

type netSession struct {
	*spawner
	pidfd    int
	listener *os.File // of NetworkProxy
	all      *netSessions
	network  Network

	made      chan struct{} // closed when the fields above are, or err
	err       error
	users     int         // guarded by all.mu
	idle      *time.Timer // of a session without users; guarded by all.mu
	idleSince time.Time
}

// session is the one that a plan's network names, which is made if there is none; nil for a network without. Whoever gets it
// leaves it.
func (l *Launcher) session(s setup) (*netSession, error) {
	if s.full || s.reduced || s.network.Session == "" {
		return nil, nil
	}
	for {
		n, mine, err := l.sessions.join(s.network)
		if err != nil {
			return nil, &SetupError{Stage: "session", Err: err}
		}
		if mine {
			n.err = n.begin(l)
			close(n.made)
		}
		<-n.made
		if n.err == nil && n.alive() {
			return n, nil
		}
		err = n.err
		n.forget()
		n.leave()
		if err != nil {
			return nil, explain(fail("session", "", err))
		}
	}
}

// join counts one more user of a session, and whether that is the one who has to make it.
func (a *netSessions) join(network Network) (n *netSession, mine bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, false, ErrClosed
	}
	n = a.byName[network]
	if n == nil {
		if !a.room(network.Owner) {
			return nil, false, errSessions
		}
		if a.byName == nil {
			a.byName = make(map[Network]*netSession)
		}
		n, mine = &netSession{all: a, network: network, made: make(chan struct{})}, true
		a.byName[network] = n
	}
	n.users++
	if n.idle != nil {
		n.idle.Stop()
		n.idle = nil
	}
	return n, mine, nil
}

// room tells whether one more session of an owner may begin, for which the one that has been idle for longest may end. The
// caller holds mu.
func (a *netSessions) room(owner string) bool {
	own := 0
	var all, his *netSession // the longest idle
	for network, n := range a.byName {
		if network.Owner == owner {
			own++
		}
		if n.users > 0 || n.idle == nil {
			continue
		}
		if all == nil || n.idleSince.Before(all.idleSince) {
			all = n
		}
		if network.Owner == owner && (his == nil || n.idleSince.Before(his.idleSince)) {
			his = n
		}
	}
	end := all
	if own >= sessionsPerOwner {
		end = his
	} else if len(a.byName) < maxSessions {
		return true
	}
	if end == nil {
		return false
	}
	end.idle.Stop()
	delete(a.byName, end.network)
	end.end()
	return true
}

// begin starts the session's own spawner, and waits until the network is usable.
func (n *netSession) begin(l *Launcher) error {
	b, err := l.fork(bornSession, nil)
	if err != nil {
		return err
	}
	var w writer
	w.num(uint64(n.network.Mode))
	err = b.ctl.send(msgSetup, w.b)
	for err == nil {
		kind, body, fds, rerr := b.ctl.recv()
		switch {
		case rerr != nil:
			err = rerr
		case kind == msgError:
			err = decodeError(body)
		case kind == msgListener && len(fds) == 1 && n.listener == nil:
			n.listener, err = proxyListener(fds[0])
			continue
		case kind == msgReady && (n.network.Mode != NetworkProxy || n.listener != nil):
			closeAll(fds)
			if err = n.settle(b); err == nil {
				return nil
			}
		default:
			err = errors.New("the session's spawner gave a malformed answer")
		}
		closeAll(fds)
	}
	if n.listener != nil {
		endListening(n.listener)
	}
	b.discard()
	return err
}

// settle makes the spawner of a process that has answered so far through the runtime's poller. After an error that is the
// caller's to end.
func (n *netSession) settle(b *blank) error {
	fd := -1
	var err error
	if cerr := b.ctl.rc.Control(func(raw uintptr) { fd, err = unix.FcntlInt(raw, unix.F_DUPFD_CLOEXEC, controlFD) }); cerr != nil {
		err = cerr
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return err
	}
	b.ctl.close()
	n.pidfd = b.pidfd
	n.spawner = &spawner{fd: fd}
	return nil
}

// alive tells whether the session's spawner is, so that whoever joins now is where those are who join later.
func (n *netSession) alive() bool {
	fds := []unix.PollFd{{Fd: int32(n.pidfd), Events: unix.POLLIN}}
	ready, err := unix.Poll(fds, 0)
	return ready == 0 && err == nil
}

// leave counts one user less; nil is nobody's session. The last one begins the time after which the session ends.
func (n *netSession) leave() {
	if n == nil {
		return
	}
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	if n.users--; n.users > 0 || n.all.closed {
		return
	}
	if n.all.byName[n.network] != n { // it has died, or was never there
		n.end()
		return
	}
	n.idleSince = time.Now()
	n.idle = time.AfterFunc(sessionIdle, func() {
		n.all.mu.Lock()
		defer n.all.mu.Unlock()
		if n.users == 0 && n.idle != nil && n.all.byName[n.network] == n {
			delete(n.all.byName, n.network)
			n.end()
		}
	})
}

// forget makes the next user begin a new session.
func (n *netSession) forget() {
	n.all.mu.Lock()
	defer n.all.mu.Unlock()
	if n.all.byName[n.network] == n {
		delete(n.all.byName, n.network)
	}
}

// end ends the spawner; commands that still run keep their network. Nobody may be in ask.
func (n *netSession) end() {
	if n.spawner == nil { // it was never made
		return
	}
	_ = unix.PidfdSendSignal(n.pidfd, unix.SIGKILL, nil, 0)
	unix.Close(n.pidfd)
	n.close()
	n.spawner = nil
	if n.listener != nil {
		endListening(n.listener)
	}
}

// close ends all sessions. Nobody may use one any more.
func (a *netSessions) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for network, n := range a.byName {
		if n.idle != nil {
			n.idle.Stop()
		}
		n.end()
		delete(a.byName, network)
	}
}

// ask makes a request of the session's spawner. One that has died is not replaced: its network is gone.
func (n *netSession) ask(kind byte, body []byte, fds ...int) (int, int, error) {
	answer, fd, err := n.spawner.ask(kind, body, fds...)
	if errors.Is(err, errSpawnerGone) {
		n.forget()
		return 0, -1, &SetupError{Stage: "session", Err: err}
	}
	return answer, fd, err
}

// sessionMain is the spawner inside. It never returns.
func sessionMain() {
	resetSignals()
	levelStanding()
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		var kind byte
		var body []byte
		var fds []int
		if kind, body, fds, err = recvMessage(controlFD, 0); err == nil {
			closeAll(fds)
			r := reader{b: body}
			mode := NetworkMode(r.num())
			if err = r.done(); err == nil && kind != msgSetup {
				err = os.ErrInvalid
			}
			if err == nil {
				err = openNetwork(mode)
			}
		}
	}
	if err != nil {
		exitWith(fail("session", "", err))
	}
	if err := sendMessage(controlFD, 0, msgReady, nil); err != nil {
		unix.Exit(exitBroken)
	}
	serveSpawns()
}
