package wiretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// BackendOptions say what TestBackend may rely on.
type BackendOptions struct {
	// Workspace is a folder that commands may write, as they see it.
	Workspace string
	// Dir is the same folder as the test sees it.
	Dir string
}

// TestBackend is the conformance suite of wire.ExecBackend: local and remote backends behave
// the same because all of them pass it. Commands are those of a POSIX system. It
// returns the number of rows that ran; a backend that skips one does not conform, so
// whoever runs the suite on several backends compares the numbers.
func TestBackend(t *testing.T, open func(*testing.T) (wire.ExecBackend, BackendOptions)) (rows int) {
	var passed atomic.Int32
	t.Run("suite", func(t *testing.T) { // ends when its parallel rows have
		for _, r := range backendRows {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if !t.Failed() && !t.Skipped() {
						passed.Add(1)
					}
				})
				backend, o := open(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r.run(&row{T: t, ctx: ctx, backend: backend, o: o})
			})
		}
	})
	return int(passed.Load())
}

// row is one test of the suite, with its helpers.
type row struct {
	*testing.T
	ctx     context.Context
	backend wire.ExecBackend
	o       BackendOptions
}

type backendRow struct {
	name string
	run  func(*row)
}

// result is what a command left.
type result struct {
	stdout, stderr, terminal string
	exit                     wire.ExitStatus
	order                    []wire.OutputStream
}

func sh(script string) wire.ExecParams {
	return wire.ExecParams{Argv: []string{"sh", "-c", script}}
}

func (r *row) start(p wire.ExecParams) wire.ExecProcess {
	r.Helper()
	proc, err := r.backend.Start(r.ctx, p)
	if err != nil {
		r.Fatalf("Start(%q): %v", p.Argv, err)
	}
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = proc.Terminate(ctx, time.Millisecond) // most have ended
		proc.Close()
	})
	return proc
}

// drain reads to the end.
func (r *row) drain(p wire.ExecProcess) result {
	r.Helper()
	var res result
	last := uint64(0)
	for e, err := range p.Events(r.ctx, 0) {
		if err != nil {
			r.Fatalf("Events: %v", err)
		}
		if e.Seq <= last {
			r.Fatalf("number %d after %d", e.Seq, last)
		}
		last = e.Seq
		switch {
		case e.Exit != nil:
			res.exit = *e.Exit
			return res
		case e.Gap != nil:
			r.Fatalf("gap %+v in what was never acknowledged", *e.Gap)
		default:
			res.add(*e.Chunk)
		}
	}
	r.Fatal("Events ended without Exit")
	return res
}

func (res *result) add(c wire.Chunk) {
	switch c.Stream {
	case wire.Stdout:
		res.stdout += string(c.Data)
	case wire.Stderr:
		res.stderr += string(c.Data)
	case wire.Terminal:
		res.terminal += string(c.Data)
	}
	if n := len(res.order); n == 0 || res.order[n-1] != c.Stream {
		res.order = append(res.order, c.Stream)
	}
}

func (r *row) run(p wire.ExecParams) result {
	r.Helper()
	return r.drain(r.start(p))
}

// await reads until the output holds want, and returns the cursor.
func (r *row) await(p wire.ExecProcess, want string) (after uint64) {
	r.Helper()
	var seen strings.Builder
	for {
		resp, err := p.Read(r.ctx, wire.ReadRequest{After: after, Wait: time.Minute})
		if err != nil {
			r.Fatalf("Read while waiting for %q: %v (have %q)", want, err, seen.String())
		}
		for _, c := range resp.Chunks {
			seen.Write(c.Data)
		}
		after = resp.Next
		if strings.Contains(seen.String(), want) {
			return after
		}
		if resp.Exit != nil {
			r.Fatalf("%v while waiting for %q, output %q", *resp.Exit, want, seen.String())
		}
	}
}

// wait is Wait with a deadline of the row's.
func (r *row) wait(p wire.ExecProcess) wire.ExitStatus {
	r.Helper()
	status, err := p.Wait(r.ctx)
	if err != nil {
		r.Fatalf("Wait: %v", err)
	}
	return status
}

func (r *row) equal(what string, got, want any) {
	r.Helper()
	if got != want {
		r.Errorf("%s = %v, want %v", what, got, want)
	}
}

// code is the code that an error must have.
func (r *row) code(what string, err error, want wire.Code) {
	r.Helper()
	if err == nil {
		r.Errorf("%s succeeded, want code %v", what, want)
	} else if got := wire.CodeOf(err); got != want {
		r.Errorf("%s: %v (code %v), want code %v", what, err, got, want)
	}
}

var exited = wire.CauseExited

