package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// cuttable returns what ends every circuit that was opened since.
func (w *world) cuttable() (cut func()) {
	var mu sync.Mutex
	var all []wire.Stream
	w.set(func() {
		w.between = func(s wire.Stream) wire.Stream {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s)
			return s
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range all {
			s.Reset(wire.CodeUnknown)
		}
		all = nil
	}
}

func TestViewerSurvivesACut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		owner := w.begin("sleep", "1m", "at last")
		cut := w.cuttable()
		viewer, err := w.remote.Attach(t.Context(), owner.ID(), wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cut()
		var out []byte
		for e, err := range viewer.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Chunk != nil {
				out = append(out, e.Chunk.Data...)
			}
		}
		if string(out) != "at last\n" {
			t.Errorf("output %q", out)
		}
		if status, err := owner.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("the controller: %+v, %v", status, err)
		}
	})
}

func TestHandleWithExitDoesNotComeBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p := w.begin("echo", "x")
		synctest.Wait()
		w.set(func() { w.kinds = nil })
		cut()
		if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
		wantCode(t, "Signal", p.Signal(t.Context(), "INT"), wire.CodeEnded)
		if err := p.Write(t.Context(), 0, []byte("x")); !errors.Is(err, wire.ErrStdinClosed) {
			t.Errorf("Write: %v, want ErrStdinClosed", err)
		}
		w.wantKinds("after Exit")
	})
}

func TestRequestSurvivesTheLossOfItsAnswerAndActsOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo")
		cut := w.cuttable()
		w.set(func() {
			between, first := w.between, true
			w.between = func(s wire.Stream) wire.Stream {
				s = between(s)
				if !first {
					return s
				}
				first = false
				return &fuse{Stream: s, read: 1 + 32 + 2*(2+256+16), written: -1} // Started and "ready" pass
			}
		})
		p := w.begin("stubborn", "1h")
		synctest.Wait()
		asked := make(chan error)
		go func() { asked <- p.Signal(t.Context(), "USR1") }()
		if err := <-asked; err != nil {
			t.Errorf("Signal: %v", err)
		}
		w.refusing(wire.ErrLost)
		cut()
		synctest.Wait()
		for _, s := range []wire.Signal{"INT", "USR2"} { // while the link is lost
			go func() { asked <- p.Signal(t.Context(), s) }()
			synctest.Wait()
		}
		w.refusing(nil)
		for range 2 {
			if err := <-asked; err != nil {
				t.Errorf("Signal: %v", err)
			}
		}
		if err := p.Terminate(t.Context(), time.Second); err != nil {
			t.Errorf("Terminate: %v", err)
		}
		var out []byte
		for e, err := range p.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Chunk != nil {
				out = append(out, e.Chunk.Data...)
			}
		}
		if string(out) != "ready\nUSR1\nINT\nUSR2\nTERM\n" {
			t.Errorf("the command got %q, want each signal once and in order", out)
		}
	})
}

func (w *world) refusing(err error) { w.set(func() { w.refuse = err }) }

// What is asked without a handle overtakes what a handle asked that is still coming back.
func TestRequestIsNotTakenForOneThatWasMadeLaterAndCameFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p := w.begin("stubborn", "1h")
		synctest.Wait()
		w.refusing(wire.ErrLost)
		cut()
		<-time.After(20 * time.Second) // the next try is in some seconds
		asked := make(chan error)
		go func() { asked <- p.Signal(t.Context(), "USR1") }()
		synctest.Wait()
		w.refusing(nil)
		if err := w.remote.Signal(t.Context(), wire.ExecRef{ID: p.ID()}, "USR2"); err != nil {
			t.Errorf("Signal without a handle: %v", err)
		}
		if err := <-asked; err != nil {
			t.Errorf("Signal: %v", err)
		}
		synctest.Wait()
		r, err := p.Read(t.Context(), wire.ReadRequest{})
		if err != nil || len(r.Chunks) != 3 || string(r.Chunks[2].Data) != "USR1\n" {
			t.Errorf("output %+v, %v, want both signals", r.Chunks, err)
		}
	})
}

func TestContextBoundsARequestDuringAnInterruption(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p := w.begin("stubborn", "1h")
		synctest.Wait()
		w.refusing(wire.ErrLost)
		cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Signal(ctx, "USR1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Signal: %v, want the deadline", err)
		}
		if _, err := p.Read(ctx, wire.ReadRequest{Wait: time.Hour, After: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read: %v, want the deadline", err)
		}
	})
}

func TestRequestForAnExecThatEndedMeanwhileIsAnsweredEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p := w.begin("sleep", "1m")
		synctest.Wait()
		w.refusing(wire.ErrLost)
		cut()
		go func() {
			<-time.After(90 * time.Second)
			w.refusing(nil)
		}()
		wantCode(t, "Signal", p.Signal(t.Context(), "INT"), wire.CodeEnded)
		if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
	})
}

func TestInputThatWasAcceptedDuringAnInterruptionArrives(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"sum"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		input := executortest.Pattern(50_000)
		if err := p.Write(t.Context(), 0, input[:20_000]); err != nil {
			t.Fatal(err)
		}
		w.refusing(wire.ErrLost)
		cut()
		synctest.Wait()
		if err := p.Write(t.Context(), 15_000, input[15_000:]); err != nil {
			t.Fatal(err)
		}
		if err := p.CloseStdin(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.refusing(nil)
		for e, err := range p.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Chunk != nil && string(e.Chunk.Data) != executortest.Sum(input) {
				t.Errorf("the command read %q", e.Chunk.Data)
			}
		}
	})
}

func TestNewHandleWritesOnWhereTheOldOneStopped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"sum"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		input := executortest.Pattern(1000)
		if err := p.Write(t.Context(), 0, input[:600]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.Close()
		again, err := w.remote.Attach(t.Context(), p.ID(), wire.AttachOptions{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		at := again.Info().Input
		if at != 600 {
			t.Errorf("goes on at %d, want 600", at)
		}
		if err := again.Write(t.Context(), at, input[at:]); err != nil {
			t.Fatal(err)
		}
		again.CloseStdin(t.Context())
		for e, err := range again.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Chunk != nil && string(e.Chunk.Data) != executortest.Sum(input) {
				t.Errorf("the command read %q", e.Chunk.Data)
			}
		}
	})
}

func TestSupersededHandleDoesNotFightBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		first := w.begin("sleep", "1h")
		another := NewRemote(w.remote.cfg)
		defer another.Close()
		second, err := another.Attach(t.Context(), first.ID(), wire.AttachOptions{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = first.Wait(t.Context())
		wantCode(t, "the first controller", err, wire.CodeSuperseded)
		wantCode(t, "its Write", first.Write(t.Context(), 0, []byte("x")), wire.CodeSuperseded)
		wantCode(t, "its Signal", first.Signal(t.Context(), "INT"), wire.CodeSuperseded)
		w.set(func() { w.kinds = nil })
		<-time.After(10 * time.Minute)
		w.wantKinds("afterwards")
		if err := second.Signal(t.Context(), "INT"); err != nil {
			t.Errorf("the second controller's Signal: %v", err)
		}
	})
}
