package sandbox

import (
	"errors"
	"fmt"
	slashpath "path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const defaultTmpBytes = 512 << 20

// plan is a policy made concrete: what the init is told, the mounts it inherits,
// and what must be taken back afterwards.
type plan struct {
	setup   setup
	trees   []int // mounts made by a root daemon, in the order of their numbers
	holders []*placeholder
	reduced *reducedPlan // nil but for the reduced level
	session *netSession  // whose network it has; nil: none's
}

// release closes the mounts and removes placeholders that are still empty.
func (p *plan) release() {
	p.closeTrees()
	for _, h := range p.holders {
		h.release()
	}
	p.holders = nil
	p.session.leave()
	p.session = nil
	if p.reduced != nil && p.reduced.dir != "" {
		_ = removePrivate(p.reduced.dir) // what stays is the command's own, and private
		p.reduced.dir = ""
	}
}

// lastUse tells whether a release would remove a placeholder.
func (p *plan) lastUse() bool {
	for _, h := range p.holders {
		if !h.shared() {
			return true
		}
	}
	return false
}

func (p *plan) closeTrees() {
	closeAll(p.trees)
	p.trees = nil
}

// resolve checks a policy against the file system of this moment.
func (l *Launcher) resolve(p Policy) (_ *plan, err error) {
	if err := checkPolicy(p); err != nil {
		return nil, err
	}
	pl := &plan{setup: setup{
		network: p.Network, readOnly: p.Mode == ReadOnly, minimal: p.View == ViewMinimal, tmpBytes: p.TmpBytes, passwd: l.id.passwd, group: l.id.group,
		hidden: hiddenPaths(l.id, l.opt.HiddenPaths, p.HiddenPaths),
	}}
	if pl.setup.tmpBytes == 0 {
		pl.setup.tmpBytes = defaultTmpBytes
	}
	defer func() {
		if err != nil {
			pl.release()
		}
	}()
	roots := slices.Clone(p.Roots)
	slices.Sort(roots) // what contains others comes first
	roots = slices.Compact(roots)
	for _, root := range roots {
		if err := pl.checkVisible(root); err != nil {
			return nil, err
		}
		if err := l.addRoot(pl, root, p); err != nil {
			return nil, explain(fail("root", root, err))
		}
	}
	for _, path := range sortedUnion(l.opt.ReadRoots, p.ReadRoots) {
		if err := l.addSeen(pl, path, unix.S_IFDIR); err != nil {
			return nil, err
		}
	}
	for _, path := range sortedUnion(l.opt.UnixSockets, p.UnixSockets) {
		if err := l.addSeen(pl, path, unix.S_IFSOCK); err != nil {
			return nil, err
		}
	}
	return pl, nil
}

// checkVisible refuses a path that hiding would cover: what lies below /run is remade
// there, other hidden places are final.
func (p *plan) checkVisible(path string) error {
	for _, h := range p.setup.hidden {
		if within(path, h) && h != "/run" {
			return &SetupError{Stage: "policy", Path: path, Err: fmt.Errorf("it cannot lie in hidden %s", h)}
		}
	}
	return nil
}

func sortedUnion(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// addSeen pins a directory or a socket of the machine that is shown as it is.
func (l *Launcher) addSeen(pl *plan, path string, kind uint32) error {
	if err := pl.checkVisible(path); err != nil {
		return err
	}
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return explain(fail("view", path, err))
	}
	defer unix.Close(top)
	fd, err := openBeneath(top, path, 0)
	if err != nil {
		return explain(fail("view", path, err))
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return explain(fail("view", path, err))
	}
	if st.Mode&unix.S_IFMT != kind {
		return &SetupError{Stage: "policy", Path: path, Err: map[uint32]error{unix.S_IFDIR: errNotDir, unix.S_IFSOCK: errNotSocket}[kind]}
	}
	const unmapped = -1 // nobody gets rights that its owner does not have
	return explain(l.addPiece(pl, fd, path, &st, true, unmapped))
}

var (
	errNotDir    = errors.New("not a directory")
	errNotSocket = errors.New("not a socket")
)

func checkPolicy(p Policy) error {
	bad := func(path, format string, args ...any) error {
		return &SetupError{Stage: "policy", Path: path, Err: fmt.Errorf(format, args...)}
	}
	if p.Mode != ReadOnly && p.Mode != WorkspaceWrite {
		return bad("", "mode %s is not a sandbox", p.Mode)
	}
	if p.TmpBytes < 0 {
		return bad("", "TmpBytes must not be negative")
	}
	if err := p.Network.check(); err != nil {
		return bad("", "%v", err)
	}
	if p.Network.Mode == NetworkHost && landlockVersion() < scopedLandlock {
		return bad("", "the machine's network needs Landlock's scopes (Linux 6.12), or commands would reach abstract sockets of the machine")
	}
	if p.View != ViewFull && p.View != ViewMinimal {
		return bad("", "unknown view %d", int(p.View))
	}
	for _, root := range slices.Concat(p.Roots, p.ReadRoots, p.UnixSockets) {
		if !slashpath.IsAbs(root) || slashpath.Clean(root) != root || strings.ContainsRune(root, 0) {
			return bad(root, "a root must be an absolute, clean path")
		}
		for _, no := range []string{"/proc", "/sys", "/dev", helperDir} {
			if within(root, no) || within(no, root) {
				return bad(root, "a root cannot be or hold %s", no)
			}
		}
	}
	for _, name := range p.ProtectedNames {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return bad(name, "a protected name must be a single path element")
		}
	}
	for _, path := range p.HiddenPaths {
		if !slashpath.IsAbs(path) || within("/", slashpath.Clean(path)) {
			return bad(path, "a hidden path must be absolute and not the root directory")
		}
	}
	return nil
}

