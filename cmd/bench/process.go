//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// How long a process has to end when it is told to, and a daemon to say that it is there.
const (
	endPatience   = 3 * time.Second
	startPatience = 30 * time.Second
)

// grouped makes a command one that ends with this program, however that ends: it has a group of its own, which is
// killed as a whole, and the kernel kills it should nobody else be left to.
func grouped(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// prepare is grouped for a command with a context, at whose end all of it is killed.
func prepare(cmd *exec.Cmd) *exec.Cmd {
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = endPatience
	return grouped(cmd)
}

// runOnce runs a command to its end. Its error has what the command said.
func runOnce(cmd *exec.Cmd) error {
	var said strings.Builder
	if cmd.Stderr == nil {
		cmd.Stderr = &said
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}

// daemon is a process that runs until it is stopped.
type daemon struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser // nil unless asked for
	lines chan string    // the first lines of stdout; closed at its end
	log   string         // file with its stderr
	ended chan struct{}
}

// startDaemon starts a command with its stderr in a file. Its input, where it has one, stays open until it is stopped.
func startDaemon(cmd *exec.Cmd, log string, input bool) (*daemon, error) {
	d := &daemon{cmd: grouped(cmd), lines: make(chan string, 1<<14), log: log, ended: make(chan struct{})}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stderr = file
	if input {
		if d.stdin, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = in
	err = cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	go func() {
		defer out.Close()
		defer close(d.lines)
		for text := bufio.NewScanner(out); text.Scan(); {
			select {
			case d.lines <- text.Text():
			default: // nobody wants so many
			}
		}
	}()
	go func() {
		_ = cmd.Wait() // how it ended is of no interest, its log is
		close(d.ended)
	}()
	return d, nil
}

// line waits for the next line of stdout.
func (d *daemon) line(ctx context.Context) (string, error) { return d.lineWithin(ctx, startPatience) }

// lineWithin waits for it so long.
func (d *daemon) lineWithin(ctx context.Context, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case line, ok := <-d.lines:
		if ok {
			return line, nil
		}
	case <-d.ended:
	case <-ctx.Done():
	}
	return "", d.failed("it does not say that it is ready")
}

// failed is an error with the end of the process's own words.
func (d *daemon) failed(what string) error {
	text, _ := os.ReadFile(d.log) // only for the message
	return fmt.Errorf("%s: %s: %s", d.cmd.Args[0], what, text[max(0, len(text)-2000):])
}

// signal sends a signal to the process and its group.
func (d *daemon) signal(s syscall.Signal) { _ = syscall.Kill(-d.cmd.Process.Pid, s) }

// stop ends the process and what is left of its group.
func (d *daemon) stop() {
	if d.stdin != nil {
		d.stdin.Close()
	}
	select {
	case <-d.ended:
	default:
		d.signal(syscall.SIGTERM)
	}
	timer := time.NewTimer(endPatience)
	defer timer.Stop()
	select {
	case <-d.ended:
	case <-timer.C:
	}
	d.kill()
}

// kill ends it at once.
func (d *daemon) kill() {
	d.signal(syscall.SIGKILL)
	<-d.ended
}

// await asks until the answer is yes.
func await(ctx context.Context, what string, patience time.Duration, yes func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%s: not after %v", what, patience)
		case <-tick.C:
		}
	}
	return nil
}

// pause waits for what nobody tells.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
