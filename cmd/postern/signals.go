package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/postern-relay/postern/wire"
)

// forwarded are the signals that reach the command instead of this process.
var forwarded = map[os.Signal]wire.Signal{
	syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT",
}

// signals takes this process's signals until stop. A write to a closed pipe becomes an
// error instead of a death, so that the command can be told.
type signals struct {
	c    chan os.Signal
	done chan struct{}
	once sync.Once
}

func watchSignals() *signals {
	s := &signals{c: make(chan os.Signal, 16), done: make(chan struct{})}
	signal.Notify(s.c, append(platformSignals(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)...)
	ignorePipe()
	return s
}

func (s *signals) stop() {
	s.once.Do(func() {
		signal.Stop(s.c)
		close(s.done)
	})
}

// untilStarted gives up starting at the first signal that would end a program. The function it
// returns ends that, and says which it was.
func (s *signals) untilStarted(cancel context.CancelCauseFunc) func() *syscall.Signal {
	stop, stopped := make(chan struct{}), make(chan *syscall.Signal)
	go func() {
		for {
			select {
			case sig := <-s.c:
				if n, ok := sig.(syscall.Signal); ok && forwarded[sig] != "" {
					cancel(context.Canceled)
					<-stop
					stopped <- &n
					return
				}
			case <-stop:
				stopped <- nil
				return
			}
		}
	}()
	return func() *syscall.Signal {
		close(stop)
		return <-stopped
	}
}

// forward passes signals on until stop. A second interrupt ends the command, also one that
// ignores the first.
func (s *signals) forward(ctx context.Context, p wire.ExecProcess, t *terminal) {
	go func() {
		interrupts := 0
		for {
			select {
			case sig := <-s.c:
				if isResize(sig) {
					_ = p.Resize(ctx, t.size()) // an ended command has no size
					continue
				}
				if sig == syscall.SIGINT {
					interrupts++
				}
				// A signal that does not arrive finds the command ended, or the link, which
				// Wait reports.
				if interrupts > 1 {
					_ = p.Terminate(ctx, 0)
				} else {
					_ = p.Signal(ctx, remoteSignal(sig))
				}
			case <-s.done:
				return
			}
		}
	}()
}

func remoteSignal(sig os.Signal) wire.Signal {
	if name := forwarded[sig]; name != "" {
		return name
	}
	return platformName(sig)
}
