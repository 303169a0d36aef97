package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// deviceNodes are the only devices the command has.
var deviceNodes = []string{"null", "zero", "full", "random", "urandom", "tty"}

// collectDevices clones the mounts of single device files. They keep device
// access; the rest of the view has none.
func collectDevices(old int) ([]int, error) {
	fds := make([]int, 0, len(deviceNodes))
	for _, d := range deviceNodes {
		at, err := openBeneath(old, "/dev/"+d, 0)
		if err != nil {
			return nil, fail("dev", "/dev/"+d, err)
		}
		fd, err := cloneTree(at, false, noSuid|noExec)
		unix.Close(at)
		if err != nil {
			return nil, fail("dev", "/dev/"+d, err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// buildDev makes /dev with its own terminals and shared memory.
func (v *view) buildDev(devices []int) error {
	if err := v.tmpfs("/dev", noSuid|noExec, "mode=0755", "size=64k"); err != nil {
		return fail("dev", "/dev", err)
	}
	for i, d := range deviceNodes {
		path := "/dev/" + d
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o666)
		if err != nil {
			return fail("dev", path, err)
		}
		f.Close()
		if err := v.attach(devices[i], path); err != nil {
			return fail("dev", path, err)
		}
	}
	for _, d := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fail("dev", d, err)
		}
	}
	pts, err := newFS("devpts", noSuid|noExec, "ptmxmode=0666", "mode=0620")
	if err == nil {
		err = v.attach(pts, "/dev/pts")
	}
	if err != nil {
		return fail("dev", "/dev/pts", err)
	}
	if err := v.tmpfs("/dev/shm", noSuid|noDev, "mode=1777", "size=64m"); err != nil {
		return fail("dev", "/dev/shm", err)
	}
	for _, l := range [][2]string{
		{"/proc/self/fd", "/dev/fd"},
		{"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"},
		{"/proc/self/fd/2", "/dev/stderr"},
		{"pts/ptmx", "/dev/ptmx"},
	} {
		if err := os.Symlink(l[0], l[1]); err != nil {
			return fail("dev", l[1], err)
		}
	}
	v.seal = append(v.seal, "/dev")
	return nil
}

// buildProc mounts the /proc of the new pid namespace; what is not about its
// processes is read-only.
func (v *view) buildProc() error {
	proc, err := newFS("proc", noSuid|noDev|noExec)
	if err == nil {
		err = v.attach(proc, "/proc")
	}
	if err != nil {
		return fail("proc", "/proc", err)
	}
	for _, d := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"} {
		if err := v.bind(d, d, readOnlyAttr|noSuid|noDev|noExec); err != nil && !errors.Is(err, unix.ENOENT) {
			return fail("proc", d, err)
		}
	}
	return nil
}

// maskProc covers files that tell about the kernel rather than the processes. The
// cover is the attached /dev/null, without device access: older kernels cannot
// clone a mount that is itself still detached.
func (v *view) maskProc() error {
	for _, f := range []string{"/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug"} {
		if err := v.bind("/dev/null", f, readOnlyAttr|noSuid|noExec); err != nil && !errors.Is(err, unix.ENOENT) {
			return fail("proc", f, err)
		}
	}
	return nil
}