var backendRows = []backendRow{
	{"StartGivesOutputAndCode", func(r *row) {
		res := r.run(sh("echo out; echo err >&2; exit 3"))
		r.equal("stdout", res.stdout, "out\n")
		r.equal("stderr", res.stderr, "err\n")
		r.equal("exit", res.exit, wire.ExitStatus{Code: 3, Cause: exited})
	}},
	{"InfoTellsWhatIsInForce", func(r *row) {
		id := wire.NewExecID()
		p := r.start(wire.ExecParams{ID: id, Argv: []string{"true"}, Sandbox: wire.SandboxReadOnly, Grace: 7 * time.Second})
		r.equal("ID", p.ID(), id)
		info := p.Info()
		r.equal("Info.ID", info.ID, id)
		r.equal("Info.Sandbox", info.Sandbox, wire.SandboxReadOnly)
		r.equal("Info.Grace", info.Grace, 7*time.Second)
		if age := time.Since(info.Started); age < -time.Minute || age > time.Minute {
			r.Errorf("Info.Started is %v ago", age)
		}
		r.wait(p)
	}},
	{"ModeIsNarrowedToTheMaximum", func(r *row) {
		p := r.start(wire.ExecParams{Argv: []string{"true"}, Sandbox: wire.SandboxFullAccess})
		r.equal("Info.Sandbox", p.Info().Sandbox, wire.SandboxWorkspaceWrite)
		r.wait(p)
	}},
	{"PolicyInForceIsTold", func(r *row) {
		limits := wire.Limits{OpenFiles: 100, FileSize: 4096, Output: 1 << 20}
		p := sh("ulimit -n; mkdir -p in/side; cd in/side && echo x > file && echo wrote; echo y > ../file")
		p.Limits, p.Dir = limits, r.o.Workspace
		prepare := r.start(wire.ExecParams{Argv: []string{"mkdir", "-p", "in/side"}, Dir: r.o.Workspace})
		r.wait(prepare)
		p.Roots = []string{r.o.Workspace + "/in/side"}
		proc := r.start(p)
		info := proc.Info()
		r.equal("Info.Limits", info.Limits, limits)
		r.equal("Info.View", info.View, wire.ViewFull)
		r.equal("Info.Roots", strings.Join(info.Roots, " "), r.o.Workspace+"/in/side")
		r.equal("stdout", r.drain(proc).stdout, "100\nwrote\n")
		// Beside the workspace there may be a private folder, but not the machine's.
		left := r.run(wire.ExecParams{Argv: []string{"ls", "in", "in/side"}, Dir: r.o.Workspace})
		r.equal("files on the machine", left.stdout, "in:\nside\n\nin/side:\nfile\n")
		p.Roots, p.ID = []string{"/usr"}, wire.NewExecID()
		_, err := r.backend.Start(r.ctx, p)
		r.code("Start with a foreign workspace", err, wire.CodePolicy)
		p.Roots, p.ID = []string{r.o.Workspace + "/.git"}, wire.NewExecID()
		_, err = r.backend.Start(r.ctx, p)
		r.code("Start with a protected folder as workspace", err, wire.CodePolicy)
	}},
	{"OutputLimitEndsTheCommand", func(r *row) {
		p := wire.ExecParams{Argv: []string{"yes"}, Limits: wire.Limits{Output: 100_001}}
		res := r.run(p)
		r.equal("bytes of output", len(res.stdout), 100_001)
		r.equal("cause", res.exit.Cause, wire.CauseLimit)
		r.equal("limits hit", res.exit.Hit, wire.LimitOutput)
	}},
	{"LimitsHitAreNamed", func(r *row) {
		p := sh("while :; do :; done")
		p.Limits.CPUMillis = 1000
		exit := r.run(p).exit
		r.equal("signal", exit.Signal, wire.Signal("XCPU"))
		r.equal("limits hit", exit.Hit, wire.LimitCPUTime)
		p = sh("exec head -c 100000 /dev/zero > /tmp/file")
		p.Limits.FileSize = 4096
		exit = r.run(p).exit
		r.equal("signal", exit.Signal, wire.Signal("XFSZ"))
		r.equal("limits hit", exit.Hit, wire.LimitFileSize)
	}},
	{"OutputOfOneStreamKeepsItsOrder", func(r *row) {
		var want strings.Builder
		for i := range 20000 {
			fmt.Fprintf(&want, "%d\n", i+1)
		}
		if res := r.run(sh("seq 1 20000")); res.stdout != want.String() {
			r.Errorf("%d bytes of stdout, want %d in order", len(res.stdout), want.Len())
		}
	}},
	{"MergeKeepsTheOrderOfBothStreams", func(r *row) {
		p := sh("for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done")
		p.Merge = true
		res := r.run(p)
		r.equal("merged output", res.stdout, "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\no6\ne6\no7\ne7\no8\ne8\no9\ne9\n")
		r.equal("stderr", res.stderr, "")
	}},
	{"ExitComesAfterTheLastByte", func(r *row) {
		for range 10 {
			res := r.run(sh("head -c 300000 /dev/zero; echo end"))
			if len(res.stdout) != 300004 || !strings.HasSuffix(res.stdout, "end\n") {
				r.Fatalf("%d bytes before Exit, want 300004", len(res.stdout))
			}
		}
	}},
	{"StreamsAreExactBytes", func(r *row) {
		var all [256]byte
		for i := range all {
			all[i] = byte(i)
		}
		in := bytes.Repeat(all[:], 300)
		p := sh("tee /dev/stderr")
		p.Stdin = true
		proc := r.start(p)
		go r.feed(proc, in)
		res := r.drain(proc)
		if res.stdout != string(in) || res.stderr != string(in) {
			r.Errorf("%d and %d bytes came back altered, want %d", len(res.stdout), len(res.stderr), len(in))
		}
	}},
	{"WordsAndEnvironmentAreExactBytes", func(r *row) {
		words := []string{"a b", "", "$HOME", "\"'\\", "new\nline", "\xff\xfe", "世界", "--", "-n"}
		p := wire.ExecParams{
			Argv: append([]string{"sh", "-c", `printf '%s|' "$@"; printf %s "$X"`, "sh"}, words...),
			Env:  []string{"X=first", "X= last\xff=\n"},
		}
		r.equal("words", r.run(p).stdout, strings.Join(words, "|")+"| last\xff=\n")
	}},
	{"Arg0IsWhatTheProcessSees", func(r *row) {
		r.equal("argv[0]", r.run(wire.ExecParams{Argv: []string{"sh", "-c", "cat /proc/$$/cmdline"}, Arg0: "other"}).stdout[:6], "other\x00")
	}},
	{"EnvironmentIsInheritedAsAsked", func(r *row) {
		p := sh("env")
		p.Inherit = wire.InheritNone
		p.Env = []string{"PATH=/usr/bin:/bin", "ONLY=this"}
		out := r.run(p).stdout
		if !strings.Contains(out, "ONLY=this\n") || strings.Contains(out, "SUITE_MARK") {
			r.Errorf("inherit none: environment %q", out)
		}
		p.Inherit, p.Exclude = wire.InheritAll, []string{"SUITE_EX*"}
		out = r.run(p).stdout
		if !strings.Contains(out, "SUITE_MARK=kept\n") || strings.Contains(out, "SUITE_EXCLUDED") || strings.Contains(out, "POSTERN_SECRET") {
			r.Errorf("inherit all but SUITE_EX*: environment %q", out)
		}
	}},
	{"StdinIsTheNullDeviceUnlessAskedFor", func(r *row) {
		r.equal("bytes read", r.run(sh("cat | wc -c")).stdout, "0\n")
	}},
	{"StdinTakesEachOffsetOnce", func(r *row) {
		p := sh("cat")
		p.Stdin = true
		proc := r.start(p)
		for _, w := range []struct {
			offset uint64
			data   string
		}{{0, "hello "}, {0, "hello "}, {3, "lo world"}, {11, ""}} {
			if err := proc.Write(r.ctx, w.offset, []byte(w.data)); err != nil {
				r.Fatalf("Write(%d, %q): %v", w.offset, w.data, err)
			}
		}
		r.code("Write with a hole", proc.Write(r.ctx, 12, []byte("x")), wire.CodeBadRequest)
		if err := proc.CloseStdin(r.ctx); err != nil {
			r.Fatal(err)
		}
		r.equal("stdout", r.drain(proc).stdout, "hello world")
	}},
	{"StdinHalfCloseLetsOutputGoOn", func(r *row) {
		p := sh("cat >/dev/null; echo after")
		p.Stdin = true
		proc := r.start(p)
		go r.feed(proc, []byte("input"))
		r.equal("stdout", r.drain(proc).stdout, "after\n")
	}},
	{"StdinClosedByTheCommandIsSaid", func(r *row) {
		p := sh("exec <&-; echo closed; read x < /dev/zero; sleep 60")
		p.Stdin = true
		proc := r.start(p)
		r.await(proc, "closed")
		var err error
		for offset := uint64(0); err == nil; offset += 1 << 15 {
			err = proc.Write(r.ctx, offset, make([]byte, 1<<15))
		}
		if !errors.Is(err, wire.ErrStdinClosed) {
			r.Errorf("Write: %v, want ErrStdinClosed", err)
		}
	}},
	{"StdinHasCredit", func(r *row) {
		p := sh("sleep 60")
		p.Stdin = true
		proc := r.start(p)
		ctx, cancel := context.WithCancel(r.ctx)
		var accepted uint64
		stuck := make(chan error, 1)
		progress := make(chan uint64)
		go func() {
			for offset := uint64(0); ; offset += 1 << 15 {
				if err := proc.Write(ctx, offset, make([]byte, 1<<15)); err != nil {
					stuck <- err
					return
				}
				progress <- offset + 1<<15
			}
		}()
		idle := time.NewTimer(time.Second)
		for waiting := true; waiting; {
			select {
			case accepted = <-progress:
				idle.Reset(time.Second)
			case <-idle.C:
				waiting = false
			}
		}
		cancel()
		if err := <-stuck; !errors.Is(err, context.Canceled) {
			r.Errorf("Write without credit: %v, want the context's end", err)
		}
		if accepted == 0 || accepted > 8<<20 {
			r.Errorf("%d bytes were accepted by a command that reads nothing", accepted)
		}
	}},
	{"ControlPassesFullDataBothWays", func(r *row) {
		p := sh("trap 'echo caught >&2; exit 5' USR1; yes 2>/dev/null & while :; do wait; done")
		p.Stdin = true
		proc := r.start(p)
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		var feeding sync.WaitGroup
		feeding.Go(func() {
			for offset := uint64(0); proc.Write(ctx, offset, make([]byte, 1<<15)) == nil; offset += 1 << 15 {
			}
		})
		r.fill(proc)
		if err := proc.Signal(r.ctx, "USR1"); err != nil {
			r.Fatalf("Signal beside full data: %v", err)
		}
		status := r.wait(proc)
		cancel()
		feeding.Wait()
		r.equal("exit code", status.Code, 5)
	}},
	{"BackpressureBoundsWhatIsKept", func(r *row) {
		proc := r.start(sh("head -c 100000000 /dev/zero; echo done"))
		first := r.fill(proc)
		if first > 16<<20 {
			r.Errorf("%d bytes were produced ahead of a reader that takes nothing", first)
		}
		total := 0
		for e, err := range proc.Events(r.ctx, 0) {
			if err != nil {
				r.Fatal(err)
			}
			if e.Gap != nil {
				r.Fatalf("gap %+v", *e.Gap)
			}
			if e.Chunk != nil {
				total += len(e.Chunk.Data)
			}
		}
		r.equal("bytes in all", total, 100000000+len("done\n"))
	}},
	{"ReadWaitsForOutput", func(r *row) {
		p := sh("read x; echo $x")
		p.Stdin = true
		proc := r.start(p)
		resp, err := proc.Read(r.ctx, wire.ReadRequest{})
		if err != nil || len(resp.Chunks) > 0 || resp.Exit != nil || resp.Next != 0 {
			r.Fatalf("Read of nothing = %+v, %v", resp, err)
		}
		resp, err = proc.Read(r.ctx, wire.ReadRequest{Wait: time.Millisecond})
		if err != nil || len(resp.Chunks) > 0 {
			r.Fatalf("Read that waited in vain = %+v, %v", resp, err)
		}
		got := make(chan wire.ReadResponse, 1)
		go func() {
			resp, err := proc.Read(r.ctx, wire.ReadRequest{Wait: time.Minute})
			if err != nil {
				r.Errorf("Read: %v", err)
			}
			got <- resp
		}()
		go r.feed(proc, []byte("late\n"))
		if resp := <-got; len(resp.Chunks) != 1 || string(resp.Chunks[0].Data) != "late\n" {
			r.Errorf("long poll = %+v", resp)
		}
		short, cancel := context.WithCancel(r.ctx)
		cancel()
		if _, err := proc.Read(short, wire.ReadRequest{After: 1 << 30, Wait: time.Minute}); !errors.Is(err, context.Canceled) {
			r.Errorf("Read with an ended context: %v", err)
		}
	}},
	{"ReadAgainGivesTheSame", func(r *row) {
		proc := r.start(sh("printf one; printf two >&2; exit 4"))
		a := r.all(proc, 0)
		b := r.all(proc, 0)
		if len(a.Chunks) != 2 || len(b.Chunks) != 2 || a.Exit == nil || b.Exit == nil || *a.Exit != *b.Exit || a.Next != b.Next {
			r.Errorf("two reads from the start differ: %+v and %+v", a, b)
		}
		r.equal("exit code", a.Exit.Code, 4)
		resp, err := proc.Read(r.ctx, wire.ReadRequest{After: a.Next})
		if err != nil || resp.Exit == nil || len(resp.Chunks) > 0 {
			r.Errorf("Read after the end = %+v, %v, want Exit again", resp, err)
		}
	}},
	{"MaxBytesGivesAtLeastOneChunk", func(r *row) {
		proc := r.start(sh("head -c 200000 /dev/zero"))
		total, after := 0, uint64(0)
		for {
			resp, err := proc.Read(r.ctx, wire.ReadRequest{After: after, MaxBytes: 1, Wait: time.Minute})
			if err != nil {
				r.Fatal(err)
			}
			if len(resp.Chunks) > 1 {
				r.Fatalf("%d chunks for one byte", len(resp.Chunks))
			}
			for _, c := range resp.Chunks {
				total += len(c.Data)
			}
			if after = resp.Next; resp.Exit != nil {
				break
			}
		}
		r.equal("bytes", total, 200000)
	}},
	{"AcknowledgedOutputIsRetainedOrAGap", func(r *row) {
		proc := r.start(sh("head -c 20000000 /dev/zero; read x; exit 0"))
		after := uint64(0)
		for got := 0; got < 20000000; {
			resp, err := proc.Read(r.ctx, wire.ReadRequest{After: after, Wait: time.Minute})
			if err != nil {
				r.Fatal(err)
			}
			for _, c := range resp.Chunks {
				got += len(c.Data)
			}
			after = resp.Next
		}
		if _, err := proc.Read(r.ctx, wire.ReadRequest{After: after}); err != nil {
			r.Fatal(err)
		}
		resp, err := proc.Read(r.ctx, wire.ReadRequest{After: 0})
		if err != nil {
			r.Fatal(err)
		}
		if resp.Gap == nil || resp.Gap.From != 1 || resp.Gap.Bytes == 0 {
			r.Errorf("reading acknowledged output again = gap %+v, want one from 1", resp.Gap)
		}
	}},
	{"WakeTellsOfNewOutput", func(r *row) {
		p := sh("read x; echo $x; read x")
		p.Stdin = true
		proc := r.start(p)
		wake := proc.Wake(0)
		select {
		case <-wake:
			r.Fatal("woken before there was anything")
		default:
		}
		if err := proc.Write(r.ctx, 0, []byte("go\n")); err != nil {
			r.Fatal(err)
		}
		select {
		case <-wake:
		case <-r.ctx.Done():
			r.Fatal("not woken")
		}
		after := r.await(proc, "go")
		again := proc.Wake(after)
		if err := proc.CloseStdin(r.ctx); err != nil {
			r.Fatal(err)
		}
		select {
		case <-again:
		case <-r.ctx.Done():
			r.Fatal("not woken by Exit")
		}
	}},
	{"EventsReplayThenGoLive", func(r *row) {
		p := sh("echo early; read x; echo late; exit 2")
		p.Stdin = true
		proc := r.start(p)
		var seen []string
		for e, err := range proc.Events(r.ctx, 0) {
			if err != nil {
				r.Fatal(err)
			}
			if e.Chunk != nil {
				seen = append(seen, string(e.Chunk.Data))
				if len(seen) == 1 {
					r.feed(proc, []byte("x\n"))
				}
			}
			if e.Exit != nil {
				seen = append(seen, fmt.Sprint(e.Exit.Code))
			}
		}
		r.equal("events", strings.Join(seen, ","), "early\n,late\n,2")
	}},
	{"WaitDiscardsOutput", func(r *row) {
		proc := r.start(sh("head -c 30000000 /dev/zero; exit 6"))
		r.equal("exit code", r.wait(proc).Code, 6)
		r.equal("exit code, again", r.wait(proc).Code, 6)
	}},
	{"SignalReachesTheProcessGroup", func(r *row) {
		proc := r.start(sh("trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done"))
		r.await(proc, "up")
		if err := proc.Signal(r.ctx, "TERM"); err != nil {
			r.Fatal(err)
		}
		r.equal("exit", r.wait(proc), wire.ExitStatus{Code: 9, Cause: exited})
	}},
	{"DeathBySignalIsNotAnExitCode", func(r *row) {
		for _, s := range []wire.Signal{"KILL", "USR2", "TERM"} {
			proc := r.start(wire.ExecParams{Argv: []string{"sleep", "60"}})
			if err := proc.Signal(r.ctx, s); err != nil {
				r.Fatal(err)
			}
			status := r.wait(proc)
			r.equal("signal", status.Signal, s)
			r.equal("cause", status.Cause, wire.CauseSignalled)
			r.equal("shell code", status.ShellCode(), 128+s.Number())
		}
		proc := r.start(wire.ExecParams{Argv: []string{"sleep", "60"}})
		r.code("Signal NOPE", proc.Signal(r.ctx, "NOPE"), wire.CodeBadRequest)
	}},
	{"SignalAfterTheEndIsRefused", func(r *row) {
		proc := r.start(wire.ExecParams{Argv: []string{"true"}})
		r.wait(proc)
		r.code("Signal", proc.Signal(r.ctx, "TERM"), wire.CodeEnded)
		r.code("Terminate", proc.Terminate(r.ctx, 0), wire.CodeEnded)
	}},
	{"TerminalHasSizeAndResizes", func(r *row) {
		p := sh("stty size; read x; stty size; test -t 0 && test -t 1 && test -t 2 && echo all")
		p.TTY, p.Stdin = &wire.WinSize{Rows: 31, Cols: 97}, true
		proc := r.start(p)
		r.equal("Info.TTY", proc.Info().TTY, true)
		r.await(proc, "31 97\r\n")
		if err := proc.Resize(r.ctx, wire.WinSize{Rows: 40, Cols: 120}); err != nil {
			r.Fatal(err)
		}
		if err := proc.Write(r.ctx, 0, []byte("\n")); err != nil {
			r.Fatal(err)
		}
		r.await(proc, "40 120\r\nall\r\n")
		r.equal("exit code", r.wait(proc).Code, 0)
	}},
	{"ResizeWithoutATerminalIsRefused", func(r *row) {
		proc := r.start(wire.ExecParams{Argv: []string{"sleep", "60"}})
		r.code("Resize", proc.Resize(r.ctx, wire.WinSize{Rows: 1, Cols: 1}), wire.CodeBadRequest)
	}},
	{"TerminalOutputIsOneStreamAndEndOfInputIsEOF", func(r *row) {
		p := sh("echo err >&2; cat; echo end")
		p.TTY, p.Stdin = &wire.WinSize{Rows: 24, Cols: 80}, true
		proc := r.start(p)
		r.await(proc, "err")
		r.feed(proc, []byte("line\n"))
		res := r.drain(proc)
		if res.stdout != "" || res.stderr != "" || !strings.HasSuffix(res.terminal, "line\r\nend\r\n") {
			r.Errorf("stdout %q, stderr %q, terminal %q", res.stdout, res.stderr, res.terminal)
		}
		r.equal("exit code", res.exit.Code, 0)
	}},
	{"TerminateKillsAfterTheGrace", func(r *row) {
		proc := r.start(sh("trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done"))
		r.await(proc, "up")
		if err := proc.Terminate(r.ctx, 50*time.Millisecond); err != nil {
			r.Fatal(err)
		}
		status := r.wait(proc)
		r.equal("signal", status.Signal, wire.Signal("KILL"))
		r.equal("cause", status.Cause, wire.CauseTerminated)
	}},
	{"TerminateLetsTheCommandCleanUp", func(r *row) {
		proc := r.start(sh("trap 'echo cleaned; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
		r.await(proc, "up")
		if err := proc.Terminate(r.ctx, 30*time.Second); err != nil {
			r.Fatal(err)
		}
		res := r.drain(proc)
		if !strings.Contains(res.stdout, "cleaned") {
			r.Errorf("output %q", res.stdout)
		}
		r.equal("exit", res.exit, wire.ExitStatus{Code: 3, Cause: wire.CauseTerminated})
	}},
	{"TimeoutEndsTheCommand", func(r *row) {
		p := sh("trap '' TERM; echo up; while :; do sleep 0.05; done")
		p.Timeout, p.KillAfter = 300*time.Millisecond, 50*time.Millisecond
		status := r.run(p).exit
		r.equal("cause", status.Cause, wire.CauseTimedOut)
		r.equal("shell code", status.ShellCode(), 124)
	}},
	{"TimeoutIsNotEarly", func(r *row) {
		p := sh("echo quick")
		p.Timeout = time.Minute
		r.equal("exit", r.run(p).exit, wire.ExitStatus{Cause: exited})
	}},
	{"StraysEndWithTheCommand", func(r *row) {
		res := r.run(sh("setsid sh -c 'sleep 60 & sleep 60' & sleep 0.2; echo main"))
		r.equal("stdout", res.stdout, "main\n")
		if res.exit.Strays == 0 {
			r.Errorf("exit %+v tells of no strays", res.exit)
		}
		r.equal("pipes held", res.exit.PipesHeld, false)
	}},
	{"StartOfTheSameIDIsTheSameExec", func(r *row) {
		file := wire.NewExecID().String()
		p := sh("echo run >> " + file + "; read x; echo $x")
		p.ID, p.Stdin, p.Dir = wire.NewExecID(), true, r.o.Workspace
		first := r.start(p)
		second := r.start(p)
		if _, err := first.Read(r.ctx, wire.ReadRequest{Wait: time.Minute}); wire.CodeOf(err) != wire.CodeSuperseded {
			r.Errorf("the older handle reads: %v, want superseded", err)
		}
		r.feed(second, []byte("once\n"))
		r.equal("stdout", r.drain(second).stdout, "once\n")
		again := r.start(p) // the result is kept
		r.equal("stdout, later", r.drain(again).stdout, "once\n")
		p.Argv = []string{"echo", "other"}
		_, err := r.backend.Start(r.ctx, p)
		r.code("Start of another request under the id", err, wire.CodeConflict)
		r.equal("runs", r.run(wire.ExecParams{Argv: []string{"cat", file}, Dir: r.o.Workspace}).stdout, "run\n")
	}},
	{"CloseDetachesAndAttachComesBack", func(r *row) {
		p := sh("echo before; read x; echo after; exit 8")
		p.Stdin = true
		proc := r.start(p)
		after := r.await(proc, "before")
		if err := proc.Close(); err != nil {
			r.Fatal(err)
		}
		if _, err := proc.Read(r.ctx, wire.ReadRequest{}); !errors.Is(err, wire.ErrClosed) {
			r.Errorf("Read after Close: %v", err)
		}
		back, err := r.backend.Attach(r.ctx, p.ID, wire.AttachOptions{})
		r.code("Attach to the zero id", err, wire.CodeNotFound)
		if err == nil {
			back.Close()
		}
		back, err = r.backend.Attach(r.ctx, proc.ID(), wire.AttachOptions{After: after, Control: true})
		if err != nil {
			r.Fatal(err)
		}
		defer back.Close()
		r.feed(back, []byte("x\n"))
		resp := r.all(back, after)
		var out strings.Builder
		for _, c := range resp.Chunks {
			out.WriteString(string(c.Data))
		}
		r.equal("output after attaching", out.String(), "after\n")
		r.equal("exit code", resp.Exit.Code, 8)
	}},
	{"ViewersReadAndCannotControl", func(r *row) {
		p := sh("echo shown; read x; exit 1")
		p.Stdin = true
		proc := r.start(p)
		r.await(proc, "shown")
		viewer, err := r.backend.Attach(r.ctx, proc.ID(), wire.AttachOptions{})
		if err != nil {
			r.Fatal(err)
		}
		defer viewer.Close()
		r.await(viewer, "shown")
		r.code("Write", viewer.Write(r.ctx, 0, []byte("x")), wire.CodePolicy)
		r.code("CloseStdin", viewer.CloseStdin(r.ctx), wire.CodePolicy)
		r.code("Signal", viewer.Signal(r.ctx, "TERM"), wire.CodePolicy)
		r.code("Terminate", viewer.Terminate(r.ctx, 0), wire.CodePolicy)
		r.code("Resize", viewer.Resize(r.ctx, wire.WinSize{Rows: 1, Cols: 1}), wire.CodePolicy)
		r.feed(proc, []byte("\n"))
		r.equal("the viewer's exit code", r.wait(viewer).Code, 1)
		r.equal("the controller's exit code", r.wait(proc).Code, 1)
	}},
	{"DetachGraceEndsTheCommand", func(r *row) {
		p := sh("trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done")
		p.Grace = 100 * time.Millisecond
		proc := r.start(p)
		r.await(proc, "up")
		proc.Close()
		viewer, err := r.backend.Attach(r.ctx, proc.ID(), wire.AttachOptions{})
		if err != nil {
			r.Fatal(err)
		}
		defer viewer.Close()
		r.equal("exit", r.wait(viewer), wire.ExitStatus{Code: 4, Cause: wire.CauseTerminated})
	}},
	{"ListShowsOwnExecs", func(r *row) {
		p := sh("read x")
		p.Stdin = true
		proc := r.start(p)
		ended := r.start(sh("exit 2"))
		r.wait(ended)
		infos, err := r.backend.List(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		found := make(map[wire.ExecID]wire.ExecInfo)
		for _, i := range infos {
			found[i.ID] = i
		}
		if i, ok := found[proc.ID()]; !ok || i.Exit != nil || !i.Attached {
			r.Errorf("the running exec is listed as %+v (%v)", i, ok)
		}
		if i, ok := found[ended.ID()]; !ok || i.Exit == nil || i.Exit.Code != 2 {
			r.Errorf("the ended exec is listed as %+v (%v)", i, ok)
		}
	}},
	{"MissingCommandIs127", func(r *row) {
		_, err := r.backend.Start(r.ctx, wire.ExecParams{Argv: []string{"no-such-command"}})
		r.code("by name", err, wire.CodeNotFoundCmd)
		_, err = r.backend.Start(r.ctx, wire.ExecParams{Argv: []string{"/no/such/command"}})
		r.code("by path", err, wire.CodeNotFoundCmd)
	}},
	{"NotExecutableIs126", func(r *row) {
		for _, path := range []string{"/etc/passwd", "/etc"} {
			_, err := r.backend.Start(r.ctx, wire.ExecParams{Argv: []string{path}})
			r.code(path, err, wire.CodeNotExec)
		}
	}},
	{"FailedStartIsNotRetriedAsAnotherRun", func(r *row) {
		p := wire.ExecParams{ID: wire.NewExecID(), Argv: []string{"no-such-command"}}
		for range 2 {
			_, err := r.backend.Start(r.ctx, p)
			r.code("Start", err, wire.CodeNotFoundCmd)
		}
	}},
	{"BadRequestsAreRefused", func(r *row) {
		for what, p := range map[string]wire.ExecParams{
			"no words":         {},
			"an empty word":    {Argv: []string{""}},
			"a NUL":            {Argv: []string{"a\x00b"}},
			"a nameless env":   {Argv: []string{"true"}, Env: []string{"=x"}},
			"a missing folder": {Argv: []string{"true"}, Dir: "/no/such/folder"},
			"an unknown mode":  {Argv: []string{"true"}, Sandbox: 9},
		} {
			_, err := r.backend.Start(r.ctx, p)
			r.code(what, err, wire.CodeBadRequest)
		}
	}},
	{"DirAndUmaskAreUsed", func(r *row) {
		p := sh("pwd; umask")
		p.Dir, p.Umask = "/usr", 0o077
		r.equal("stdout", r.run(p).stdout, "/usr\n0077\n")
		p.Dir, p.Umask = "", 0
		r.equal("stdout", r.run(p).stdout, r.o.Workspace+"\n0022\n")
	}},
	{"StartEndsWithItsContext", func(r *row) {
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		if p, err := r.backend.Start(ctx, wire.ExecParams{Argv: []string{"true"}}); err == nil {
			p.Close()
			r.Error("Start with an ended context succeeded")
		}
	}},
	{"ManyAtOnceStayApart", func(r *row) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				p, err := r.backend.Start(r.ctx, sh(fmt.Sprintf("echo %d; exit %d", i, i)))
				if err != nil {
					r.Errorf("Start %d: %v", i, err)
					return
				}
				defer p.Close()
				var out strings.Builder
				for e, err := range p.Events(r.ctx, 0) {
					switch {
					case err != nil:
						r.Errorf("exec %d: %v", i, err)
						return
					case e.Chunk != nil:
						out.WriteString(string(e.Chunk.Data))
					case e.Exit != nil && (e.Exit.Code != i || out.String() != fmt.Sprintf("%d\n", i)):
						r.Errorf("exec %d printed %q and ended with %d", i, out.String(), e.Exit.Code)
					}
				}
			})
		}
		all.Wait()
	}},
}

