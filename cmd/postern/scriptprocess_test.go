//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// scriptProcess is a process that runs beside a script.
type scriptProcess struct {
	name   string
	cmd    *exec.Cmd
	daemon bool          // must end with 0 on TERM
	ended  chan struct{} // closed when it has ended; then err may be read
	err    error
	line   chan string // the first line of its stdout
	log    string      // the file with its stderr
}

type processesKey struct{}

// scriptProcesses are those of one script, by name.
type scriptProcesses map[string]*scriptProcess

func processesOf(ts *testscript.TestScript) scriptProcesses {
	return ts.Value(processesKey{}).(scriptProcesses)
}

func (p *scriptProcess) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// wait reports whether it ends in time.
func (p *scriptProcess) wait() bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(patience):
		return false
	}
}

func (p *scriptProcess) stderr() string {
	text, _ := os.ReadFile(p.log) // only for a message
	return string(text)
}

// endAll ends what still runs: daemons as an operator would.
func (s scriptProcesses) endAll() error {
	var failed []error
	for _, p := range s {
		if !p.hasEnded() {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
		}
	}
	for _, p := range s {
		if !p.wait() {
			failed = append(failed, fmt.Errorf("%s does not end on TERM:\n%s", p.name, p.stderr()))
			_ = p.cmd.Process.Kill() // the same
			<-p.ended
		} else if p.daemon && p.err != nil {
			failed = append(failed, fmt.Errorf("%s ended with %w:\n%s", p.name, p.err, p.stderr()))
		}
	}
	return errors.Join(failed...)
}

// firstLine passes writes on and tells the first line of them.
type firstLine struct {
	io.Writer
	begun bytes.Buffer
	once  sync.Once
	line  chan<- string
}

func (f *firstLine) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	f.begun.Write(p[:n])
	if line, _, ok := strings.Cut(f.begun.String(), "\n"); ok {
		f.once.Do(func() { f.line <- line })
	}
	return n, err
}

func startBeside(ts *testscript.TestScript, name string, argv []string) *scriptProcess {
	if old := processesOf(ts)[name]; old != nil && !old.hasEnded() {
		ts.Fatalf("%s runs already", name)
	}
	path, err := exec.LookPath(argv[0])
	ts.Check(err)
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	defer out.Close()
	log, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	defer log.Close()
	p := &scriptProcess{name: name, ended: make(chan struct{}), line: make(chan string, 1), log: log.Name()}
	// The process writes to the files itself, but for the pipe in which the first line is seen.
	keep, err := os.OpenFile(out.Name(), os.O_WRONLY|os.O_APPEND, 0)
	ts.Check(err)
	p.cmd = &exec.Cmd{
		Path: path, Args: append([]string{filepath.Base(path)}, argv[1:]...), Dir: ts.MkAbs("."),
		Env: environ(ts), Stdout: &firstLine{Writer: keep, line: p.line}, Stderr: log,
	}
	if err := p.cmd.Start(); err != nil {
		keep.Close()
		ts.Fatalf("%v", err)
	}
	processesOf(ts)[name] = p
	go func() {
		p.err = p.cmd.Wait()
		keep.Close()
		close(p.ended)
	}()
	return p
}

// environ is the script's, as far as what runs here looks at it.
func environ(ts *testscript.TestScript) (list []string) {
	for _, k := range []string{"PATH", "HOME", "TMPDIR", "WORK", "POSTERN_HOME", "POSTERN_AGENT", "POSTERN_DRAIN", "GORACE", "GOCOVERDIR", "TERM"} {
		if v := ts.Getenv(k); v != "" {
			list = append(list, k+"="+v)
		}
	}
	return list
}

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "serve NAME CMD...")
	p := startBeside(ts, args[0], args[1:])
	p.daemon = true
	select {
	case line := <-p.line:
		ts.Setenv(p.name, line)
	case <-p.ended:
		ts.Fatalf("%s ended before its first line: %v\n%s", p.name, p.err, p.stderr())
	case <-time.After(patience):
		ts.Fatalf("%s does not print its first line:\n%s", p.name, p.stderr())
	}
}

func scriptStart(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "start NAME CMD...")
	startBeside(ts, args[0], args[1:])
}

func started(ts *testscript.TestScript, name string) *scriptProcess {
	p := processesOf(ts)[name]
	if p == nil {
		ts.Fatalf("%s was not started", name)
	}
	return p
}

func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "signal SIG NAME")
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 {
		ts.Fatalf("no signal %s", args[0])
	}
	ts.Check(started(ts, args[1]).cmd.Process.Signal(sig))
}

func scriptEnds(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 2, "ends NAME CODE")
	p := started(ts, args[0])
	if !p.wait() {
		ts.Fatalf("%s does not end:\n%s", p.name, p.stderr())
	}
	p.daemon = false // its end is checked here
	if got := codeOf(ts, p.err); args[1] == "nonzero" && got == 0 || args[1] != "nonzero" && got != number(ts, args[1]) {
		ts.Fatalf("%s: exit code %d, want %s:\n%s", p.name, got, args[1], p.stderr())
	}
}

func scriptStops(ts *testscript.TestScript, neg bool, args []string) {
	wantArgs(ts, neg, args, 1, "stops NAME")
	scriptSignal(ts, false, []string{"TERM", args[0]})
	scriptEnds(ts, false, []string{args[0], "0"})
}
