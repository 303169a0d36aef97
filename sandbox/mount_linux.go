package sandbox

import (
	"errors"
	"os"
	slashpath "path"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	readOnlyAttr = unix.MOUNT_ATTR_RDONLY
	noSuid       = unix.MOUNT_ATTR_NOSUID
	noDev        = unix.MOUNT_ATTR_NODEV
	noExec       = unix.MOUNT_ATTR_NOEXEC
)

// openBeneath opens an absolute path below the directory root as O_PATH and
// refuses symbolic links in every component. O_NOFOLLOW must not be added: with it
// a final link would be opened instead of refused.
func openBeneath(root int, path string, flags uint64) (int, error) {
	rel := strings.TrimPrefix(path, "/")
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat2(root, rel, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// cloneTree makes a detached copy of the mount at an open path, with attributes
// set before anything can see it. The copy is private: where the host shares its
// mounts, what the view mounts on the copy would otherwise appear on the host.
func cloneTree(at int, recursive bool, set uint64) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	attrFlags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
		attrFlags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(at, "", flags)
	if err != nil {
		return -1, err
	}
	if err := unix.MountSetattr(fd, "", attrFlags, &unix.MountAttr{Attr_set: set, Propagation: unix.MS_PRIVATE}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// newFS makes a detached mount of a new file system. Options are KEY=value or KEY.
func newFS(kind string, attrs int, options ...string) (int, error) {
	ctx, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	for _, o := range options {
		key, value, ok := strings.Cut(o, "=")
		if ok {
			err = unix.FsconfigSetString(ctx, key, value)
		} else {
			err = unix.FsconfigSetFlag(ctx, key)
		}
		if err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
}

// view is the new root while it is built.
type view struct {
	root int      // O_PATH of the new root
	seal []string // tmpfs mounts that become read-only at the end
	// pins are descriptors of what is mounted or covered. While they are open no
	// inode of it can be used anew, which would look like the same file.
	pins []int
}

// attach puts a detached tree on an existing path of the view and closes it.
func (v *view) attach(tree int, path string) error {
	defer unix.Close(tree)
	at, err := openBeneath(v.root, path, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return moveOnto(tree, at)
}

func moveOnto(tree, at int) error {
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// bind shows what is at path from also at path to.
func (v *view) bind(from, to string, attrs uint64) error {
	at, err := openBeneath(v.root, from, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	tree, err := cloneTree(at, false, attrs)
	if err != nil {
		return err
	}
	return v.attach(tree, to)
}

// tmpfs mounts a new tmpfs on path.
func (v *view) tmpfs(path string, attrs int, options ...string) error {
	tree, err := newFS("tmpfs", attrs, options...)
	if err != nil {
		return err
	}
	return v.attach(tree, path)
}

// target opens the place for a mount. A directory on the way that the command's
// identity cannot search is covered by an empty one, and what is missing below a
// tmpfs is made, so that a root below /tmp or /root keeps its path.
func (v *view) target(path string, file bool) (int, error) {
	at, err := openBeneath(v.root, path, 0)
	if err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) {
		return at, err
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		prefix := path[:i]
		at, err := openBeneath(v.root, prefix, 0)
		if errors.Is(err, unix.EACCES) {
			parent := slashpath.Dir(prefix)
			if err := v.tmpfs(parent, noSuid|noDev, "mode=0755", "size=256k"); err != nil {
				return -1, err
			}
			v.seal = append(v.seal, parent)
			if err := os.Mkdir(prefix, 0o755); err != nil {
				return -1, err
			}
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			if file && prefix == path {
				err = os.WriteFile(path, nil, 0o600)
			} else {
				err = os.Mkdir(prefix, 0o755)
			}
			if err != nil {
				return -1, err
			}
			continue
		}
		if err != nil {
			return -1, err
		}
		unix.Close(at)
	}
	return openBeneath(v.root, path, 0)
}

// sealed makes the helper mounts read-only.
func (v *view) sealed() error {
	for _, p := range v.seal {
		at, err := openBeneath(v.root, p, 0)
		if err != nil {
			return fail("view", p, err)
		}
		err = unix.MountSetattr(at, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: readOnlyAttr})
		unix.Close(at)
		if err != nil {
			return fail("view", p, err)
		}
	}
	return nil
}
