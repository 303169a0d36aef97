//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"
)

func TestStatIsReadWhateverTheProcessIsCalled(t *testing.T) {
	for _, name := range []string{"sh", "a b", ")", ") R 1 2 3 (", ""} {
		s, err := parseStat("42 (" + name + ") S 7 42 42 0 -1 4194304 100 0 0 0 150 50 25 75 20 0 1 0 100 0 0")
		if err != nil || s.parent != 7 || s.own != 2 || s.cpu != 3 {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
	}
	for _, text := range []string{"", "42 (sh) S", "42 (sh) S x 42 42 0 -1 4194304 100 0 0 0 150 50 25 75 20", "42 (sh) S 7 42 42 0 -1 4194304 100 0 0 0 a 50 25 75 20"} {
		if s, err := parseStat(text); err == nil {
			t.Errorf("%q is %+v", text, s)
		}
	}
}

func TestATreeHasDescendantsAndNobodyElse(t *testing.T) {
	child := grouped(exec.Command("cat"))
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = child.Wait() }()
	all := tree(os.Getpid())
	for pid, want := range map[int]bool{os.Getpid(): true, child.Process.Pid: true, os.Getppid(): false, 1: false} {
		if _, in := all[pid]; in != want {
			t.Errorf("process %d is in the tree: %v", pid, in)
		}
	}
}
