package sandbox

import "runtime"

// The system call filter is one table for both architectures: what is refused is
// decided here, once, and the numbers only differ. It is a deny list whose future
// is closed: numbers nobody has looked at are answered with ENOSYS.

// verdict is what a filter answers.
type verdict uint32

const (
	allow     verdict = 0x7fff0000
	notify    verdict = 0x7fc00000 // the daemon is told, and answers with what is refused
	killAll   verdict = 0x80000000
	errnoBase verdict = 0x00050000

	refuse       = errnoBase | 1  // EPERM
	notThere     = errnoBase | 38 // ENOSYS: libraries fall back to an older call
	noSuchFamily = errnoBase | 97 // EAFNOSUPPORT
)

const (
	auditAMD64 = 0xc000003e
	auditARM64 = 0xc00000b7
)

// newestKnown is the highest system call number that has been judged (Linux 6.17).
const newestKnown = 469

// none marks a call that an architecture does not have.
const none = -1

// call is a row of the table; check, if set, looks at the arguments first.
type call struct {
	name         string
	amd64, arm64 int
	answer       verdict
	check        func(*assembler, verdict)
}

// number is that of this machine's architecture.
func (c *call) number() int {
	if runtime.GOARCH == "arm64" {
		return c.arm64
	}
	return c.amd64
}

func syscallTable() []call {
	return []call{
		// the file system view
		{"mount", 165, 40, refuse, nil},
		{"umount2", 166, 39, refuse, nil},
		{"pivot_root", 155, 41, refuse, nil},
		{"chroot", 161, 51, refuse, nil},
		{"open_tree", 428, 428, refuse, nil},
		{"move_mount", 429, 429, refuse, nil},
		{"fsopen", 430, 430, refuse, nil},
		{"fsconfig", 431, 431, refuse, nil},
		{"fsmount", 432, 432, refuse, nil},
		{"fspick", 433, 433, refuse, nil},
		{"mount_setattr", 442, 442, refuse, nil},
		{"open_tree_attr", 467, 467, refuse, nil},
		{"open_by_handle_at", 304, 265, refuse, nil},
		{"fanotify_init", 300, 262, refuse, nil},
		{"quotactl", 179, 60, refuse, nil},
		{"quotactl_fd", 443, 443, refuse, nil},
		// namespaces; clone3 hides its flags behind a pointer, and libc then uses clone
		{"setns", 308, 268, refuse, nil},
		{"unshare", 272, 97, refuse, nil},
		{"clone3", 435, 435, notThere, nil},
		{"clone", 56, 220, refuse, namespaceFlags},
		// other processes
		{"ptrace", 101, 117, refuse, nil},
		{"kcmp", 312, 272, refuse, nil},
		{"process_vm_readv", 310, 270, refuse, nil},
		{"process_vm_writev", 311, 271, refuse, nil},
		{"pidfd_getfd", 438, 438, refuse, nil},
		{"process_madvise", 440, 440, refuse, nil},
		{"migrate_pages", 256, 238, refuse, nil},
		{"move_pages", 279, 239, refuse, nil},
		// large attack surface in the kernel
		{"bpf", 321, 280, refuse, nil},
		{"perf_event_open", 298, 241, refuse, nil},
		{"userfaultfd", 323, 282, refuse, nil},
		{"keyctl", 250, 219, refuse, nil},
		{"add_key", 248, 217, refuse, nil},
		{"request_key", 249, 218, refuse, nil},
		// io_uring would also make calls that this filter never sees
		{"io_uring_setup", 425, 425, notThere, nil},
		{"io_uring_enter", 426, 426, notThere, nil},
		{"io_uring_register", 427, 427, notThere, nil},
		// the machine
		{"kexec_load", 246, 104, refuse, nil},
		{"kexec_file_load", 320, 294, refuse, nil},
		{"init_module", 175, 105, refuse, nil},
		{"finit_module", 313, 273, refuse, nil},
		{"delete_module", 176, 106, refuse, nil},
		{"reboot", 169, 142, refuse, nil},
		{"swapon", 167, 224, refuse, nil},
		{"swapoff", 168, 225, refuse, nil},
		{"acct", 163, 89, refuse, nil},
		{"syslog", 103, 116, refuse, nil},
		{"settimeofday", 164, 170, refuse, nil},
		{"clock_settime", 227, 112, refuse, nil},
		{"clock_adjtime", 305, 266, refuse, nil},
		{"adjtimex", 159, 171, refuse, nil},
		{"sethostname", 170, 161, refuse, nil},
		{"setdomainname", 171, 162, refuse, nil},
		{"vhangup", 153, 58, refuse, nil},
		{"iopl", 172, none, refuse, nil},
		{"ioperm", 173, none, refuse, nil},
		{"modify_ldt", 154, none, refuse, nil},
		{"nfsservctl", 180, 42, refuse, nil},
		{"lookup_dcookie", 212, 18, refuse, nil},
		{"uselib", 134, none, refuse, nil},
		{"ustat", 136, none, refuse, nil},
		{"sysfs", 139, none, refuse, nil},
		{"personality", 135, 92, refuse, oddPersonality},
		// terminals and sockets
		{"ioctl", 16, 29, refuse, terminalInjection},
		{"socket", 41, 198, refuse, oddSockets},
		// set-uid and set-gid files: on disk their owner can be another user than
		// the command. openat2 has its mode behind a pointer.
		{"chmod", 90, none, refuse, setIDMode(1)},
		{"fchmod", 91, 52, refuse, setIDMode(1)},
		{"fchmodat", 268, 53, refuse, setIDMode(2)},
		{"fchmodat2", 452, 452, refuse, setIDMode(2)},
		{"creat", 85, none, refuse, setIDMode(1)},
		{"mknod", 133, none, refuse, setIDMode(1)},
		{"mknodat", 259, 33, refuse, setIDMode(2)},
		{"openat2", 437, 437, notThere, nil},
		{"open", 2, none, refuse, setIDOpen(1)},
		{"openat", 257, 56, refuse, setIDOpen(2)},
	}
}

