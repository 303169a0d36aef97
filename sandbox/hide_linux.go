package sandbox

import (
	"errors"
	slashpath "path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hide covers paths with an empty file or directory that nobody can open. It runs
// last, so that hiding wins over a root.
func (v *view) hide(paths []string) error {
	paths = slices.Clone(paths)
	slices.Sort(paths)
	last := ""
	for _, p := range paths {
		if within(p, "/run") || last != "" && within(p, last) {
			continue
		}
		at, where, err := v.reachable(p)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return fail("hidden", p, err)
		}
		v.pins = append(v.pins, at)
		if err := v.cover(at); err != nil {
			return fail("hidden", where, err)
		}
		last = where
	}
	return nil
}

// reachable opens path, or the nearest directory above it that can be opened: if
// the way there is closed to the command now, it is closed for good.
func (v *view) reachable(path string) (int, string, error) {
	for {
		at, err := openBeneath(v.root, path, 0)
		if !errors.Is(err, unix.EACCES) || path == "/" {
			return at, path, err
		}
		path = slashpath.Dir(path)
	}
}

func (v *view) cover(at int) error {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	from := emptyFile
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		from = emptyDir
	}
	src, err := openBeneath(v.root, from, 0)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	tree, err := cloneTree(src, false, readOnlyAttr|noSuid|noDev|noExec)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return moveOnto(tree, at)
}

// within tells whether path is dir or lies below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}
