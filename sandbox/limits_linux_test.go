package sandbox

import (
	"strings"
	"syscall"
	"testing"
)

func TestLimitsStopTheCommand(t *testing.T) {
	l := newLauncher(t, Options{})
	out, err := runCommand(t, l, Policy{Mode: ReadOnly, Limits: Limits{FileBytes: 1 << 20}},
		Command{Argv: []string{"dd", "if=/dev/zero", "of=/tmp/f", "bs=1M", "count=2"}})
	if err != nil || out.Signal != syscall.SIGXFSZ {
		t.Errorf("file size: %+v, %v; want SIGXFSZ", out, err)
	}
	out, err = runCommand(t, l, Policy{Mode: ReadOnly, Limits: Limits{CPUSeconds: 1}}, Command{Argv: []string{"sh", "-c", "while :; do :; done"}})
	if err != nil || out.Signal != syscall.SIGKILL && out.Signal != syscall.SIGXCPU {
		t.Errorf("processor time: %+v, %v; want SIGXCPU or SIGKILL", out, err)
	}
	out = runShell(t, l, Policy{Mode: ReadOnly, Limits: Limits{Processes: 60}}, "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done")
	if out.ExitCode == 0 || !strings.Contains(strings.ToLower(out.stderr), "fork") || out.Strays < 10 {
		t.Errorf("processes: %+v; want a failed fork and what was started as strays", out)
	}
}

// TestCompilerWorksInside is about a program that wants /tmp, exec there and /dev/null.
func TestCompilerWorksInside(t *testing.T) {
	l := newLauncher(t, Options{})
	out := runShell(t, l, Policy{Mode: ReadOnly}, `command -v cc > /dev/null || { echo none; exit; }
cd /tmp && printf '#include <stdio.h>\nint main(void){return puts("built")<0;}\n' > m.c && cc -pipe -o m m.c && ./m`)
	switch {
	case out.stdout == "none\n":
		t.Skip("needs a C compiler")
	case out.stdout != "built\n":
		t.Errorf("cc: %q %q", out.stdout, out.stderr)
	}
}
