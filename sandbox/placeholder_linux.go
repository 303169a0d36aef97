package sandbox

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A protected name that does not exist needs something to mount over, or the
// command could create it. An empty directory does: git, for one, walks past an
// empty .git directory as if it were not there. Concurrent commands share it, and
// it must stay while any of them runs: removing it would take their mounts away.
// Launchers of one process count its uses; other daemons see a shared lock on it.

type placeKey struct {
	dev, ino uint64 // of the root
	name     string
}

// placeholder is one use of a place.
type placeholder struct {
	key  placeKey
	of   *place
	once sync.Once
}

type place struct {
	uses int
	made bool // by this process, which then removes it
	root int  // O_PATH of the root
	dir  int  // the directory, with a shared lock
}

// places is shared by all launchers of the process.
var places struct {
	sync.Mutex
	m map[placeKey]*place
}

var errBusy = errors.New("another program makes and removes this directory at the same time: try again")

// holdPlace makes sure that name exists below root, and stays if it is an empty
// directory. It returns nil when something else is there.
func holdPlace(root int, st *unix.Stat_t, name string) (*placeholder, error) {
	key := placeKey{st.Dev, st.Ino, name}
	places.Lock()
	defer places.Unlock()
	// A place that was replaced on the host is left to those who use it still: it needs no
	// removing, and the new entry is a place of its own, or none.
	if p := places.m[key]; p != nil && sameEntry(root, name, p.dir) {
		p.uses++
		return &placeholder{key: key, of: p}, nil
	}
	for range 10 { // another daemon may remove it between two of these steps
		p := &place{uses: 1, root: -1, dir: -1}
		err := unix.Mkdirat(root, name, 0o755)
		p.made = err == nil
		if err != nil && err != unix.EEXIST {
			return nil, err
		}
		kept, err := p.open(root, st, name)
		if err == nil && kept && sameEntry(root, name, p.dir) {
			if places.m == nil {
				places.m = map[placeKey]*place{}
			}
			places.m[key] = p
			return &placeholder{key: key, of: p}, nil
		}
		if p.made && err != nil {
			_ = unix.Unlinkat(root, name, unix.AT_REMOVEDIR)
		}
		closeAll([]int{p.root, p.dir})
		if err == nil && !kept && !p.made {
			return nil, nil
		}
		if err != nil && err != unix.ENOENT {
			return nil, err
		}
	}
	return nil, errBusy
}

// open takes hold of the directory; false means that it is none of the kind that
// needs holding.
func (p *place) open(root int, st *unix.Stat_t, name string) (bool, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	var err error
	if p.dir, err = unix.Openat2(root, name, &how); err != nil {
		if !p.made && err != unix.ENOENT {
			return false, nil // a file, a link, or closed to us: no placeholder
		}
		return false, err
	}
	if !p.made && !isEmpty(p.dir) {
		return false, nil
	}
	if p.root, err = unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return false, err
	}
	if err := unix.Flock(p.dir, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		if err == unix.EWOULDBLOCK {
			return false, errBusy
		}
		return false, err
	}
	if p.made {
		return true, p.giveTo(st)
	}
	return true, nil
}

// giveTo makes the directory as if the owner of the workspace had made it. Without
// the right to give files away it stays as it is.
func (p *place) giveTo(st *unix.Stat_t) error {
	if int(st.Uid) == os.Geteuid() && int(st.Gid) == os.Getegid() {
		return nil
	}
	if err := unix.Fchown(p.dir, int(st.Uid), int(st.Gid)); err != nil && err != unix.EPERM {
		return err
	}
	return nil
}

// release gives up one use. The last one removes what this process made, if it is
// still the same, empty, and not held by another daemon. It may be called more than
// once.
func (h *placeholder) release() {
	h.once.Do(func() {
		places.Lock()
		defer places.Unlock()
		p := h.of
		if p.uses--; p.uses > 0 {
			return
		}
		if places.m[h.key] == p {
			delete(places.m, h.key)
		}
		if p.made && unix.Flock(p.dir, unix.LOCK_EX|unix.LOCK_NB) == nil && sameEntry(p.root, h.key.name, p.dir) {
			_ = unix.Unlinkat(p.root, h.key.name, unix.AT_REMOVEDIR) // not empty: it is the user's now
		}
		closeAll([]int{p.root, p.dir})
	})
}

// shared tells whether a release now would leave the place to others.
func (h *placeholder) shared() bool {
	places.Lock()
	defer places.Unlock()
	return h.of.uses > 1
}

// isEmpty tells whether an open directory has no entries.
func isEmpty(dir int) bool {
	buf := make([]byte, 4096)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil {
			return false
		}
		if n == 0 {
			return true
		}
		if _, count, _ := unix.ParseDirent(buf[:n], 1, nil); count > 0 {
			return false
		}
	}
}

// sameEntry tells whether name below root is still the open directory.
func sameEntry(root int, name string, dir int) bool {
	var now, then unix.Stat_t
	return unix.Fstatat(root, name, &now, unix.AT_SYMLINK_NOFOLLOW) == nil && unix.Fstat(dir, &then) == nil &&
		now.Dev == then.Dev && now.Ino == then.Ino
}
