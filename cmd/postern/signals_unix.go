//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/postern-relay/postern/wire"
)

func platformSignals() []os.Signal {
	return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
}

func platformName(sig os.Signal) wire.Signal {
	switch sig {
	case syscall.SIGUSR1:
		return "USR1"
	case syscall.SIGUSR2:
		return "USR2"
	}
	return "TERM"
}

func isResize(sig os.Signal) bool { return sig == syscall.SIGWINCH }

func ignorePipe() { signal.Ignore(syscall.SIGPIPE) }
