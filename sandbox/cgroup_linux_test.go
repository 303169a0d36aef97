package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// groupsHere are the cgroups that this machine gives this process, nil if none.
func groupsHere(t *testing.T) *cgroups {
	t.Helper()
	c := findCgroups()
	if c.version == 0 {
		t.Skipf("needs a cgroup hierarchy that this user may use: %s", c.why)
	}
	return c
}

// runLimited runs a script under limits and returns its output and result.
func runLimited(t *testing.T, l *Launcher, limits Limits, script string) (string, Result) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := l.Start(ctx, Policy{Mode: ReadOnly, Limits: limits}, Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return string(out), res
}

func newLimitLauncher(t *testing.T) *Launcher {
	t.Helper()
	l, err := NewLauncher(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// memoryBomb fills the private /tmp and a variable, whichever is stopped first.
const memoryBomb = `x=0123456789012345678901234567890123456789; while :; do x="$x$x"; done`

func TestMemoryLimitEndsABombAndIsNamed(t *testing.T) {
	c := groupsHere(t)
	if c.parents[memoryController] == "" {
		t.Skip("needs the memory controller")
	}
	l := newLimitLauncher(t)
	out, res := runLimited(t, l, Limits{MemoryBytes: 64 << 20}, "("+memoryBomb+"); echo code $?")
	if !res.Hit.Memory {
		t.Errorf("the memory limit is not named: %+v, output %q", res, out)
	}
	if res.Signal == 0 && !strings.Contains(out, "code 137") {
		t.Errorf("the bomb was not killed: %+v, output %q", res, out)
	}
	out, res = runLimited(t, l, Limits{MemoryBytes: 64 << 20}, "echo fine")
	if out != "fine\n" || res.Hit != (LimitsHit{}) {
		t.Errorf("the next command: %q, %+v", out, res)
	}
}

func TestProcessLimitStopsAForkBombAndIsNamed(t *testing.T) {
	c := groupsHere(t)
	if c.parents[pidsController] == "" {
		t.Skip("needs the pids controller")
	}
	l := newLimitLauncher(t)
	script := `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40; do sleep 60 & done; echo all`
	out, res := runLimited(t, l, Limits{Processes: 10}, script)
	if !res.Hit.Processes || strings.Contains(out, "all") && res.Strays > 30 {
		t.Errorf("40 processes under a limit of 10: %+v, output %q", res, out)
	}
	if res.Strays == 0 {
		t.Errorf("nothing was left to kill: %+v, output %q", res, out)
	}
}

// throttled is how many periods the command spent waiting for its share.
func (g *group) throttled() uint64 {
	return counter(g.dirs[cpuController], "cpu.stat", "nr_throttled")
}

func TestProcessorShareIsHeld(t *testing.T) {
	c := groupsHere(t)
	if c.parents[cpuController] == "" {
		t.Skip("needs the cpu controller")
	}
	l := newLimitLauncher(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// How long a piece of work takes differs between machines, so it works until it was held back.
	p, err := l.Start(t.Context(), Policy{Mode: ReadOnly, Limits: Limits{CPUMilli: 100, CPUSeconds: 20}},
		Command{Argv: []string{"/bin/sh", "-c", "while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; echo; done"}, Stdout: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	for line := make([]byte, 1); p.group.throttled() == 0; {
		if _, err := r.Read(line); err != nil {
			t.Fatalf("a busy command with a tenth of a processor was never held back: %v", err)
		}
	}
	p.Kill()
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestProcessorTimeAndFileSizeAreNamed(t *testing.T) {
	l := newLimitLauncher(t)
	_, res := runLimited(t, l, Limits{CPUSeconds: 1}, "while :; do :; done")
	if res.Signal != unix.SIGXCPU || !res.Hit.CPUTime {
		t.Errorf("an endless loop of one second: %+v", res)
	}
	_, res = runLimited(t, l, Limits{FileBytes: 4096}, "exec head -c 100000 /dev/zero > /tmp/file")
	if res.Signal != unix.SIGXFSZ || !res.Hit.FileSize {
		t.Errorf("a file past its limit: %+v", res)
	}
}

func TestDiskFillEndsCleanly(t *testing.T) {
	l := newLimitLauncher(t)
	p, err := l.Start(t.Context(), Policy{Mode: ReadOnly, TmpBytes: 1 << 20}, Command{Argv: []string{"/bin/sh", "-c", "head -c 9000000 /dev/zero > /tmp/file"}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.ExitCode == 0 {
		t.Errorf("writing 9 MB to a folder of 1 MiB: %+v, %v", res, err)
	}
}

func TestMemoryLimitWithoutGroupsBoundsEachProcess(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory is over a limit of one process")
	}
	l := newLimitLauncher(t)
	l.cgroupsOnce.Do(func() { l.cgroups = &cgroups{parents: map[string]string{}, why: "switched off by the test"} })
	out, res := runLimited(t, l, Limits{MemoryBytes: 64 << 20}, memoryBomb)
	if res.ExitCode == 0 && res.Signal == 0 {
		t.Errorf("the bomb ended well: %+v, output %q", res, out)
	}
	_, err := l.Start(t.Context(), Policy{Mode: ReadOnly, Limits: Limits{CPUMilli: 100}}, Command{Argv: []string{"true"}})
	var missing *UnsupportedError
	if !errors.As(err, &missing) || missing.Missing[0].Name != "cpu limit" {
		t.Errorf("a processor share without cgroups: %v, want it refused by name", err)
	}
}

func TestGroupsAreRemovedWithTheirCommands(t *testing.T) {
	c := groupsHere(t)
	l := newLimitLauncher(t)
	limits := Limits{MemoryBytes: 256 << 20, Processes: 100, CPUMilli: 10_000}
	for range 3 {
		if _, res := runLimited(t, l, limits, "sleep 60 & true"); res.ExitCode != 0 {
			t.Fatalf("%+v", res)
		}
	}
	_, err := l.Start(t.Context(), Policy{Mode: ReadOnly, Limits: limits}, Command{Argv: []string{"/no/such/command"}})
	if err == nil {
		t.Fatal("a missing command started")
	}
	l.Close() // waits for everything
	for _, parent := range c.parents {
		left, err := filepath.Glob(filepath.Join(parent, l.cgroups.prefix+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("groups left behind: %q, %v", left, err)
		}
	}
}
