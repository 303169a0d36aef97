package sandbox

import (
	"sync"

	"golang.org/x/sys/unix"
)

// mountWatch notices changes of the host's mounts. The kernel marks an open mount
// list when it has changed, so that asking costs one call, whatever its length.
type mountWatch struct {
	mu      sync.Mutex
	fd      int
	changes uint64
}

func newMountWatch() (*mountWatch, error) {
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &mountWatch{fd: fd}, nil
}

// generation is a number that is another one after a change.
func (w *mountWatch) generation() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLPRI}}
	if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
		w.changes++ // what cannot be known counts as a change
	}
	return w.changes
}

// close must not be called while generation runs or may still be called.
func (w *mountWatch) close() { unix.Close(w.fd) }
