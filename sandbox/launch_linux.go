package sandbox

import (
	"context"
	"errors"
	"fmt"
	slashpath "path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const sandboxNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWNET

// Launcher starts commands. It is safe for concurrent use.
type Launcher struct {
	opt Options
	id  *identity

	mu       sync.Mutex
	closed   bool
	running  map[*Process]struct{}
	starting sync.WaitGroup
	mappings map[owner]int // user namespaces for ID-mapped mounts

	limitState

	closePool  sync.Once
	pool       *pool    // nil when it is switched off
	hideable   []string // what hides from every command, if it exists
	warm, cold atomic.Uint64

	sessions netSessions

	spawnMu sync.Mutex
	spawner *spawner // nil until there is one, replaced when it has died
}

var errNoInit = errors.New("the program did not call sandbox.Init first: it must be the first statement of main, and of TestMain")

// NewLauncher checks the options and returns a launcher, which the caller closes.
// It starts the spawner, a small process that lives until Close, but does not try
// the layers of the sandbox: that is Probe, and every Start.
func NewLauncher(o Options) (*Launcher, error) {
	if !initCalled {
		// without Init the helper would run the whole program again, and so on
		return nil, errNoInit
	}
	for _, p := range o.HiddenPaths {
		if !strings.HasPrefix(p, "/") || slashpath.Clean(p) == "/" {
			return nil, fmt.Errorf("hidden path %q must be absolute and not the root directory", p)
		}
	}
	id, err := newIdentity(o)
	if err != nil {
		return nil, err
	}
	l := &Launcher{opt: o, id: id, running: map[*Process]struct{}{}, mappings: map[owner]int{}}
	l.hideable = hideable(id, o.HiddenPaths)
	slices.Sort(l.hideable) // the homes of root, of the daemon and of its account may be one
	l.hideable = slices.Compact(l.hideable)
	if l.spawner, err = newSpawner(); err != nil {
		return nil, &SetupError{Stage: "spawner", Err: err}
	}
	if !o.Reduced { // there is little to make ahead
		l.pool = newPool(l, o)
	}
	return l, nil
}

// Close kills what still runs and waits until all of it is gone. Later starts
// return ErrClosed. It may be called more than once.
func (l *Launcher) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.starting.Wait()
	l.closePool.Do(l.pool.close)
	l.mu.Lock()
	var all []*Process
	for p := range l.running {
		all = append(all, p)
	}
	l.mu.Unlock()
	for _, p := range all {
		_ = p.Kill()
	}
	for _, p := range all {
		<-p.gone
	}
	l.sessions.close()
	l.spawnMu.Lock()
	if l.spawner != nil {
		l.spawner.close()
		l.spawner = nil
	}
	l.spawnMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, fd := range l.mappings {
		unix.Close(fd)
		delete(l.mappings, o)
	}
	return nil
}

// Start runs a command under a policy. It returns once the exec of the command has
// succeeded, or an error: *SetupError, *UnsupportedError, *CommandError, ErrClosed
// or the context's. After an error nothing is left behind. The context bounds the
// start, not the life of the command.
func (l *Launcher) Start(ctx context.Context, p Policy, c Command) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkCommand(c); err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	l.starting.Add(1)
	l.mu.Unlock()
	defer l.starting.Done()

	key := policyKey(p)
	r := l.runFor(p, c)
	for w := l.pool.take(key); w != nil; w = l.pool.take(key) {
		w.proc.fresh = func() bool { return l.pool.fresh(w, p) }
		err := w.proc.exec(ctx, r, c)
		if !errors.Is(err, errNotAsked) {
			return l.started(w.proc, err, key, p, true)
		}
		l.pool.lost()
	}
	proc, err := l.make(p)
	if err != nil {
		return nil, err
	}
	return l.started(proc, proc.exec(ctx, proc.plan.place(r), c), key, p, false)
}

// started counts a start and has the pool make the next sandbox.
func (l *Launcher) started(proc *Process, err error, key string, p Policy, warm bool) (*Process, error) {
	var command *CommandError
	if err == nil || errors.As(err, &command) { // the sandbox itself stood
		l.pool.used(key, p, warm)
	}
	if err != nil {
		return nil, err
	}
	if warm {
		l.warm.Add(1)
	} else {
		l.cold.Add(1)
	}
	return proc, nil
}

// make starts a new sandbox for one command.
func (l *Launcher) make(p Policy) (*Process, error) {
	pl, err := l.planFor(p)
	if err != nil {
		return nil, err
	}
	proc, err := l.launch(pl, l.pool.takeSpare(l.kind(pl)))
	if err != nil {
		pl.release()
		return nil, err
	}
	return proc, nil
}

