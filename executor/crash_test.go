package executor

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

// crashVariable makes this test binary an executor that dies while it starts a command.
const crashVariable = "EXECUTOR_TEST_CRASH"

// crash says what the dying executor does. It is JSON in the variable.
type crash struct {
	State, Workspace, At string
	Params               wire.ExecParams
}

// The moments at which it dies.
const (
	beforeRecord = "before the record"
	beforeSpawn  = "between record and spawn"
	beforeAnswer = "between spawn and answer"
	whileRunning = "while the command runs"
)

// dying is a runner that kills its own process, as the kernel would.
type dying struct {
	Runner
	at string
}

func (d dying) Run(ctx context.Context, s Spec) (Running, error) {
	if d.at == beforeSpawn {
		die()
	}
	run, err := d.Runner.Run(ctx, s)
	if err == nil && d.at == beforeAnswer {
		go func() { // the command waits for nobody here
			for _, p := range run.Outputs() {
				p.Pipe.Close()
			}
		}()
		run.Wait()
		die()
	}
	return run, err
}

func die() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func dieWhileStarting() {
	var c crash
	if err := json.Unmarshal([]byte(os.Getenv(crashVariable)), &c); err != nil {
		panic(err)
	}
	l, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		panic(err)
	}
	b, err := NewLocal(LocalConfig{Runner: dying{NewSandboxRunner(l), c.At}, State: c.State, Workspaces: []string{c.Workspace}})
	if err != nil {
		panic(err)
	}
	if c.At == beforeRecord {
		die()
	}
	h, err := b.Start(context.Background(), c.Params)
	if err != nil {
		panic(err)
	}
	<-h.Wake(0) // it has run
	die()
}

func TestKilledExecutorNeverRunsACommandTwice(t *testing.T) {
	for _, at := range []string{beforeRecord, beforeSpawn, beforeAnswer, whileRunning} {
		for _, detach := range []bool{false, true} {
			name := at
			if detach {
				name += ", detached"
			}
			t.Run(name, func(t *testing.T) {
				state, workspace := t.TempDir(), t.TempDir()
				p := wire.ExecParams{
					ID: wire.NewExecID(), Dir: workspace, Detach: detach,
					Argv: []string{"sh", "-c", "echo run >> runs; echo out; [ " + quote(at) + " != " + quote(whileRunning) + " ] || sleep 60"},
				}
				order, err := json.Marshal(crash{state, workspace, at, p})
				if err != nil {
					t.Fatal(err)
				}
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				child := exec.Command(self)
				child.Env = append(os.Environ(), crashVariable+"="+string(order))
				out, err := child.CombinedOutput()
				if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
					t.Fatalf("the executor did not die as planned: %v\n%s", err, out)
				}
				ran := runs(t, workspace)
				if want := map[string]int{beforeAnswer: 1, whileRunning: 1}[at]; ran != want {
					t.Fatalf("it ran %d times before the executor died, want %d", ran, want)
				}

				l, err := sandbox.NewLauncher(sandbox.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				b, err := NewLocal(LocalConfig{Runner: NewSandboxRunner(l), State: state, Workspaces: []string{workspace}})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				h, err := b.start(t.Context(), p, claim{}, b.Epoch()) // as the client does whose answer was lost
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				var output strings.Builder
				var exit *wire.ExitStatus
				for e, err := range h.Events(t.Context(), 0) {
					switch {
					case err != nil:
						t.Fatal(err)
					case e.Chunk != nil:
						output.Write(e.Chunk.Data)
					case e.Exit != nil:
						exit = e.Exit
					}
				}
				if at == beforeRecord {
					if n := runs(t, workspace); n != 1 || exit.Cause != wire.CauseExited {
						t.Errorf("without a record it ran %d times and ended %v, want once", n, exit)
					}
					return
				}
				if exit.Cause != wire.CauseExecutorLost || exit.ShellCode() != 255 {
					t.Errorf("ended %v, want the outcome unknown", exit)
				}
				if n := runs(t, workspace); n != ran {
					t.Errorf("a retry ran it again: %d times", n)
				}
				if want := detach && at == whileRunning; (output.String() == "out\n") != want {
					t.Errorf("output %q; that of a detached command is in files: %v", output.String(), want)
				}
				_, err = b.start(t.Context(), wire.ExecParams{ID: wire.NewExecID(), Argv: []string{"true"}}, claim{}, wire.ID{1})
				if wire.CodeOf(err) != wire.CodeUnknown {
					t.Errorf("first tried in another epoch: %v, want outcome_unknown", err)
				}
			})
		}
	}
}

func quote(s string) string { return "'" + s + "'" }

// runs counts by a file on disk.
func runs(t *testing.T, workspace string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(workspace, "runs"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "run\n")
}