// feed writes all of b and ends the input.
func (r *row) feed(p wire.ExecProcess, b []byte) {
	if err := p.Write(r.ctx, 0, b); err != nil {
		r.Errorf("Write: %v", err)
	}
	if err := p.CloseStdin(r.ctx); err != nil && err != io.EOF {
		r.Errorf("CloseStdin: %v", err)
	}
}

// all reads from after to Exit without acknowledging anything above it.
func (r *row) all(p wire.ExecProcess, after uint64) wire.ReadResponse {
	r.Helper()
	for {
		resp, err := p.Read(r.ctx, wire.ReadRequest{After: after, MaxBytes: 64 << 20})
		if err != nil {
			r.Fatal(err)
		}
		if resp.Exit != nil {
			return resp
		}
		select {
		case <-p.Wake(resp.Next):
		case <-r.ctx.Done():
			r.Fatal("no end in sight")
		}
	}
}

// fill waits until the command is held back because nobody takes its output, and returns how
// many bytes it got rid of.
func (r *row) fill(p wire.ExecProcess) int {
	r.Helper()
	for last := -1; ; {
		resp, err := p.Read(r.ctx, wire.ReadRequest{MaxBytes: 64 << 20})
		if err != nil {
			r.Fatal(err)
		}
		n := 0
		for _, c := range resp.Chunks {
			n += len(c.Data)
		}
		if n > 0 && n == last {
			return n
		}
		last = n
		select {
		case <-p.Wake(resp.Next):
		case <-time.After(500 * time.Millisecond):
		case <-r.ctx.Done():
			r.Fatal("the command is never held back")
		}
	}
}
