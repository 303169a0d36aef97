package sandbox

import (
	"errors"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// forkCommand executes the command. At the reduced level the init itself stays as it
// is, and only the thread that forks is confined: the command cannot signal an init
// that is outside of its Landlock domain.
func forkCommand(c *run, path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	if !c.reduced {
		return syscall.ForkExec(path, argv, attr)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its confinement
		if err = confineReduced(c, attr); err == nil {
			pid, err = syscall.ForkExec(path, argv, attr)
		}
	}()
	<-done
	return pid, err
}

// confineReduced takes from the calling thread what the command must not have.
func confineReduced(c *run, attr *syscall.ProcAttr) error {
	if real, effective, saved := unix.Getresuid(); real == 0 || effective == 0 || saved == 0 {
		return fail("identity", "", errors.New("the command would be root"))
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fail("capabilities", "", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fail("no_new_privs", "", err)
	}
	version := landlockVersion()
	if version < reducedLandlock {
		return fail("landlock", "", errNoLandlock)
	}
	rights := landlockRights(version)
	ruleset, err := newRuleset(unix.LandlockRulesetAttr{
		Handled_access_fs:  rights,
		Handled_access_net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP,
		Scoped:             unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
	}, version)
	if err != nil {
		return fail("landlock", "", err)
	}
	defer unix.Close(ruleset)
	for _, r := range c.rules {
		if err := r.add(ruleset, rights); err != nil {
			return fail("landlock", r.path, err)
		}
	}
	if c.tty {
		// its own terminal, and no other of the machine's
		if err := addRule(ruleset, int(attr.Files[0]), llFile&rights); err != nil {
			return fail("landlock", "terminal", err)
		}
	}
	if err := restrictSelf(ruleset); err != nil {
		return fail("landlock", "", err)
	}
	return installFilter(reducedCalls()...)
}

// reducedCalls come before the other rows of the filter: what namespaces do
// elsewhere. No sockets but connected pairs, which lead nowhere else; a pair of
// datagram sockets could still send to any path. Nothing that all processes of the
// machine share, and no settings of other processes, the daemon's among them.
func reducedCalls() []call {
	return []call{
		{"socket", 41, 198, refuse, nil},
		{"socketpair", 53, 199, refuse, connectedPair},
		{"shmget", 29, 194, refuse, nil},
		{"shmat", 30, 196, refuse, nil},
		{"shmctl", 31, 195, refuse, nil},
		{"semget", 64, 190, refuse, nil},
		{"semop", 65, 193, refuse, nil},
		{"semctl", 66, 191, refuse, nil},
		{"semtimedop", 220, 192, refuse, nil},
		{"msgget", 68, 186, refuse, nil},
		{"msgsnd", 69, 189, refuse, nil},
		{"msgrcv", 70, 188, refuse, nil},
		{"msgctl", 71, 187, refuse, nil},
		{"mq_open", 240, 180, refuse, nil},
		{"mq_unlink", 241, 181, refuse, nil},
		{"prlimit64", 302, 261, refuse, zeroArgs(0)},
		{"setpriority", 141, 140, refuse, zeroArgs(0, 1)},
		{"ioprio_set", 251, 30, refuse, zeroArgs(1)},
		{"sched_setparam", 142, 118, refuse, zeroArgs(0)},
		{"sched_setscheduler", 144, 119, refuse, zeroArgs(0)},
		{"sched_setaffinity", 203, 122, refuse, zeroArgs(0)},
		{"sched_setattr", 314, 274, refuse, zeroArgs(0)},
	}
}

// connectedPair allows unix stream and packet pairs.
func connectedPair(a *assembler, v verdict) {
	const unixFamily, stream, packet = 1, 1, 5
	a.loadArg(0)
	a.unlessIn([]uint32{unixFamily}, v)
	a.loadArg(1)
	a.mask(0xf)
	a.unlessIn([]uint32{stream, packet}, v)
}

// zeroArgs allows a call about the caller itself, whose number is 0.
func zeroArgs(args ...int) func(*assembler, verdict) {
	return func(a *assembler, v verdict) {
		for _, n := range args {
			a.loadArg(n)
			a.unlessIn([]uint32{0}, v)
		}
	}
}
