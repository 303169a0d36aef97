package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	llLook  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	llFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	llNodes = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
)

// scopedLandlock is the first version that keeps processes from abstract unix sockets of others.
const scopedLandlock = 6

// landlockVersion is the interface version of the kernel, 0 without Landlock.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// landlockRights are the file rights that a kernel of that version can handle.
func landlockRights(version int) uint64 {
	switch {
	case version >= 5:
		return 1<<16 - 1 // device ioctl
	case version >= 3:
		return 1<<15 - 1 // truncate
	case version == 2:
		return 1<<14 - 1 // refer
	default:
		return 1<<13 - 1
	}
}

type landlockRule struct {
	path   string
	access uint64
}

// landlockRules say again, without mounts, what may be written. They carry what
// mounts cannot: a FIFO on a read-only mount is still writable.
func landlockRules(writable []string) []landlockRule {
	rules := []landlockRule{{"/", llLook}, {"/proc", llLook | unix.LANDLOCK_ACCESS_FS_WRITE_FILE}}
	for _, d := range deviceNodes {
		rules = append(rules, landlockRule{"/dev/" + d, llFile})
	}
	for _, d := range append([]string{"/tmp", "/var/tmp", "/dev/shm", "/dev/pts", homeDir}, writable...) {
		rules = append(rules, landlockRule{d, ^uint64(llNodes)})
	}
	return rules
}

// landlock restricts the calling thread. exe is a descriptor of the init's own
// program, which may lie outside the view and is executed once more.
func landlock(rules []landlockRule, exe int) error {
	version := landlockVersion()
	if version < 1 {
		return fail("landlock", "", errNoLandlock)
	}
	rights := landlockRights(version)
	ruleset, err := newRuleset(unix.LandlockRulesetAttr{Handled_access_fs: rights, Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}, version)
	if err != nil {
		return fail("landlock", "", err)
	}
	defer unix.Close(ruleset)
	for _, rule := range rules {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, rule.path, &how)
		if err == unix.ENOENT {
			continue // nothing is allowed there then
		}
		if err != nil {
			return fail("landlock", rule.path, err)
		}
		err = addRule(ruleset, fd, rule.access&rights)
		unix.Close(fd)
		if err != nil {
			return fail("landlock", rule.path, err)
		}
	}
	if exe >= 0 {
		// EBADFD: a program in a memfd is outside Landlock's reach anyway
		if err := addRule(ruleset, exe, unix.LANDLOCK_ACCESS_FS_EXECUTE|unix.LANDLOCK_ACCESS_FS_READ_FILE); err != nil && err != unix.EBADFD {
			return fail("landlock", "init program", err)
		}
	}
	return fail("landlock", "", restrictSelf(ruleset))
}

// newRuleset makes an empty ruleset. Kernels before version 6 know the file rights only.
func newRuleset(attr unix.LandlockRulesetAttr, version int) (int, error) {
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if version >= scopedLandlock {
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	r, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

// restrictSelf puts the calling thread under a ruleset.
func restrictSelf(ruleset int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func addRule(ruleset, fd int, access uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
