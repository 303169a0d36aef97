//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/sandbox"
)

// asBench makes the test binary the program.
const asBench = "POSTERN_BENCH_TEST_MAIN"

func TestMain(m *testing.M) {
	sandbox.Init()
	if os.Getenv(asBench) != "" || os.Getenv(crowdVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// benchCommand is the program in a process of its own, whose temporary folders are in tmp.
func benchCommand(t *testing.T, tmp string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command, to build postern")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asBench+"=1", "TMPDIR="+tmp)
	return cmd
}

// left is what is left of a run: files, and processes that run from there.
func left(tmp string) (all []string) {
	all, _ = filepath.Glob(filepath.Join(tmp, "*"))
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), tmp) {
			all = append(all, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return all
}

// reportIn is what -json has written.
func reportIn(t *testing.T, file string) (r report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAShortRunMeasuresEverythingAndLeavesNothing(t *testing.T) {
	if os.Getenv("POSTERN_BENCH_RUN") == "" {
		t.Skip("set POSTERN_BENCH_RUN=1: it takes half a minute")
	}
	tmp, results := t.TempDir(), t.TempDir()
	figures, page := filepath.Join(results, "figures.json"), filepath.Join(results, "page.md")
	var said bytes.Buffer
	cmd := benchCommand(t, tmp, "-quick", "-ssh=false", "-json", figures, "-out", page)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	r := reportIn(t, figures)
	for _, name := range measureNames {
		if !slices.ContainsFunc(r.Measures, func(m measureReport) bool { return m.Name == name && len(m.Rows) > 0 && m.Rows[0].Value.Median > 0 }) {
			t.Errorf("%s has no figures", name)
		}
	}
	written, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(written), strings.TrimSpace(string(out))) {
		t.Errorf("the page has another table than stdout, %v", err)
	}
	if l := left(tmp); len(l) > 0 {
		t.Errorf("left behind: %v", l)
	}
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	if os.Getenv("POSTERN_BENCH_RUN") == "" {
		t.Skip("set POSTERN_BENCH_RUN=1: it brings everything up")
	}
	tmp := t.TempDir()
	cmd := benchCommand(t, tmp, "-rounds", "10000", "-only", warmExec)
	progress, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for buf := make([]byte, 1024); !strings.Contains(said.String(), "rounds of"); {
		n, err := progress.Read(buf)
		if err != nil {
			t.Fatalf("%v\n%s", err, said.String())
		}
		said.Write(buf[:n])
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it says that all went well")
	}
	if err := await(t.Context(), "everything is gone", 20*time.Second, func() bool { return len(left(tmp)) == 0 }); err != nil {
		t.Errorf("%v: %v", err, left(tmp))
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-only", "warm"},
		{"-idle", "0"},
		{"-idle", "many"},
		{"-rounds", "0"},
		{"-delay", "-1s"},
		{"-nothing"},
		{"word"},
	} {
		var said bytes.Buffer
		if o, err := parseOptions(args, &said); err == nil {
			t.Errorf("%q is taken as %+v", args, o)
		}
	}
}
