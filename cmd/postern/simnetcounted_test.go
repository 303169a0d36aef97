package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// tick is as long as a round trip: at any moment something is under way in both directions.
const tick = wholeTrip

// counting prints Pattern, a record at every pace, until its stdin ends, and checks that stdin is Pattern too.
// It says how much of both there was, and its exit status tells that the input was exact.
func counting(record int, pace time.Duration) executortest.Command {
	return func(p *executortest.Process) int {
		taken := &exact{}
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(taken, p.Stdin)
			ended <- err
		}()
		for printed := 0; ; printed += record {
			select {
			case err := <-ended:
				fmt.Fprintf(p.Stderr, "printed %d, took %d", printed, taken.size())
				if err != nil {
					return 1
				}
				return 7
			default:
			}
			if _, err := p.Stdout.Write(executortest.PatternAt(printed, record)); err != nil || !p.Sleep(pace) {
				return 2
			}
		}
	}
}

// exact takes what is Pattern from its beginning on, and fails with the first byte that is not.
type exact struct {
	mu   sync.Mutex
	n    int
	last time.Time // of a Write
}

func (e *exact) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !bytes.Equal(b, executortest.PatternAt(e.n, len(b))) {
		return 0, fmt.Errorf("lost, repeated or moved after byte %d", e.n)
	}
	e.n += len(b)
	e.last = time.Now()
	return len(b), nil
}

func (e *exact) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

func (e *exact) lastWrite() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// paced is Pattern, a record at every pace, until it is stopped.
type paced struct {
	record int
	pace   time.Duration
	stop   chan struct{}
	n      int
}

func (f *paced) Read(b []byte) (int, error) {
	timer := time.NewTimer(f.pace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.stop:
		return 0, io.EOF
	}
	n := copy(b, executortest.PatternAt(f.n, f.record))
	f.n += n
	return n, nil
}

// stream is a counted exchange that goes on in both directions.
type stream struct {
	p       *parties
	cmd     *client.Cmd
	input   *paced
	out     exact
	stderr  bytes.Buffer
	viewers sync.WaitGroup
	seen    exact // by a viewer
	handles int
	others  int // commands that the test has run meanwhile
}

type streamOptions struct {
	record int           // bytes at a time; zero: 16
	pace   time.Duration // zero: tick
	viewer bool          // one more handle, which must see the same
	grace  time.Duration // zero: the default
}

func (p *parties) beginStream(t *testing.T, o streamOptions) *stream {
	t.Helper()
	o.record, o.pace = cmp.Or(o.record, 16), cmp.Or(o.pace, tick)
	p.runner.Handle("count", counting(o.record, o.pace))
	s := &stream{p: p, cmd: p.command("count"), handles: 1}
	s.input = &paced{record: o.record, pace: o.pace, stop: make(chan struct{})}
	s.cmd.Params.Grace = o.grace
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.input, &s.out, &s.stderr
	if err := s.cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.viewer {
		viewer, err := p.remote.Attach(t.Context(), s.cmd.Process().ID(), wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.handles++
		s.viewers.Go(func() {
			defer viewer.Close()
			for e, err := range viewer.Events(t.Context(), 0) {
				switch {
				case err != nil:
					t.Errorf("the viewer: %v", err)
				case e.Gap != nil:
					t.Errorf("the viewer has a gap: %+v", *e.Gap)
				case e.Chunk != nil && e.Chunk.Stream == wire.Stdout:
					if _, err := s.seen.Write(e.Chunk.Data); err != nil {
						t.Errorf("the viewer: %v", err)
					}
				}
			}
		})
	}
	return s
}

// through carries the stream through what happens, and to its end. It returns how often each
// handle was told that its link was lost.
func (s *stream) through(t *testing.T, happens func()) (losses int) {
	t.Helper()
	ended := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	var status wire.ExitStatus
	var err error
	go func() {
		defer close(ended)
		status, err = s.cmd.Wait(ctx)
	}()
	<-time.After(3 * time.Second)
	happens()
	before := s.out.size()
	for s.out.size() == before && !isOver(ended) { // until it goes on
		<-time.After(tick)
	}
	<-time.After(3 * time.Second)
	close(s.input.stop)
	<-ended
	s.viewers.Wait()
	if want := (wire.ExitStatus{Code: 7, Cause: wire.CauseExited}); err != nil || !status.Equal(want) {
		t.Fatalf("ended %+v, %v, want %+v; %q", status, err, want, s.stderr.String())
	}
	if want := fmt.Sprintf("printed %d, took %d", s.out.size(), s.input.n); s.stderr.String() != want {
		t.Errorf("the command says %q, want %q", s.stderr.String(), want)
	}
	if s.handles > 1 && s.seen.size() != s.out.size() {
		t.Errorf("the viewer saw %d bytes of %d", s.seen.size(), s.out.size())
	}
	if n := s.p.runner.Starts(); n != 1+s.others {
		t.Errorf("%d commands ran, want %d", n, 1+s.others)
	}
	s.p.wantNothingLeft(t)
	return s.p.wantPairs(t, s.handles)
}

func isOver(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wantPairs checks that each loss was told once, and each return, and forgets them.
func (p *parties) wantPairs(t *testing.T, handles int) int {
	t.Helper()
	p.mu.Lock()
	told := p.told
	p.told = nil
	p.mu.Unlock()
	away, losses := 0, 0
	for _, i := range told {
		if i.Err != nil {
			away++
			losses++
		} else {
			away--
		}
		if away < 0 || away > handles {
			t.Errorf("%d handles were told of their losses and returns in this order: %+v", handles, told)
			return losses / handles
		}
	}
	if away != 0 {
		t.Errorf("%d handles were told that they are lost, and not that they are back", away)
	}
	return losses / handles
}

// wantNothingLeft checks that neither party has anything of execs that are over, except their results, and
// that these go too.
func (p *parties) wantNothingLeft(t *testing.T) {
	t.Helper()
	if n := p.runner.Running(); n != 0 {
		t.Errorf("%d commands are running, want 0", n)
	}
	<-time.After(10 * time.Second)
	began := time.Now()
	settled, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if p.serving.Settle(settled); time.Since(began) > 0 {
		t.Errorf("the executor has conversations %v after the end", time.Since(began))
	}
	if n := p.relayCount(t, "postern_relay_circuits"); n != 0 {
		t.Errorf("the relay has %v circuits, want 0", n)
	}
	<-time.After(11 * time.Minute) // results are kept for 10
	if infos, err := p.mine().List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("the executor still has %+v, %v", infos, err)
	}
	if n := p.relayCount(t, "postern_relay_executors_registered"); n != 1 {
		t.Errorf("the relay has %v executors, want 1", n)
	}
}

// relayCount is one gauge of the relay.
func (p *parties) relayCount(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := p.relay.counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue()
		}
		return sum
	}
	t.Fatalf("the relay has no metric %s", name)
	return 0
}
