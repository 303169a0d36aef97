package sandbox

import (
	"errors"
	"io"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The second life of an init before its command runs. Most of it may take long, since
// the sandbox may have been made ahead; what follows the command's arrival is quick.

// rehearse runs the way to a command once, up to an exec that must fail. The memory
// that it takes is then there when the command comes, which comes a third sooner for
// it.
func rehearse() {
	c, err := decodeRun((&run{argv: []string{"/"}, env: []string{"PATH=/"}, dir: "/"}).encode())
	if err != nil {
		return
	}
	_, _ = syscall.ForkExec(c.argv[0], c.argv, &syscall.ProcAttr{Env: c.env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
}

// awaitCommand waits, in a sandbox that was made ahead for long.
func awaitCommand() (*run, []int, error) {
	kind, body, fds, err := recvLarge(controlFD)
	if errors.Is(err, io.EOF) {
		unix.Exit(0) // the daemon has no use for this one any more
	}
	if err != nil {
		return nil, nil, err
	}
	if kind != msgRun || len(fds) != 3 {
		return nil, nil, errors.New("not a command")
	}
	c, err := decodeRun(body)
	return c, fds, err
}

// unpin lets go of the pins of the view, which count only while the sandbox waits.
func unpin(fds []string) {
	for _, s := range fds {
		if fd, err := strconv.Atoi(s); err == nil && fd > controlFD {
			unix.Close(fd)
		}
	}
}

// awaitGo waits until the daemon has made sure that this sandbox is as good as a new
// one.
func awaitGo() {
	kind, _, fds, err := recvMessage(controlFD, 0)
	if err != nil || kind != msgGo || len(fds) != 0 {
		unix.Exit(0)
	}
}

// enter makes what can be made ready without running anything: it changes to the
// command's directory and finds its program.
func enter(c *run) (path string, err error) {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "", fail("descriptors", "", err)
	}
	if err := unix.Chdir(c.dir); err != nil {
		return "", &CommandError{Op: "chdir", Path: c.dir, Err: err}
	}
	return lookPath(c.argv[0], c.env)
}

// reserve gives the runtime free memory for what the init still has to do: its own
// share of a memory limit may be used up by then.
func reserve() {
	for range 128 {
		reserved = make([]byte, maxMessage)
	}
	runtime.KeepAlive(reserved)
	reserved = nil
	runtime.GC()
}

var reserved []byte // keeps the compiler from leaving it out
