//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitFile takes the lock, which ends with the descriptor, once nobody else has it.
func awaitFile(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockFile takes the lock, which ends with the descriptor, at once or not at all.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("it holds the lock")
	}
	return err
}
