package client

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
)

// journalist notes what an Observer is told.
type journalist struct {
	mu    sync.Mutex
	notes []string
}

func (j *journalist) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

func (j *journalist) take() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	notes := j.notes
	j.notes = nil
	return notes
}

func (j *journalist) Connected(err error)                { j.note("connected %v", err) }
func (j *journalist) Founded(_ time.Duration, err error) { j.note("founded %v", err == nil) }
func (j *journalist) Lost(error)                         { j.note("lost") }
func (j *journalist) Resumed(err error)                  { j.note("resumed %v", err == nil) }
func (j *journalist) Ended(s *wire.ExitStatus, err error) {
	if s == nil {
		j.note("ended without a status, %v", wire.CodeOf(err))
		return
	}
	j.note("ended with %d", s.Code)
}

func TestObserverIsToldOfEachEventOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j := new(journalist)
		w.remote.observer = j
		want := func(what string, want ...string) {
			t.Helper()
			if got := j.take(); !slices.Equal(got, want) {
				t.Errorf("%s: told %q, want %q", what, got, want)
			}
		}
		run := func(argv ...string) wire.ExecProcess {
			p := w.begin(argv...)
			if _, err := p.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			p.Close()
			return p
		}
		p := run("exit", "3")
		want("the first command", "founded true", "ended with 3")
		run("true")
		want("the second", "ended with 0")

		if _, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"no-such-command"}}); err == nil {
			t.Error("a command that is not there was started")
		}
		want("a command that is refused", "ended without a status, command_not_found")

		viewer, err := w.remote.Attach(t.Context(), p.ID(), wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := viewer.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		viewer.Close()
		want("an exec that was attached to") // its end was told once

		left := w.begin("sleep", "1h")
		left.Close()
		want("a handle that was closed") // nobody knows how it ends

		// A lost link, and a way back.
		var circuit wire.Stream
		w.set(func() { w.between = func(s wire.Stream) wire.Stream { circuit = s; return s } })
		q := w.begin("sleep", "1m")
		w.set(func() { w.between = nil })
		circuit.Reset(wire.CodeUnknown)
		if _, err := q.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		q.Close()
		want("a link that was lost", "lost", "resumed true", "ended with 0")

		// And none.
		w.set(func() { w.between = func(s wire.Stream) wire.Stream { circuit = s; return s } })
		q = w.begin("sleep", "1h")
		w.set(func() { w.refuse = wire.ErrLost })
		circuit.Reset(wire.CodeUnknown)
		if _, err := q.Wait(t.Context()); err == nil {
			t.Error("an exec that nobody reaches has ended")
		}
		q.Close()
		want("a link that does not come back", "lost", "resumed false", "ended without a status, outcome_unknown")
	})
}
