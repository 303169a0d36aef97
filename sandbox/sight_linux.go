package sandbox

import (
	"fmt"
	slashpath "path"
	"slices"

	"golang.org/x/sys/unix"
)

// A sandbox that was made ahead shows the files of the time when it was made. A
// sight is what a policy meets in the file system: two equal sights mean that the
// same view would be built. The sandbox keeps every inode of its sight in use, so
// that an equal number is the same file and not a later one.

type fileID struct{ dev, ino uint64 }

type sight struct {
	text   string   // everything, to be compared
	pieces []fileID // of the roots and protected entries, in the order of the plan
	hidden []string // where the hidden paths that exist lead
}

// policyKey names everything of a policy that the set-up of a sandbox depends on.
// What comes with the command is taken out; a field that is added later separates
// sandboxes until it is taken out too.
func policyKey(p Policy) string {
	p.Limits = Limits{}
	return fmt.Sprintf("%#v", p)
}

// look takes the sight of a policy without changing anything. False means that it
// cannot be taken, for a reason that the making of a sandbox will tell.
func (l *Launcher) look(p Policy) (sight, bool) {
	if p.Mode == FullAccess {
		return sight{}, true // it has no view of its own
	}
	var s sight
	var w writer
	for _, account := range []string{"/etc/passwd", "/etc/group"} {
		var st unix.Stat_t
		if unix.Lstat(account, &st) == nil {
			w.file(&st)
			w.signed(st.Size)
			w.signed(st.Mtim.Nano())
			w.signed(st.Ctim.Nano())
		}
		w.num(0)
	}
	if p.View == ViewMinimal { // it covers what there is at the top
		var st unix.Stat_t
		if unix.Lstat("/", &st) != nil {
			return sight{}, false
		}
		w.file(&st)
		w.signed(st.Mtim.Nano())
	}
	roots := slices.Clone(p.Roots)
	slices.Sort(roots)
	for _, root := range slices.Compact(roots) {
		if !l.lookAtRoot(&w, &s, root, p) {
			return sight{}, false
		}
	}
	for _, list := range [][]string{sortedUnion(l.opt.ReadRoots, p.ReadRoots), sortedUnion(l.opt.UnixSockets, p.UnixSockets)} {
		for _, path := range list {
			var st unix.Stat_t
			if unix.Lstat(path, &st) != nil {
				return sight{}, false
			}
			s.pieces = append(s.pieces, w.file(&st))
		}
	}
	for _, path := range l.hideable {
		s.lookAtHidden(&w, path)
	}
	for _, path := range p.HiddenPaths {
		s.lookAtHidden(&w, path)
	}
	s.text = string(w.b)
	return s, true
}

func (l *Launcher) lookAtRoot(w *writer, s *sight, root string, p Policy) bool {
	fd, err := openHost(root)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	s.pieces = append(s.pieces, w.file(&st))
	w.num(uint64(st.Uid)) // decides how files are shown
	w.num(uint64(st.Gid))
	if p.Mode == ReadOnly {
		return true
	}
	names := p.ProtectedNames
	if names == nil {
		names = defaultProtected
	}
	for _, name := range names {
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return false // a place that a sandbox made ahead would have held is gone
		}
		s.pieces = append(s.pieces, w.file(&st))
	}
	return true
}

// lookAtHidden adds a path that exists, with what it stands for.
func (s *sight) lookAtHidden(w *writer, path string) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == unix.ENOENT {
		return // most of them, at the price of one call
	}
	w.str(path)
	if err != nil {
		s.hidden = append(s.hidden, slashpath.Clean(path))
		return
	}
	w.file(&st)
	fd, err := openPlain(path)
	if err == nil {
		// no symbolic link on the way: the path is where the cover lies
		s.hidden = append(s.hidden, slashpath.Clean(path))
		w.num(0)
		unix.Close(fd)
		return
	}
	real, there := resolveHidden(path)
	if !there {
		return
	}
	s.hidden = append(s.hidden, real)
	w.str(real)
	if unix.Stat(real, &st) == nil {
		w.file(&st)
	}
}

func (w *writer) file(st *unix.Stat_t) fileID {
	w.num(st.Dev)
	w.num(st.Ino)
	return fileID{st.Dev, st.Ino}
}

// made tells whether a plan has the pieces of the sight and hides what it hides. A path that appeared after the plan was
// made is in the sight and would not be covered.
func (s *sight) made(pl *plan) bool {
	seen, covered := slices.Sorted(slices.Values(s.hidden)), slices.Sorted(slices.Values(pl.setup.hidden))
	return slices.Equal(slices.Compact(seen), covered) && slices.EqualFunc(s.pieces, pl.setup.pieces, func(id fileID, p piece) bool { return id == fileID{p.dev, p.ino} })
}

// openPlain opens an absolute path that holds no symbolic link.
func openPlain(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	return unix.Openat2(unix.AT_FDCWD, path, &how)
}
