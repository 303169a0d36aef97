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
	s.take()
	ignorePipe()
	return s
}

func (s *signals) take() {
	signal.Notify(s.c, append(platformSignals(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)...)
}

func (s *signals) stop() {
	s.once.Do(func() {
		signal.Stop(s.c)
		close(s.done)
	})
}

// untilFirst calls cancel at the first signal that would end a program; a second one ends this one
// at once. The function it returns ends that, and says which it was.
func (s *signals) untilFirst(cancel func()) func() *syscall.Signal {
	stop, stopped := make(chan struct{}), make(chan *syscall.Signal)
	go func() {
		for {
			select {
			case sig := <-s.c:
				if n, ok := sig.(syscall.Signal); ok && forwarded[sig] != "" {
					signal.Stop(s.c)
					cancel()
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

// underSignals does something that a signal ends, with the exit code of the signal.
func underSignals(do func(context.Context) error) error {
	s := watchSignals()
	defer s.stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first := s.untilFirst(cancel)
	err := do(ctx)
	if sig := first(); sig != nil && err != nil {
		return &exitError{128 + int(*sig), ""}
	}
	return err
}

// forward passes signals on until they stop. A second interrupt ends the command, also one that
// ignores the first. While the link is down signals wait, and a second one gives up. A terminal
// in raw mode that hangs up takes its user away.
func (c *console) forward(ctx context.Context, cancel context.CancelCauseFunc, p wire.ExecProcess) {
	// Apart from the loop, since a request takes as long as the link is down.
	requests := make(chan func(), 16)
	go func() {
		for request := range requests {
			request()
		}
	}()
	go func() {
		defer close(requests)
		interrupts, waiting := 0, 0
		for {
			var sig os.Signal
			select {
			case sig = <-c.signals.c:
			case <-c.signals.done:
				return
			}
			switch {
			case isResize(sig):
				sendLater(requests, func() { _ = p.Resize(ctx, c.terminal.size()) }) // an ended command has no size
				continue
			case sig == syscall.SIGHUP && c.notes.raw.Load():
				cancel(errLeft)
				continue
			case sig == syscall.SIGINT:
				interrupts++
			}
			if waiting = c.link.count(waiting); waiting > 1 {
				cancel(errGaveUp)
				continue
			}
			// A signal that does not arrive finds the command ended, or the link, which the
			// log reports.
			if interrupts > 1 {
				sendLater(requests, func() { _ = p.Terminate(ctx, 0) })
			} else {
				sendLater(requests, func() { _ = p.Signal(ctx, remoteSignal(sig)) })
			}
		}
	}()
}

// sendLater drops what nobody could have meant: more requests than there is room for.
func sendLater(requests chan<- func(), request func()) {
	select {
	case requests <- request:
	default:
	}
}

func remoteSignal(sig os.Signal) wire.Signal {
	if name := forwarded[sig]; name != "" {
		return name
	}
	return platformName(sig)
}