// addRoot pins a root, and the protected entries in it.
func (l *Launcher) addRoot(pl *plan, root string, p Policy) error {
	fd, err := openHost(root)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	readOnly := p.Mode == ReadOnly
	mapping, err := l.ownerMapping(&st)
	if err != nil {
		return err
	}
	if err := l.addPiece(pl, fd, root, &st, readOnly, mapping); err != nil || readOnly {
		return err
	}
	names := p.ProtectedNames
	if names == nil {
		names = defaultProtected
	}
	for _, name := range names {
		if err := l.protect(pl, fd, &st, root, name, mapping); err != nil {
			return fail("protected path", slashpath.Join(root, name), err)
		}
	}
	return nil
}

// protect adds a protected entry, with a placeholder if there is none.
func (l *Launcher) protect(pl *plan, root int, rootStat *unix.Stat_t, rootPath, name string, mapping int) error {
	h, err := holdPlace(root, rootStat, name)
	if err != nil {
		return err
	}
	if h != nil {
		pl.holders = append(pl.holders, h)
	}
	fd, err := openBeneath(root, name, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return errors.New("neither a file nor a directory: remove it")
	}
	return l.addPiece(pl, fd, slashpath.Join(rootPath, name), &st, true, mapping)
}

// addPiece records a piece. A root daemon makes the mount itself, since the init,
// being the command's user, may not even reach the path.
func (l *Launcher) addPiece(pl *plan, fd int, path string, st *unix.Stat_t, readOnly bool, mapping int) error {
	pc := piece{path: path, dev: st.Dev, ino: st.Ino, readOnly: readOnly, tree: -1, file: st.Mode&unix.S_IFMT != unix.S_IFDIR}
	if l.id.asRoot {
		tree, err := l.mappedTree(fd, path, st, readOnly, mapping)
		if err != nil {
			return err
		}
		pl.trees = append(pl.trees, tree)
		pc.tree = len(pl.trees) - 1
	}
	pl.setup.pieces = append(pl.setup.pieces, pc)
	return nil
}

// openHost opens a directory of the host without following any symbolic link.
func openHost(path string) (int, error) {
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	return openBeneath(top, path, unix.O_DIRECTORY)
}
