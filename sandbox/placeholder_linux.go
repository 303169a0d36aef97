package sandbox

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// A protected name that does not exist needs something to mount over, or the
// command could create it. An empty directory does: git, for one, walks past an
// empty .git directory as if it were not there. Concurrent commands share it, and
// it must stay while any of them runs: removing it would take their mounts away.

type placeKey struct {
	dev, ino uint64 // of the root
	name     string
}

// placeholder is one use of a directory this process made.
type placeholder struct {
	key  placeKey
	once sync.Once
}

type place struct {
	uses int
	root int // O_PATH of the root
	dir  int // the directory
}

// places is shared by all launchers of the process.
var places struct {
	sync.Mutex
	m map[placeKey]*place
}

// holdPlace makes sure that name exists below root. It returns nil when something
// of somebody else's is there.
func holdPlace(root int, st *unix.Stat_t, name string) (*placeholder, error) {
	key := placeKey{st.Dev, st.Ino, name}
	places.Lock()
	defer places.Unlock()
	if p := places.m[key]; p != nil {
		if sameEntry(root, name, p.dir) {
			p.uses++
			return &placeholder{key: key}, nil
		}
		return nil, errors.New("the placeholder was replaced while a command is using it: try again when it has ended")
	}
	err := unix.Mkdirat(root, name, 0o755)
	if err == unix.EEXIST {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &place{uses: 1, root: -1, dir: -1}
	if err := p.open(root, st, name); err != nil {
		_ = unix.Unlinkat(root, name, unix.AT_REMOVEDIR)
		closeAll([]int{p.root, p.dir})
		return nil, err
	}
	if places.m == nil {
		places.m = map[placeKey]*place{}
	}
	places.m[key] = p
	return &placeholder{key: key}, nil
}

func (p *place) open(root int, st *unix.Stat_t, name string) (err error) {
	if p.root, err = unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	if p.dir, err = unix.Openat2(root, name, &how); err != nil {
		return err
	}
	var own unix.Stat_t
	if err := unix.Fstat(p.dir, &own); err != nil {
		return err
	}
	if own.Uid != st.Uid || own.Gid != st.Gid {
		// as if the owner of the workspace had made it; in a set-gid directory or
		// without the right to give files away it stays as it is
		if err := unix.Fchown(p.dir, int(st.Uid), int(st.Gid)); err != nil && err != unix.EPERM {
			return err
		}
	}
	return nil
}

// release gives up one use. The last one removes the directory if it is still the
// same one and empty. It may be called more than once.
func (h *placeholder) release() {
	h.once.Do(func() {
		places.Lock()
		defer places.Unlock()
		p := places.m[h.key]
		if p.uses--; p.uses > 0 {
			return
		}
		delete(places.m, h.key)
		if sameEntry(p.root, h.key.name, p.dir) {
			_ = unix.Unlinkat(p.root, h.key.name, unix.AT_REMOVEDIR) // not empty: it is the user's now
		}
		closeAll([]int{p.root, p.dir})
	})
}

// sameEntry tells whether name below root is still the open directory.
func sameEntry(root int, name string, dir int) bool {
	var now, then unix.Stat_t
	return unix.Fstatat(root, name, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && unix.Fstat(dir, &then) == nil &&
		now.Dev == then.Dev && now.Ino == then.Ino
}