func checkCommand(c Command) error {
	if c.Helper != "" {
		if helpers[c.Helper] == nil || c.Arg0 != "" {
			return &CommandError{Op: "lookup", Path: c.Helper, Err: errors.New("no such helper, or one with another name")}
		}
		c.Argv = append([]string{c.Helper}, c.Argv...)
	}
	if len(c.Argv) == 0 {
		return &CommandError{Op: "lookup", Err: errors.New("argv is empty")}
	}
	for _, list := range [][]string{c.Argv, c.Env, {c.Arg0}} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return &CommandError{Op: "exec", Path: c.Argv[0], Err: syscall.EINVAL}
			}
		}
	}
	if strings.IndexByte(c.Dir, 0) >= 0 || c.Dir != "" && c.Dir[0] != '/' {
		return &CommandError{Op: "chdir", Path: c.Dir, Err: syscall.EINVAL}
	}
	return nil
}

func (l *Launcher) planFor(p Policy) (*plan, error) {
	if p.Mode == FullAccess {
		if !l.opt.AllowFullAccess {
			return nil, &SetupError{Stage: "policy", Err: errors.New("full-access is not allowed on this machine: the owner must enable it")}
		}
		return &plan{setup: setup{full: true}}, nil
	}
	if l.opt.Reduced {
		return l.resolveReduced(p)
	}
	return l.resolve(p)
}

// runFor makes the request for the second life of the init.
func (l *Launcher) runFor(p Policy, c Command) *run {
	full := p.Mode == FullAccess
	r := &run{argv: c.Argv, arg0: c.Arg0, env: l.id.environment(c.Env, full), dir: c.Dir, umask: c.Umask & 0o777, limits: p.Limits, full: full}
	r.watched = !full && !l.opt.Reduced && p.Network.Mode != NetworkHost
	r.shared = r.watched && p.Network.Session != ""
	if !full && holdsGit(p) {
		r.env = withoutStamps(r.env)
	}
	if c.Umask <= 0 {
		r.umask = 0o022
	}
	if r.dir == "" {
		switch {
		case len(p.Roots) > 0:
			r.dir = p.Roots[0]
		case full:
			r.dir = l.id.daemonHome
		default:
			r.dir = homeDir
		}
	}
	if c.Helper != "" {
		r.argv, r.arg0 = append([]string{selfProgram}, c.Argv...), roleHelper+c.Helper
	}
	if c.TTY != nil {
		r.tty, r.rows, r.cols = true, c.TTY.Rows, c.TTY.Cols
	}
	return r
}

// kind is how the init of a plan comes into being.
func (l *Launcher) kind(pl *plan) birth {
	switch {
	case pl.setup.full:
		return bornFull
	case l.opt.Reduced:
		return bornReduced
	case pl.setup.network.Session != "":
		return bornInSession
	case pl.setup.network.Mode == NetworkHost:
		return bornHost
	}
	return bornApart
}

// launch has an init prepare everything but the command itself. A spare is one that
// has been started ahead, or nil.
func (l *Launcher) launch(pl *plan, spare *blank) (*Process, error) {
	if len(pl.trees) > maxTrees {
		spare.discard()
		return nil, &SetupError{Stage: "policy", Err: fmt.Errorf("%d roots and protected names are too many: at most %d", len(pl.trees), maxTrees)}
	}
	b := spare
	if b == nil {
		var err error
		if pl.session, err = l.session(pl.setup); err != nil {
			return nil, err
		}
		if b, err = l.fork(l.kind(pl), pl.session); err != nil {
			return nil, err
		}
	}
	if !pl.setup.full && !pl.setup.reduced {
		if err := sendLarge(b.ctl.send, msgSetup, pl.setup.encode(), pl.trees...); err != nil {
			b.discard()
			if spare != nil {
				return l.launch(pl, nil)
			}
			return nil, &SetupError{Stage: "request", Err: err}
		}
	}
	pl.closeTrees()
	p := newProcess(l, b.pid, b.pidfd, b.ctl, pl)
	if p.session = pl.session; p.session != nil {
		p.listener = p.session.listener
	}
	l.mu.Lock()
	l.running[p] = struct{}{}
	l.mu.Unlock()
	go p.listen()
	return p, nil
}

// attr makes new namespaces in which the child is the command's user, and nobody
// else exists. The capabilities count only in the new user namespace, and end with
// the first life of the init.
func (id *identity) attr(flags uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id.uid, HostID: id.uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id.gid, HostID: id.gid, Size: 1}},
		// a root daemon's supplementary groups must go; an ordinary user cannot drop his
		GidMappingsEnableSetgroups: id.asRoot,
		Credential:                 &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid), NoSetGroups: !id.asRoot},
		AmbientCaps:                []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP},
		Setsid:                     true,
	}
}
