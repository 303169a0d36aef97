package wiretest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// readRows are about the cursor over the log.
var readRows = []backendRow{
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
		var feeding sync.WaitGroup
		feeding.Go(func() { r.feed(proc, []byte("late\n")) })
		if resp := <-got; len(resp.Chunks) != 1 || string(resp.Chunks[0].Data) != "late\n" {
			r.Errorf("long poll = %+v", resp)
		}
		feeding.Wait()
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
		if len(a.Chunks) != 2 || len(b.Chunks) != 2 || a.Exit == nil || b.Exit == nil || !a.Exit.Equal(*b.Exit) || a.Next != b.Next {
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
}
