package sandbox

import (
	"errors"
	"os"
	slashpath "path"
	"slices"

	"golang.org/x/sys/unix"
)

// reducedRule grants access to a file, or to a folder and all below it.
type reducedRule struct {
	path   string
	access uint64
	// pinned: it must exist and be the file that the daemon saw
	pinned   bool
	dev, ino uint64
	uid      uint32 // of the owner; not sent
}

// maxReducedRules bounds the work for hidden paths in large folders.
const maxReducedRules = 16 << 10

// readable collects what may be read. Landlock can only grant: what is hidden is left
// out by granting its neighbours one by one, and what comes to lie beside it later is
// not granted either.
type readable struct {
	hidden  []string
	minimal bool
	rules   []reducedRule
}

// machine grants reading everything but what is hidden and what the complete sandbox
// has of its own: temporary folders and devices.
func (t *readable) machine() error {
	closed := append([]string{"/dev"}, t.hidden...)
	// the daemon's own temporary folder holds the private folders of other commands
	for _, d := range []string{"/tmp", "/var/tmp", os.TempDir()} {
		if real, err := realPath(d); err == nil {
			closed = append(closed, real)
		}
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return &SetupError{Stage: "view", Path: "/", Err: err}
	}
	for _, e := range entries {
		if t.minimal && !systemDirs[e.Name()] {
			continue
		}
		if err := t.grant("/"+e.Name(), e.Type(), closed); err != nil {
			return err
		}
	}
	t.rules = append(t.rules, reducedRule{path: "/dev", access: unix.LANDLOCK_ACCESS_FS_READ_DIR})
	for _, d := range deviceNodes {
		t.rules = append(t.rules, reducedRule{path: "/dev/" + d, access: llFile})
	}
	return nil
}

// grant grants path, or what of its entries is not closed.
func (t *readable) grant(path string, kind os.FileMode, closed []string) error {
	inside := false
	for _, c := range closed {
		if within(path, c) {
			return nil
		}
		inside = inside || within(c, path)
	}
	if kind&os.ModeSymlink != 0 {
		return nil // its target is granted, or not, where it is
	}
	if !inside {
		if len(t.rules) >= maxReducedRules {
			return &SetupError{Stage: "landlock", Path: path, Err: errors.New("hidden paths have too many neighbours: hide the folders that they are in")}
		}
		t.rules = append(t.rules, reducedRule{path: path, access: llLook})
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // nothing in it is granted
	}
	for _, e := range entries {
		if err := t.grant(slashpath.Join(path, e.Name()), e.Type(), closed); err != nil {
			return err
		}
	}
	return nil
}

// fileRights are those that a rule for something else than a folder may have.
const fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | llFile

// add opens the file of a rule and puts it into a ruleset.
func (r *reducedRule) add(ruleset int, rights uint64) error {
	fd, err := openPlain(r.path)
	if err != nil {
		if r.pinned {
			return err
		}
		return nil // closed to the command, or gone: nothing to grant
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if r.pinned && (st.Dev != r.dev || st.Ino != r.ino) {
		return errChanged
	}
	access := r.access & rights
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= fileRights
	}
	if access == 0 {
		return nil
	}
	err = addRule(ruleset, fd, access)
	if err != nil && !r.pinned && slices.Contains([]error{unix.EBADFD, unix.EINVAL}, err) {
		return nil // of a file system without files, such as sockets
	}
	return err
}
