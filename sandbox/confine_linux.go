package sandbox

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// defaultOpenFiles and defaultProcesses are the limits of Limits' zero value.
const (
	defaultOpenFiles = 8192
	defaultProcesses = 4096
)

// dropPrivileges takes every capability from the calling thread and from whatever
// it executes later.
func dropPrivileges() error {
	if testOnlyOmit.capabilities {
		return fail("no_new_privs", "", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fail("capabilities", "", err)
	}
	// Beyond the last capability the kernel knows the answer is EINVAL.
	for c := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break
		}
		if err != nil {
			return fail("capabilities", "", err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fail("capabilities", "", err)
	}
	return fail("no_new_privs", "", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// installToldFilter is installFilter, and returns a descriptor on which refusals are told. It is negative where somebody
// outside is told of this process's calls already: the kernel knows one listener only.
func installToldFilter() (int, error) {
	fd, err := setFilter(true, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if errors.Is(err, unix.EBUSY) {
		return -1, installFilter()
	}
	return fd, err
}

// installFilter puts the system call filter on the calling thread.
func installFilter(first ...call) error {
	_, err := setFilter(false, 0, first...)
	return err
}

func setFilter(told bool, flags uintptr, first ...call) (int, error) {
	prog, err := assembleFilter(runtime.GOARCH, told, first)
	if err != nil {
		return -1, fail("seccomp", "", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0]))}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return -1, fail("seccomp", "", errno)
	}
	return int(fd), nil
}

// action is the kernel's struct sigaction.
type action struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const signalIgnored = 1 // SIG_IGN

func setAction(sig uintptr, a *action) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(a)), 0, 8, 0, 0)
}

// resetSignals undoes what the daemon's starter left behind, so that the command
// finds every signal at its default and none blocked. Ignored signals would
// otherwise survive every exec on the way.
func resetSignals() {
	for sig := uintptr(1); sig <= 64; sig++ {
		var old action
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0); e != 0 || old.handler != signalIgnored {
			continue
		}
		setAction(sig, &action{})
	}
	var empty unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &empty, nil)
}

// deafen keeps signals from ending the init, on which the Go runtime would exit.
// Signals at their default cannot end the PID 1 of a namespace. An init of another
// number, of a command with full access, ignores them; the command does not inherit
// that, since the runtime puts what it once handled back to the default in a child.
// Package os/signal would do too, at twenty times the time.
func deafen() {
	var a action
	if os.Getpid() != 1 {
		a.handler = signalIgnored
	}
	for sig := uintptr(1); sig <= 64; sig++ {
		switch syscall.Signal(sig) {
		case unix.SIGCHLD, unix.SIGURG: // of the runtime, and harmless
		case unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV: // of faults
			if a.handler == 0 {
				setAction(sig, &a)
			}
		case 32, 33, 34: // of the C library and the runtime
		default:
			setAction(sig, &a)
		}
	}
}

// applyLimits sets the resource limits on the init itself, before it forks: on
// the command afterwards they would come too late for a quick one.
func applyLimits(l Limits, full bool) error {
	if testOnlyOmit.limits {
		return nil
	}
	if !full {
		if l.OpenFiles == 0 {
			l.OpenFiles = defaultOpenFiles
		}
		if l.Processes == 0 {
			l.Processes = defaultProcesses
		} else {
			l.Processes += initTasks // the init's threads count too
		}
		// 1, not 0: with 0 the kernel still starts a core_pattern program, which
		// runs outside the sandbox on the command's data.
		if err := setLimit(unix.RLIMIT_CORE, 1); err != nil {
			return err
		}
	}
	for _, v := range []struct {
		resource int
		value    uint64
	}{
		{unix.RLIMIT_NOFILE, l.OpenFiles},
		{unix.RLIMIT_NPROC, l.Processes},
		{unix.RLIMIT_FSIZE, l.FileBytes},
		{unix.RLIMIT_DATA, l.DataBytes},
		{unix.RLIMIT_CPU, l.CPUSeconds},
	} {
		if v.value == 0 {
			continue
		}
		if err := setLimit(v.resource, v.value); err != nil {
			return err
		}
	}
	return nil
}

func setLimit(resource int, value uint64) error {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(resource, &old); err != nil {
		return fail("limits", "", err)
	}
	value = min(value, old.Max) // never raised above what the daemon has
	most := value
	if resource == unix.RLIMIT_CPU && old.Max > value {
		most = value + 1 // at the first limit a catchable signal that names it, a second later the end
	}
	// package syscall's own call, because it tells ForkExec not to put the old
	// number of open files back
	return fail("limits", "", syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: most}))
}

var errNoLandlock = errors.New("the kernel has no Landlock, or it is switched off")
