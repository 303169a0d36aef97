//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// faults is how many of each kind a test makes: few in every run, many with POSTERN_FAULTS=long (make faults).
func faults(few, many int) int {
	if os.Getenv("POSTERN_FAULTS") == "long" {
		return many
	}
	return few
}

// While a command reads a counted input and prints it again, relays are killed and addresses change.
func TestExecSurvivesKilledRelaysAndChangedAddresses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.impatientExecutor()
	e := s.echo("exec", "-i", "box", "--", "sh", "-c", "echo run >> runs; exec cat")
	e.await()
	kills, rebinds, executorRebinds := faults(2, 100), faults(1, 20), faults(0, 20)
	for n := range kills {
		s.relay.kill()
		s.relay.start()
		e.await()
		if n < rebinds {
			s.fromClient.rebind()
			e.await()
		}
		if n < executorRebinds {
			s.fromExecutor.rebind()
			e.await() // at its next heartbeat, if the command says nothing
		}
	}
	e.end()
	if n := s.runs("runs"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	if !strings.Contains(e.stderr.String(), "reconnecting") {
		t.Errorf("the interruption is not told: %q", e.stderr.String())
	}
	t.Logf("survived: %d relays killed, %d addresses of the client and %d of the executor changed; %d lines each way, none lost, doubled or moved",
		kills, rebinds, executorRebinds, e.sent.Load())
}

// A viewer that is killed again and again, and goes on after the number it saw last, sees everything once.
func TestKilledViewerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	lines := faults(30_000, 100_000)
	id := strings.TrimSpace(s.run("exec", "-d", "box", "--", "sh", "-c", fmt.Sprintf("echo run >> runs; i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done; exit 3", lines)))
	var got bytes.Buffer
	after, killed := uint64(0), 0
	for exited := false; !exited; {
		cmd := s.command("attach", "--json", "--after", fmt.Sprint(after), "box", id)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		events := bufio.NewScanner(out)
		events.Buffer(nil, 1<<20)
		for n := 0; events.Scan(); n++ {
			var event struct {
				Event, Stream, Data string
				Seq                 uint64
				ExitCode            *int `json:"exit_code"`
			}
			if err := json.Unmarshal(events.Bytes(), &event); err != nil {
				t.Fatalf("%s: %v", events.Text(), err)
			}
			switch event.Event {
			case "gap":
				t.Fatalf("something is missing: %s", events.Text())
			case "output":
				got.WriteString(event.Data)
				after = event.Seq
			case "exit":
				exited = true
				if event.ExitCode == nil || *event.ExitCode != 3 {
					t.Errorf("ended %s, want code 3", events.Text())
				}
			}
			if n == 5 && killed < faults(5, 200) {
				break
			}
		}
		if !exited {
			killed++
			_ = cmd.Process.Kill() // it may have ended at this moment
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // killed, or with the command's code
	}
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&want, i)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes were seen in all, want %d", got.Len(), want.Len())
	}
	if n := s.runs("runs"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	t.Logf("survived: %d viewers killed", killed)
}

// A client that is killed leaves the command to whoever comes next.
func TestKilledClientDetachesAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.echo("exec", "-i", "--id", "00112233445566778899aabbccddeeff", "box", "--", "sh", "-c", "echo run >> runs; exec cat")
	first.await()
	_ = first.cmd.Process.Kill() // it runs: its input is open
	first.finish()
	second := s.command("attach", "-i", "box", "00112233445566778899aabbccddeeff")
	second.Stdin = strings.NewReader("after the takeover\n")
	out, err := second.CombinedOutput()
	if err != nil {
		t.Fatalf("the second client: %v\n%s", err, out)
	}
	text, ok := strings.CutSuffix(string(out), "after the takeover\n")
	if !ok || s.runs("runs") != 1 {
		t.Errorf("it ran %d times, and its output does not end with what the second client wrote: %q", s.runs("runs"), out[max(0, len(out)-100):])
	}
	if text != "" && !strings.Contains(text, "\n") {
		t.Errorf("the output before is %q", text)
	}
}

func TestExecutorThatIsKilledLeavesTheOutcomeUnknownAndOneThatStopsTellsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
		says   string
	}{
		{"killed", syscall.SIGKILL, 255, "outcome unknown"},
		{"stopped", syscall.SIGTERM, 128 + int(syscall.SIGTERM), ""},
	} {
		e := s.echo("exec", "-i", "box", "--", "sh", "-c", "echo run >> "+c.name+"; exec cat")
		e.await()
		s.executor.end(c.signal)
		s.executor.start()
		e.finish()
		err := e.cmd.Wait()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != c.code || !strings.Contains(e.stderr.String(), c.says) {
			t.Errorf("%s executor: the client ended with %v and %q, want %d and %q", c.name, err, e.stderr.String(), c.code, c.says)
		}
		if n := s.runs(c.name); n != 1 {
			t.Errorf("%s executor: the command ran %d times", c.name, n)
		}
	}
}

// stderrOf is what a process said that failed.
func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return string(exit.Stderr)
	}
	return ""
}

// Detached commands that print much stay in bounded files; what was dropped is told as a gap.
func TestDetachedExecsOfMuchOutputCostLittleMemory(t *testing.T) {
	t.Parallel()
	s := newSite(t, "--keep-output", "32M", "--max-execs", "300")
	execs, size := faults(4, 200), faults(40_000_000, 100_000_000)
	ids := make([]string, execs)
	var starting sync.WaitGroup
	slots := make(chan struct{}, 4) // clients, not commands
	for n := range execs {
		slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-slots }()
			out, err := s.command("exec", "-d", "box", "--", "sh", "-c", fmt.Sprintf("echo run >> runs; exec head -c %d /dev/zero", size)).Output()
			if err != nil {
				t.Errorf("start: %v: %s", err, stderrOf(err))
			}
			ids[n] = strings.TrimSpace(string(out))
		})
	}
	starting.Wait()
	for _, id := range ids {
		if err := s.command("wait", "box", id).Run(); err != nil {
			t.Errorf("wait: %v", err)
		}
	}
	if n := s.runs("runs"); n != execs {
		t.Errorf("%d commands ran, want %d", n, execs)
	}
	cmd := s.command("logs", "box", ids[0])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if missing := size - len(out); err != nil || missing <= 0 || !strings.Contains(stderr.String(), fmt.Sprint(missing)) {
		t.Errorf("%d of %d bytes are kept, %v, and it is told: %q", len(out), size, err, stderr.String())
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.executor.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	memory := map[string]int{}
	for line := range strings.Lines(string(status)) {
		var name string
		var kB int
		if n, _ := fmt.Sscanf(line, "%s %d kB", &name, &kB); n == 2 {
			memory[name] = kB
		}
	}
	most := 200 << 10
	if raceDetector {
		most *= 5 // its own memory
	}
	if memory["VmHWM:"] == 0 || memory["VmHWM:"] > most {
		t.Errorf("the executor took up to %d kB", memory["VmHWM:"])
	}
	t.Logf("%d detached commands printed %d bytes each: the executor took %d kB, at most %d kB", execs, size, memory["VmRSS:"], memory["VmHWM:"])
}
