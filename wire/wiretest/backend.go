package wiretest

import (
	"context"
	"io"
	"reflect"
	"slices"
	"strings"
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
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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
	if !reflect.DeepEqual(got, want) {
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

// backendRows is the whole suite.
var backendRows = slices.Concat(startRows, dataRows, readRows, controlRows, handleRows)

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
