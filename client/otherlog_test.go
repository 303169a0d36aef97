package client

import (
	"testing"

	"github.com/postern-relay/postern/wire"
)

func exitOf(seq uint64) wire.Event { return wire.Event{Seq: seq, Exit: &wire.ExitStatus{Cause: 1}} }

func addAll(t *testing.T, r *received, events ...wire.Event) {
	t.Helper()
	for _, e := range events {
		if err := r.add(e); err != nil {
			t.Fatal(err)
		}
	}
}

func wantAck(t *testing.T, what string, r *received, want uint64) {
	t.Helper()
	if got := r.toAck(); got != want {
		t.Errorf("%s: acknowledges %d, want %d (0: nothing)", what, got, want)
	}
}

func TestWhatWasTakenIsAcknowledgedOnceOnEachCircuit(t *testing.T) {
	r := &received{limit: 10_000, epoch: wire.ID{1}, last: 5, taken: 5, acked: 5, origin: 5}
	r.goOn(wire.ID{1})
	wantAck(t, "before anything was taken", r, 0)
	addAll(t, r, chunkOf(6, 10), chunkOf(7, 10), chunkOf(8, 10))
	r.take(8)
	wantAck(t, "all is taken", r, 8)
	wantAck(t, "again", r, 0)
	r.goOn(wire.ID{1})
	wantAck(t, "on another circuit", r, 8)
	wantAck(t, "once more", r, 0)
	addAll(t, r, chunkOf(9, 10), chunkOf(10, 10))
	r.goOn(wire.ID{1})
	r.take(9)
	wantAck(t, "on a third one, with some not taken", r, 9)
}

func TestLogThatReplacesALostOneIsAcknowledgedInItsOwnNumbers(t *testing.T) {
	r := &received{limit: 10_000, epoch: wire.ID{1}}
	addAll(t, r, chunkOf(1, 10), chunkOf(2, 10), chunkOf(3, 10))
	r.take(2)
	r.goOn(wire.ID{2})
	wantAck(t, "before anything arrived", r, 0)
	if after, epoch := r.position(); after != 0 || epoch != (wire.ID{2}) {
		t.Errorf("goes on after %d of %v, want the beginning of the new log", after, epoch)
	}
	addAll(t, r, chunkOf(1, 10), chunkOf(2, 10))
	wantAck(t, "output that nobody sees", r, 2)
	addAll(t, r, exitOf(3))
	resp, _, _ := r.read(2, 100)
	if len(resp.Chunks) != 1 || resp.Next != 3 {
		t.Errorf("read(2): %+v, want what had arrived", resp)
	}
	resp, _, _ = r.read(3, 100)
	if resp.Gap == nil || *resp.Gap != (wire.Gap{From: 4, To: 4}) || resp.Exit == nil || resp.Next != 5 || len(resp.Chunks) != 0 {
		t.Errorf("read(3): %+v, want a gap and the exit", resp)
	}
	wantAck(t, "an exit that was not taken", r, 0)
	r.take(5)
	wantAck(t, "the exit", r, 3)
}
