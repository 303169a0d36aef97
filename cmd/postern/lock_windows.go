package main

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// awaitFile takes the lock, which ends with the handle, once nobody else has it.
func awaitFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

// lockFile takes the lock, which ends with the handle, at once or not at all.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); err != nil {
		return errors.New("it holds the lock")
	}
	return nil
}