// namespaceFlags refuses every CLONE_NEW flag that clone can carry.
func namespaceFlags(a *assembler, v verdict) {
	const flags = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
	a.loadArg(0)
	a.ifAny(flags, v)
}

// terminalInjection refuses TIOCSTI and TIOCLINUX. The kernel takes the command as
// 32 bits, so only the low half is compared.
func terminalInjection(a *assembler, v verdict) {
	a.loadArg(1)
	a.ifEqual(0x5412, v)
	a.ifEqual(0x541c, v)
}

// oddPersonality allows the query, the two plain Linux ones and, for sanitizers and
// debuggers, switching address randomisation off.
func oddPersonality(a *assembler, v verdict) {
	a.loadArg(0)
	for _, ok := range []uint32{0, 8, 0x40000, 0x40008, 0xffffffff} {
		a.ifEqual(ok, allow)
	}
	a.ret(v)
}

// oddSockets allows unix, IPv4, IPv6 and the route family of netlink (programs
// list interfaces with it), and no raw sockets.
func oddSockets(a *assembler, v verdict) {
	const unixFamily, inet, netlink, inet6, raw = 1, 2, 16, 10, 3
	a.loadArg(0)
	a.unlessEqual(netlink, 4) // over the four instructions of this case
	a.loadArg(2)
	a.ifEqual(0, allow)
	a.ret(noSuchFamily)
	a.unlessIn([]uint32{unixFamily, inet, inet6}, noSuchFamily)
	a.loadArg(1)
	a.mask(0xf)
	a.ifEqual(raw, v)
}

const setIDBits = 0o6000

func setIDMode(arg int) func(*assembler, verdict) {
	return func(a *assembler, v verdict) {
		a.loadArg(arg)
		a.ifAny(setIDBits, v)
	}
}

// setIDOpen looks at the mode only when the flags create a file; otherwise the
// register holds whatever was there.
func setIDOpen(flags int) func(*assembler, verdict) {
	return func(a *assembler, v verdict) {
		const create, tmpfile = 0o100, 0x400000
		a.loadArg(flags)
		a.unlessAny(create|tmpfile, 3)
		a.loadArg(flags + 1)
		a.ifAny(setIDBits, v)
	}
}
