//go:build unix

package keys

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// modesMatter says that a file's mode tells who can read it.
const modesMatter = true

const openNonblock = syscall.O_NONBLOCK

// syncDir brings a new or renamed entry of dir to disk.
func syncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // the file system has no such operation and needs none
	}
	return err
}

// lockFolderOf makes other processes that change a file in the same folder wait until unlock. The lock is on the folder, so
// that no lock file is left behind, and ends with the process.
func lockFolderOf(path string) (unlock func(), err error) {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(folder.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { _ = folder.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			_ = folder.Close()
			return nil, &os.PathError{Op: "lock", Path: filepath.Dir(path), Err: err}
		}
	}
}

// keepOwner gives file the mode and owner of the file that it will replace.
func keepOwner(file *os.File, replaced os.FileInfo) error {
	if err := file.Chmod(replaced.Mode().Perm()); err != nil {
		return err
	}
	old, ok := replaced.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if now, ok := info.Sys().(*syscall.Stat_t); ok && now.Uid == old.Uid && now.Gid == old.Gid {
		return nil
	}
	return file.Chown(int(old.Uid), int(old.Gid))
}
