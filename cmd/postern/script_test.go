//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/sandbox"
)

// TestCommandLineDoesAsTheScriptsSay runs testdata/script: one script a topic, and a comment
// above each block says what it pins. Besides testscript's own commands there are:
//
//	exits CODE CMD...        runs it, and wants this exit code
//	fails CODE REGEXP CMD... the same; stdout is empty, and stderr one line of postern's that matches
//	until CODE CMD...        runs it again and again until it exits so
//	serve NAME CMD...        starts a daemon, and puts its first line into $NAME
//	start NAME CMD...        starts anything, with NAME.out and NAME.err as its output
//	signal SIG NAME          sends a signal to what was started
//	ends NAME CODE           waits until it has ended, and wants this exit code, or nonzero
//	stops NAME               sends TERM, and wants exit code 0
//	await FILE REGEXP        waits until a line of the file matches
//	running WORD, gone WORD  waits until a process, or none, has the word in its command line
//	append FILE WORD...      adds a line to a file
//	oneline FILE|stderr      wants exactly one line
//	mode MODE FILE...        wants these permissions
//
// What a script leaves running is ended by TERM, and a daemon must then exit with 0.
func TestCommandLineDoesAsTheScriptsSay(t *testing.T) {
	needSandbox(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setUpScript,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(3 * patience), // else a command that hangs waits for go test's
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits, "fails": scriptFails, "until": scriptUntil,
			"serve": scriptServe, "start": scriptStart, "signal": scriptSignal, "ends": scriptEnds, "stops": scriptStops,
			"await": scriptAwait, "running": scriptRunning, "gone": scriptGone,
			"append": scriptAppend, "oneline": scriptOneLine, "mode": scriptMode,
		},
	})
}

// needSandbox skips where no command can be run at all, and names the layer.
func needSandbox(t *testing.T) {
	t.Helper()
	if report := sandbox.Probe(t.Context(), sandbox.Options{}); !report.OK() {
		t.Skipf("needs the sandbox: %v", &sandbox.UnsupportedError{Missing: missing(report)})
	}
}

// patience bounds every wait for a condition. It says when a test has failed, not how fast
// anything is.
const patience = 60 * time.Second

// eventually tries a condition until it holds, and reports whether it did.
func eventually(holds func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return holds()
}

func setUpScript(env *testscript.Env) error {
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("XDG_CONFIG_HOME", "")
	env.Setenv("POSTERN_HOME", "")
	env.Setenv("POSTERN_AGENT", "off")                    // the scripts that want one say so, and end it
	env.Setenv("ADDRESS", relaytest.FreeAddress(env.T())) // for a relay that is started again
	env.Setenv("GORACE", raceOptions())
	started := make(scriptProcesses)
	env.Values[processesKey{}] = started
	env.Defer(func() {
		if err := started.endAll(); err != nil {
			env.T().Fatal(err)
		}
	})
	return nil
}

// raceOptions keep the race detector from holding up the exit of every process for a second.
func raceOptions() string {
	return strings.TrimSpace(os.Getenv("GORACE") + " atexit_sleep_ms=0")
}

// codeOf is the exit code behind the error of a run.
func codeOf(ts *testscript.TestScript, err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

func wantArgs(ts *testscript.TestScript, neg bool, args []string, n int, usage string) {
	if neg || len(args) < n {
		ts.Fatalf("usage: %s", usage)
	}
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "exits CODE CMD...")
	if want, got := number(ts, args[0]), codeOf(ts, ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptFails(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 3, "fails CODE REGEXP CMD...")
	scriptExits(ts, neg, append([]string{args[0]}, args[2:]...))
	out, text := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	if out != "" {
		ts.Fatalf("a failure wrote to stdout")
	}
	if !strings.HasPrefix(text, "postern: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		ts.Fatalf("want one line of postern's own on stderr")
	}
	if !regexp.MustCompile(args[1]).MatchString(text) {
		ts.Fatalf("stderr does not match %s", args[1])
	}
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "until CODE CMD...")
	want, got := number(ts, args[0]), -1
	if !eventually(func() bool {
		got = codeOf(ts, ts.Exec(args[1], args[2:]...))
		return got == want
	}) {
		ts.Fatalf("exit code %d to the last, want %d", got, want)
	}
}

func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "await FILE REGEXP")
	pattern := regexp.MustCompile("(?m)" + args[1])
	var text []byte
	if !eventually(func() bool {
		text, _ = os.ReadFile(ts.MkAbs(args[0])) // it may not exist yet
		return pattern.Match(text)
	}) {
		ts.Fatalf("%s never matches %s; it has:\n%s", args[0], args[1], text)
	}
}

func scriptRunning(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 1, "running WORD")
	if !eventually(func() bool { return len(processesWith(args[0])) > 0 }) {
		ts.Fatalf("no process has %s in its command line", args[0])
	}
}

func scriptGone(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 1, "gone WORD")
	if !eventually(func() bool { return len(processesWith(args[0])) == 0 }) {
		ts.Fatalf("still running with %s in the command line: %v", args[0], processesWith(args[0]))
	}
}

// processesWith lists the processes, but for postern's clients, with a word among their
// arguments. A process that has ended and was not waited for has none.
func processesWith(word string) (list []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f) // it may have ended just now
		argv := bytes.Split(line, []byte{0})
		if bytes.Contains(line, []byte(word)) && filepath.Base(string(argv[0])) != "postern" {
			list = append(list, fmt.Sprintf("%s %q", filepath.Base(filepath.Dir(f)), argv))
		}
	}
	return list
}

func scriptAppend(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "append FILE WORD...")
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	_, err = fmt.Fprintln(f, strings.Join(args[1:], " "))
	ts.Check(errors.Join(err, f.Close()))
}

func scriptOneLine(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 1, "oneline FILE")
	if text := ts.ReadFile(args[0]); strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		ts.Fatalf("%s is not one line:\n%s", args[0], text)
	}
}

func scriptMode(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "mode MODE FILE...")
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", name, got, args[0])
		}
	}
}
