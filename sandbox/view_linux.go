package sandbox

import (
	"errors"
	"os"
	slashpath "path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Where the view keeps what is made for the command. All of the host's /run is
// hidden, so nothing of it can collide.
const (
	helperDir = "/run/postern"
	homeDir   = helperDir + "/home"
	emptyDir  = helperDir + "/empty" // shown in place of a hidden directory
	emptyFile = helperDir + "/none"  // shown in place of a hidden file
)

var errChanged = errors.New("another file is there than when the command was checked")

// part is a piece of the view whose mount exists and waits for its place.
type part struct {
	piece
	fd int
}

// buildView makes the command's file system and enters it. The caller is the only
// process of new mount and pid namespaces. Sources are opened in the old root and
// targets in the new one, both by descriptor and without symbolic links. The view's
// pins are to be kept open.
func buildView(s *setup) (*view, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fail("view", "/", err)
	}
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail("view", "/", err)
	}
	defer unix.Close(old)
	root, err := cloneTree(old, true, readOnlyAttr|noSuid|noDev)
	if err != nil {
		return nil, fail("view", "/", err)
	}
	defer unix.Close(root)
	parts, err := collectParts(old, s.pieces)
	if err != nil {
		return nil, err
	}
	devices, err := collectDevices(old)
	if err != nil {
		return nil, err
	}
	if err := enterRoot(root); err != nil {
		return nil, err
	}
	v := &view{}
	if v.root, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fail("view", "/", err)
	}
	defer unix.Close(v.root)
	if err := v.buildProc(); err != nil {
		return nil, err
	}
	if err := v.buildDev(devices); err != nil {
		return nil, err
	}
	if err := v.maskProc(); err != nil {
		return nil, err
	}
	if s.minimal {
		if err := v.reduce(); err != nil {
			return nil, err
		}
	}
	if err := v.buildTemporary(s); err != nil {
		return nil, err
	}
	for _, p := range parts {
		at, err := v.target(p.path, p.file)
		if err == nil {
			err = moveOnto(p.fd, at)
			unix.Close(at)
		}
		if err != nil {
			return nil, fail("root", p.path, err)
		}
		v.pins = append(v.pins, p.fd)
	}
	if err := v.hide(s.hidden); err != nil {
		return nil, err
	}
	return v, v.sealed()
}

// collectParts takes the mounts a root daemon made, and makes the others from the
// original tree, where they still have their own attributes.
func collectParts(old int, pieces []piece) ([]part, error) {
	parts := make([]part, 0, len(pieces))
	for _, p := range pieces {
		if p.tree >= 0 {
			parts = append(parts, part{p, p.tree})
			continue
		}
		at, err := openBeneath(old, p.path, 0)
		if err != nil {
			return nil, fail("root", p.path, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			return nil, fail("root", p.path, err)
		}
		if st.Dev != p.dev || st.Ino != p.ino {
			return nil, fail("root", p.path, errChanged)
		}
		fd, err := cloneTree(at, true, pieceAttrs(p.readOnly))
		unix.Close(at)
		if err != nil {
			return nil, fail("root", p.path, err)
		}
		parts = append(parts, part{p, fd})
	}
	return parts, nil
}

func pieceAttrs(readOnly bool) uint64 {
	if readOnly {
		return noSuid | noDev | readOnlyAttr
	}
	return noSuid | noDev
}

// enterRoot stacks the new root over the old one, pivots, and lets go of the old.
func enterRoot(root int) error {
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fail("view", "/", err)
	}
	if err := unix.Fchdir(root); err != nil {
		return fail("view", "/", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fail("view", "pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fail("view", "old root", err)
	}
	return fail("view", "/", unix.Chdir("/"))
}

// buildTemporary covers what is private to each command: /tmp, /var/tmp and all of
// /run, in which HOME and the generated account files live.
func (v *view) buildTemporary(s *setup) error {
	size := "size=" + strconv.FormatInt(s.tmpBytes, 10)
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		err := v.tmpfs(dir, noSuid|noDev, "mode=1777", size, "nr_inodes=262144")
		if dir == "/var/tmp" && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP)) {
			continue
		}
		if err != nil {
			return fail("tmp", dir, err)
		}
	}
	resolver := resolverFor(s.network.Mode)
	if err := v.tmpfs("/run", noSuid|noDev, "mode=0755", "size=1m"); err != nil {
		return fail("home", "/run", err)
	}
	v.seal = append(v.seal, "/run")
	for _, dir := range []string{helperDir, homeDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fail("home", dir, err)
		}
	}
	if err := os.Mkdir(emptyDir, 0); err != nil {
		return fail("hidden", emptyDir, err)
	}
	if err := os.WriteFile(emptyFile, nil, 0); err != nil {
		return fail("hidden", emptyFile, err)
	}
	if err := v.tmpfs(homeDir, noSuid|noDev, "mode=0700", size, "nr_inodes=262144"); err != nil {
		return fail("home", homeDir, err)
	}
	if err := v.show(resolver); err != nil {
		return err
	}
	for name, text := range map[string]string{"passwd": s.passwd, "group": s.group} {
		file := slashpath.Join(helperDir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fail("accounts", file, err)
		}
		// where there is no such plain file, names are looked up elsewhere anyway
		if err := v.bind(file, "/etc/"+name, readOnlyAttr|noSuid|noDev|noExec); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ELOOP) {
			return fail("accounts", "/etc/"+name, err)
		}
	}
	return nil
}
