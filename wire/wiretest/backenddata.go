package wiretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// dataRows are about output and input.
var dataRows = []backendRow{
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
		idle := time.AfterFunc(time.Minute, cancel) // for the first
		defer idle.Stop()
		for writing := true; writing; {
			select {
			case accepted = <-progress: // also of a piece that went in while the time ran out
				idle.Reset(time.Second)
			case err := <-stuck:
				if !errors.Is(err, context.Canceled) {
					r.Errorf("Write without credit: %v, want the context's end", err)
				}
				writing = false
			}
		}
		if accepted == 0 || accepted > 8<<20 {
			r.Errorf("%d bytes were accepted by a command that reads nothing", accepted)
		}
	}},
	{"WriteWithAContextThatHasEndedGivesNothing", func(r *row) {
		p := sh("cat")
		p.Stdin = true
		proc := r.start(p)
		ended, end := context.WithCancel(r.ctx)
		end()
		if err := proc.Write(ended, 0, []byte("no")); !errors.Is(err, context.Canceled) {
			r.Errorf("Write: %v, want the context's end", err)
		}
		if err := proc.Write(r.ctx, 0, []byte("yes")); err != nil {
			r.Fatal(err)
		}
		if err := proc.CloseStdin(r.ctx); err != nil {
			r.Fatal(err)
		}
		r.equal("output", r.drain(proc).stdout, "yes")
	}},
	{"EmptyWriteIsAWriteLikeAnother", func(r *row) {
		p := sh("cat")
		p.Stdin = true
		proc := r.start(p)
		ended, end := context.WithCancel(r.ctx)
		end()
		if err := proc.Write(ended, 0, nil); !errors.Is(err, context.Canceled) {
			r.Errorf("Write with an ended context: %v, want the context's end", err)
		}
		if err := proc.Write(r.ctx, 1, nil); wire.CodeOf(err) != wire.CodeBadRequest {
			r.Errorf("Write behind a hole: %v, want %v", err, wire.CodeBadRequest)
		}
		if err := proc.Write(r.ctx, 0, nil); err != nil {
			r.Errorf("Write: %v", err)
		}
		if err := proc.CloseStdin(r.ctx); err != nil {
			r.Fatal(err)
		}
		if err := proc.Write(r.ctx, 0, nil); err != nil {
			r.Errorf("Write of what is accepted: %v", err)
		}
		if err := proc.Write(r.ctx, 1, nil); !errors.Is(err, wire.ErrStdinClosed) {
			r.Errorf("Write behind the end: %v, want %v", err, wire.ErrStdinClosed)
		}
		r.equal("output", r.drain(proc).stdout, "")
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
}
