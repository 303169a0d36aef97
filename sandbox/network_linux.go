package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// openNetwork makes a new network namespace usable: its loopback, and the daemon's listener under NetworkProxy. A
// listening socket stays in its namespace whoever holds it, so that the daemon accepts from inside what it dials
// outside, and no bridge, path or secret is needed.
func openNetwork(mode NetworkMode) error {
	if err := loopbackUp(); err != nil {
		return fail("loopback", "", err)
	}
	if mode != NetworkProxy {
		return nil
	}
	fd, err := listenProxy()
	if err != nil {
		return fail("proxy listener", ProxyAddress, err)
	}
	defer unix.Close(fd)
	return fail("proxy listener", ProxyAddress, sendMessage(controlFD, 0, msgListener, nil, fd))
}

// listenProxy listens on ProxyAddress in the network of this process, before package net is of use to a helper.
func listenProxy() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// proxyListener is the descriptor that came from inside, which it takes over. Package net is for whoever accepts: its
// initialization would delay every helper of this package.
func proxyListener(fd int) (*os.File, error) {
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err == nil && listens == 0 {
		err = unix.EINVAL
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sandbox-proxy"), nil
}

// endListening closes a listener, and ends whoever accepts on a copy of it.
func endListening(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	f.Close()
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}
