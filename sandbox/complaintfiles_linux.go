package sandbox

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What a command complains of are its own words, and the daemon sees more than the command does. So it looks up nothing for it, follows no
// link and waits for no file system, but in a folder that the command sees as a whole.

// holdsFIFO tells whether a path below a folder is a FIFO.
func holdsFIFO(dir, path string) bool {
	top, err := openHost(dir)
	if err != nil {
		return false
	}
	defer unix.Close(top)
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV,
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
	if rel == "" {
		return false
	}
	fd, err := unix.Openat2(top, rel, &how)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// hostMount is a place in the machine's list of mounts.
type hostMount struct {
	at       string
	readOnly bool
}

// hostReadOnly tells whether the machine's own file system is read-only at a path that the view shows, so that the sandbox has nothing to
// do with it.
func (c *complaints) hostReadOnly(path string) bool {
	if c.mounts == nil {
		b, _ := os.ReadFile("/proc/self/mountinfo")
		c.mounts = parseMounts(string(b))
	}
	return mountedReadOnly(c.mounts, path)
}

// mountedReadOnly asks the mount that a path lies in: the last of the innermost.
func mountedReadOnly(mounts []hostMount, path string) bool {
	best := hostMount{}
	for _, m := range mounts {
		if within(path, m.at) && len(m.at) >= len(best.at) {
			best = m
		}
	}
	return best.readOnly
}

// parseMounts reads a list as proc_pid_mountinfo(5) describes it. It is never nil.
func parseMounts(list string) []hostMount {
	mounts := []hostMount{}
	for line := range strings.Lines(list) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		m, fs := strings.Fields(mount), strings.Fields(filesystem)
		if len(m) >= 6 && len(fs) >= 3 {
			mounts = append(mounts, hostMount{plainMountPoint(m[4]), hasOption(m[5], "ro") || hasOption(fs[2], "ro")})
		}
	}
	return mounts
}

func hasOption(options, name string) bool {
	return strings.Contains(","+options+",", ","+name+",")
}

// plainMountPoint undoes the octal escapes of the list: of space, tab, line end and backslash.
func plainMountPoint(s string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, "\\")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if len(after) < 3 {
			b.WriteString("\\" + after)
			return b.String()
		}
		code, err := strconv.ParseUint(after[:3], 8, 8)
		if err != nil {
			b.WriteByte('\\')
			s = after
			continue
		}
		b.WriteByte(byte(code))
		s = after[3:]
	}
}
