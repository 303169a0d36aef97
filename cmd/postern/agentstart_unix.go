//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// startAgent starts an agent that outlives this process and holds nothing of it: no terminal, no files, no folder. Should it fail, there
// is none, and every exec connects by itself.
func (h home) startAgent(alias string) {
	self, err := os.Executable()
	if err != nil {
		return
	}
	path, err := filepath.Abs(h.path)
	if err != nil {
		return
	}
	cmd := exec.Command(self, "agent", "--warm", alias)
	cmd.Args[0] = os.Args[0] // by which the program may know what it is
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "POSTERN_HOME="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.Start() == nil {
		_ = cmd.Process.Release()
	}
}
