package sandbox

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A protected .git that does not exist is held by an empty directory. git walks past one, but the go command takes it for a
// repository, asks git about it and fails. Told not to stamp what it builds it does not look.

const noStamps = "GOFLAGS=-buildvcs=false"

// holdsGit tells whether the command finds an empty .git in a root.
func holdsGit(p Policy) bool {
	if p.Mode != WorkspaceWrite || p.ProtectedNames != nil && !slices.Contains(p.ProtectedNames, ".git") {
		return false
	}
	return slices.ContainsFunc(p.Roots, func(root string) bool {
		fd, err := openHost(root)
		if err != nil {
			return false // the start is going to fail of it
		}
		defer unix.Close(fd)
		// What is there can be a command's: a link to anywhere, or a FIFO, which makes whoever opens it wait.
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
		dir, err := unix.Openat2(fd, ".git", &how)
		if err != nil {
			return err == unix.ENOENT // it is going to be held
		}
		defer unix.Close(dir)
		return isEmpty(dir)
	})
}

// withoutStamps tells the go command, unless it is told something else.
func withoutStamps(env []string) []string {
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "GOFLAGS=") }) {
		return env
	}
	return append(env, noStamps)
}
