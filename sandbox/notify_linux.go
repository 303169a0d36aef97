package sandbox

import (
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A refused system call is reported to the daemon, which only counts it and answers with the error that the filter would
// have given. Nothing of the call is ever let through on what is read here: its arguments in memory could be
// changed in the meantime. When nobody listens any more, the kernel refuses with ENOSYS.

// maxNotices bounds the work that a command can make for the daemon. Afterwards it gets ENOSYS for what is refused.
const maxNotices = 10_000

// seccompData, seccompNotice and seccompAnswer are struct seccomp_data, seccomp_notif and seccomp_notif_resp of
// linux/seccomp.h.
type seccompData struct {
	nr   int32
	arch uint32
	ip   uint64
	args [6]uint64
}

type seccompNotice struct {
	id    uint64
	pid   uint32
	flags uint32
	data  seccompData
}

type seccompAnswer struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// notices are the refused calls of one command by their name.
type notices struct {
	f *os.File

	mu     sync.Mutex
	counts map[string]int
	order  []string
	total  int
}

// listenForNotices takes over the descriptor. It answers until the last process under the filter is gone, or close.
func listenForNotices(fd int) *notices {
	n := &notices{f: os.NewFile(uintptr(fd), "sandbox-notices"), counts: make(map[string]int)}
	go n.answer()
	return n
}

func (n *notices) close() {
	if n != nil {
		n.f.Close()
	}
}

func (n *notices) answer() {
	defer n.f.Close()
	rc, err := n.f.SyscallConn()
	if err != nil {
		return
	}
	over := false
	for !over && err == nil {
		err = rc.Read(func(fd uintptr) bool {
			waiting := false
			waiting, over = poll(fd)
			if waiting {
				over = over || !n.answerOne(fd)
			}
			return waiting || over
		})
	}
}

// poll looks for a notice, and for the end of everybody who could make one.
func poll(fd uintptr) (waiting, over bool) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err != nil {
		return false, err != unix.EINTR
	}
	waiting = fds[0].Revents&unix.POLLIN != 0
	return waiting, !waiting && fds[0].Revents != 0
}

// answerOne reports whether there may be more.
func (n *notices) answerOne(fd uintptr) bool {
	var notice seccompNotice
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&notice)))
	switch errno {
	case 0:
	case unix.EINTR, unix.ENOENT: // whoever called is dead
		return true
	default:
		return false
	}
	name, refusal := refusedCall(&notice.data)
	more := n.count(name) // before the answer, after which the command may end and be asked about
	answer := seccompAnswer{id: notice.id, err: -int32(refusal)}
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
	return more && (errno == 0 || errno == unix.ENOENT)
}

// count reports whether there may be more.
func (n *notices) count(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts[name]++; n.counts[name] == 1 {
		n.order = append(n.order, name)
	}
	n.total++
	return n.total < maxNotices
}

// refusedCall is the name of a call that the filter refused, and its error.
func refusedCall(d *seccompData) (string, syscall.Errno) {
	for _, c := range syscallTable() {
		if nr := c.number(); nr == none || int32(nr) != d.nr {
			continue
		}
		if c.name == "socket" && !ordinaryFamily(d) {
			return c.name, unix.EAFNOSUPPORT
		}
		return c.name, unix.EPERM
	}
	return "unknown", unix.EPERM
}

// ordinaryFamily repeats what oddSockets decides by the family alone.
func ordinaryFamily(d *seccompData) bool {
	switch int32(d.args[0]) {
	case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6:
		return true
	}
	return false
}

// denials are what was counted, in the order in which it began.
func (n *notices) denials() []Denial {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Denial
	for _, name := range n.order {
		all = append(all, Denial{Kind: DenialSyscall, Op: name, Rule: ruleOfCall(name), Evidence: EvidenceKernel, Count: n.counts[name]})
	}
	return all
}

// ruleOfCall says for people why a call is refused.
func ruleOfCall(name string) string {
	switch name {
	case "chmod", "fchmod", "fchmodat", "fchmodat2", "creat", "mknod", "mknodat", "open", "openat":
		return "no set-uid or set-gid files can be made"
	case "socket":
		return "only unix, IPv4 and IPv6 sockets, and none of them raw"
	case "clone", "unshare", "setns":
		return "no namespaces of its own: a sandbox inside the sandbox does not work"
	case "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr":
		return "nothing can be mounted"
	case "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp":
		return "no debugging and no looking into other processes"
	case "ioctl":
		return "nothing can be typed into a terminal"
	}
	return "no command in a sandbox may make this system call"
}
