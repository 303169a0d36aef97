package sandbox

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

type owner struct{ uid, gid uint32 }

// ownerMapping decides how the command sees the files of a root. For a root daemon
// the command is another user, so the root's owner is shown as the command's user
// by an ID-mapped mount; what the command creates belongs to the owner on disk. The
// answer is a user namespace, or -1 when no mapping is needed.
func (l *Launcher) ownerMapping(st *unix.Stat_t) (int, error) {
	if !l.id.asRoot || int(st.Uid) == l.id.uid {
		return -1, nil
	}
	return l.mappingFor(owner{st.Uid, st.Gid})
}

// mappedTree makes the mount of a piece, as a root daemon. What everybody may read
// is shown unmapped if it must be; what is to be written is not.
func (l *Launcher) mappedTree(fd int, path string, st *unix.Stat_t, readOnly bool, mapping int) (int, error) {
	tree, err := cloneTree(fd, true, pieceAttrs(readOnly))
	if err != nil || mapping < 0 {
		return tree, fail("view", path, err)
	}
	err = mapOwner(tree, mapping)
	if err == nil {
		return tree, nil
	}
	unix.Close(tree)
	if readOnly {
		return cloneTree(fd, true, pieceAttrs(readOnly))
	}
	return -1, fail("id-mapped mount", path, fmt.Errorf("%w: this file system cannot show files of uid %d to commands of uid %d: give the workspace to that uid (chown -R %d) or run commands as its owner",
		err, st.Uid, l.id.uid, l.id.uid))
}

func mapOwner(tree, userns int) error {
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)})
}

// mappingFor returns the user namespace that maps an owner on disk to the command's
// user. It is made once per owner; the launcher closes it.
func (l *Launcher) mappingFor(o owner) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fd, ok := l.mappings[o]; ok {
		return fd, nil
	}
	var w writer
	w.num(uint64(l.id.uid))
	w.num(uint64(l.id.gid))
	w.num(uint64(o.uid))
	w.num(uint64(o.gid))
	_, fd, err := l.ask(msgMap, w.b)
	if err != nil {
		return -1, err
	}
	l.mappings[o] = fd
	return fd, nil
}

func newMapping(o owner, id *identity) (int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{roleHold}, &syscall.ProcAttr{
		Env: helperEnv(), Files: []uintptr{uintptr(p[0])},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.uid), HostID: id.uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: int(o.gid), HostID: id.gid, Size: 1}},
		},
	})
	unix.Close(p[0])
	if err != nil {
		unix.Close(p[1])
		return -1, err
	}
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	unix.Close(p[1])
	reapProcess(pid)
	return ns, err
}

// reapProcess waits for a child of this process.
func reapProcess(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}
