//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/postern-relay/postern/sandbox"
)

// between sandboxes the kernel takes old namespaces down, which it tells nobody about.
const sandboxPause = 20 * time.Millisecond

// takeSandbox times a start of true in a sandbox that was made ahead, beside a plain fork and exec, in this process.
func takeSandbox(ctx context.Context, b *bench) error {
	workspace := filepath.Join(b.dir, "sandboxed")
	if err := os.Mkdir(workspace, 0o755); err != nil {
		return err
	}
	launcher, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		return err
	}
	defer launcher.Close()
	policy := sandbox.Policy{Mode: sandbox.WorkspaceWrite, Roots: []string{workspace}}
	command := sandbox.Command{Argv: []string{"/bin/true"}}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()

	sandboxed := func() error {
		p, err := launcher.Start(ctx, policy, command)
		if err != nil {
			return err
		}
		r, err := p.Wait()
		if err == nil && (r.ExitCode != 0 || r.Signal != 0) {
			err = fmt.Errorf("true ended with %+v", r)
		}
		return err
	}
	if err := sandboxed(); err != nil { // from now on some are made ahead
		return err
	}
	m := &measure{
		name: sandboxStart, path: loopback, quantities: inMilliseconds, rounds: b.rounds(10),
		about: "`true` from the request to its exit status, in the executor's place: package sandbox with a sandbox of the policy ready, and a plain fork and exec",
		contenders: []contender{
			{name: posternSandbox, sample: func(ctx context.Context) ([]float64, error) {
				before := launcher.Stats()
				figures, err := timed(sandboxed)
				if err != nil {
					return nil, err
				}
				if launcher.Stats().Warm == before.Warm {
					return nil, fmt.Errorf("no sandbox was ready")
				}
				if err := await(ctx, "the next sandboxes", startPatience, func() bool { return launcher.Stats().Ready >= 2 }); err != nil {
					return nil, err
				}
				return figures, pause(ctx, sandboxPause)
			}},
			{name: forkExec, peer: true, sample: func(context.Context) ([]float64, error) {
				return timed(func() error { return forkTrue(null) })
			}},
		},
	}
	if err := await(ctx, "a sandbox", startPatience, func() bool { return launcher.Stats().Ready > 0 }); err != nil {
		return err
	}
	return b.take(ctx, m)
}

func forkTrue(null *os.File) error {
	fd := null.Fd()
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{fd, fd, fd}})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("true: status %#x", status)
	}
	return err
}
