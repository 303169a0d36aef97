package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The reduced level is for machines without user namespaces, if their owner chose it
// by name. There is no view: a command sees the machine's own files and processes,
// and Landlock and seccomp alone say what it may do with them. What that cannot
// express is written at Options.Reduced.

// Level tells what Start builds: "complete", or "reduced" after Options.Reduced.
// Commands with full access have no sandbox at either level.
func (l *Launcher) Level() string {
	if l.opt.Reduced {
		return "reduced"
	}
	return "complete"
}

// reducedLandlock is the first version that keeps signals and abstract sockets inside.
const reducedLandlock = 6

// reducedSupport tells why this machine cannot do even that, or nil.
func reducedSupport() error {
	v := landlockVersion()
	if v >= reducedLandlock {
		return nil
	}
	return &UnsupportedError{Missing: []Layer{{
		Name: "landlock", Reason: fmt.Sprintf("the reduced level needs version %d, the kernel has %d", reducedLandlock, v),
		Remedy: "use Linux 6.12 or later and add landlock to the lsm= kernel parameter",
	}}}
}

// reducedPlan is what a plan has in place of a view.
type reducedPlan struct {
	rules []reducedRule
	dir   string // private, with home and tmp in it
}

// resolveReduced checks a policy against the file system of this moment.
func (l *Launcher) resolveReduced(p Policy) (_ *plan, err error) {
	if err := reducedSupport(); err != nil {
		return nil, err
	}
	if err := checkPolicy(p); err != nil {
		return nil, err
	}
	if sockets := slices.Concat(l.opt.UnixSockets, p.UnixSockets); len(sockets) > 0 {
		return nil, &SetupError{Stage: "policy", Path: sockets[0], Err: errors.New("the reduced level has no sockets: leave it out")}
	}
	if p.Network != (Network{}) {
		return nil, &SetupError{Stage: "policy", Err: errors.New("the reduced level has no network, not even between commands: ask for none")}
	}
	t := &readable{hidden: hiddenPaths(l.id, l.opt.HiddenPaths, p.HiddenPaths), minimal: p.View == ViewMinimal}
	pl := &plan{setup: setup{reduced: true}, reduced: &reducedPlan{}}
	defer func() {
		if err != nil {
			pl.release()
		}
	}()
	if err := t.machine(); err != nil {
		return nil, err
	}
	for _, root := range sortedUnion(p.Roots, nil) {
		if err := l.addReducedRoot(t, root, p.Mode == WorkspaceWrite); err != nil {
			return nil, explain(fail("root", root, err))
		}
	}
	for _, path := range sortedUnion(l.opt.ReadRoots, p.ReadRoots) {
		if err := l.addReducedRoot(t, path, false); err != nil {
			return nil, explain(fail("root", path, err))
		}
	}
	if pl.reduced.dir, err = l.privateDir(); err != nil {
		return nil, &SetupError{Stage: "home", Err: err}
	}
	private, err := pinned(pl.reduced.dir, ^uint64(llNodes))
	if err != nil {
		return nil, &SetupError{Stage: "home", Path: pl.reduced.dir, Err: err}
	}
	pl.reduced.rules = append(t.rules, private)
	return pl, nil
}

// addReducedRoot makes a root readable, or writable as a whole.
func (l *Launcher) addReducedRoot(t *readable, root string, writable bool) error {
	access := uint64(llLook)
	if writable {
		access = ^uint64(llNodes)
	}
	for _, h := range t.hidden {
		switch {
		case within(root, h):
			return &SetupError{Stage: "policy", Path: root, Err: fmt.Errorf("it cannot lie in hidden %s", h)}
		case within(h, root):
			return &SetupError{Stage: "policy", Path: root, Err: fmt.Errorf("the reduced level cannot hide %s inside a root", h)}
		}
	}
	rule, err := pinned(root, access)
	if err != nil {
		return err
	}
	if writable && l.id.asRoot && rule.uid != uint32(l.id.uid) {
		return fmt.Errorf("it belongs to uid %d, and the reduced level cannot map owners: give it to the commands' uid, %d", rule.uid, l.id.uid)
	}
	t.rules = append(t.rules, rule)
	return nil
}

// privateDir makes the command's own folders. The caller removes them.
func (l *Launcher) privateDir() (dir string, err error) {
	base, err := realPath(os.TempDir())
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(base, "postern-"); err != nil {
		return "", err
	}
	for _, d := range []string{dir, dir + "/home", dir + "/tmp"} {
		if d != dir {
			err = os.Mkdir(d, 0o700)
		}
		if err == nil && l.id.asRoot {
			err = os.Lchown(d, l.id.uid, l.id.gid)
		}
		if err != nil {
			return "", errors.Join(err, removePrivate(dir))
		}
	}
	return dir, nil
}

// removePrivate removes a private folder when nothing uses it, also where the command
// took the rights to its folders away from itself.
func removePrivate(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	openFolders(dir)
	return os.RemoveAll(dir)
}

// openFolders gives the rights to a folder and all below it back. It follows no links.
func openFolders(dir string) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return
	}
	_ = os.Chmod(dir, 0o700)
	entries, _ := os.ReadDir(dir) // as far as they can be read
	for _, e := range entries {
		if e.IsDir() {
			openFolders(dir + "/" + e.Name())
		}
	}
}

// place gives a command its private folders and its rules.
func (p *plan) place(r *run) *run {
	if p.reduced == nil {
		return r
	}
	c := *r
	c.reduced, c.rules = true, p.reduced.rules
	home := p.reduced.dir + "/home"
	if c.dir == homeDir {
		c.dir = home
	}
	c.env = slices.Clone(r.env)
	tmp := false
	for i, kv := range c.env {
		if kv == "HOME="+homeDir {
			c.env[i] = "HOME=" + home
		}
		tmp = tmp || strings.HasPrefix(kv, "TMPDIR=")
	}
	if !tmp {
		c.env = append(c.env, "TMPDIR="+p.reduced.dir+"/tmp")
	}
	return &c
}

// pinned makes a rule for a folder that must be the same when it is applied.
func pinned(path string, access uint64) (reducedRule, error) {
	fd, err := openHost(path)
	if err != nil {
		return reducedRule{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return reducedRule{}, err
	}
	return reducedRule{path: path, access: access, pinned: true, dev: st.Dev, ino: st.Ino, uid: st.Uid}, nil
}
