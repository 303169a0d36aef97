//go:build linux

package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits until a time has come. It fails when its context has ended.
type waiter func(due time.Time) error

// byTimer waits as programs do. The runtime sleeps for its timers in whole milliseconds, so it may be one late.
func byTimer(ctx context.Context) waiter {
	return func(due time.Time) error { return pause(ctx, time.Until(due)) }
}

// alarm is late by less than a tenth of a millisecond: a forwarder that is late by one adds a tenth to a way of ten. It is for
// one goroutine, which closes it.
type alarm struct {
	clock *os.File // a timerfd, whose time is an event to the runtime's poller, and not a timer
	raw   func(func(fd uintptr)) error
	stop  func() bool
}

func newAlarm(ctx context.Context) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{clock: os.NewFile(uintptr(fd), "alarm")}
	raw, err := a.clock.SyscallConn()
	if err != nil {
		a.clock.Close()
		return nil, err
	}
	a.raw = raw.Control
	a.stop = context.AfterFunc(ctx, func() { _ = a.clock.SetReadDeadline(time.Unix(1, 0)) })
	return a, nil
}

func (a *alarm) close() {
	a.stop()
	a.clock.Close()
}

// until is a waiter.
func (a *alarm) until(due time.Time) error {
	left := time.Until(due)
	if left <= 0 {
		return nil
	}
	var err error
	controlled := a.raw(func(fd uintptr) {
		err = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}, nil)
	})
	if controlled != nil {
		return controlled
	}
	if err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err = a.clock.Read(expirations[:])
	return err
}
