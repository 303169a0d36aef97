package executor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
)

// credited is a queue with what one client has been told of it.
func credited(window int) (*inputQueue, *inputCredit) {
	q := newInputQueue(window)
	return q, newInputCredit(q, true)
}

// taken has the command take n bytes.
func taken(t *testing.T, q *inputQueue, n int) {
	t.Helper()
	if got, err := q.offer(q.ack().offset, make([]byte, n)); err != nil || got != n {
		t.Fatalf("offer: %d of %d, %v", got, n, err)
	}
	q.wrote(n, nil)
}

func TestCreditIsToldAtOnceWhenASixteenthOfTheWindowWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, c := credited(1600)
		defer c.stop()
		owing := c.owing()
		taken(t, q, 99)
		if isClosed(owing) || c.due() != nil {
			t.Error("told after less")
		}
		taken(t, q, 1)
		if !isClosed(owing) || !isClosed(c.owing()) {
			t.Error("a writer that waits does not hear of it")
		}
		if m := c.due(); m == nil || *m != (wire.InputAck{Offset: 100, Limit: 1700}) {
			t.Errorf("told %+v", m)
		}
		if isClosed(c.owing()) || c.due() != nil {
			t.Error("told twice")
		}
	})
}

func TestCreditThatNobodyNeedsYetIsToldOnceForAllThatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, c := credited(1600)
		defer c.stop()
		begun := time.Now()
		for range 5 {
			taken(t, q, 1)
			if c.due() != nil {
				t.Error("told at once")
			}
		}
		<-c.timer.C
		if waited := time.Since(begun); waited != wire.AckDelay {
			t.Errorf("waits for %v", waited)
		}
		c.late = true
		if m := c.due(); m == nil || m.Offset != 5 {
			t.Errorf("told %+v, want 5 bytes", m)
		}
	})
}

func TestCommandThatReadsNoMoreIsToldOfAtOnceAndOnce(t *testing.T) {
	q, c := credited(1600)
	defer c.stop()
	owing := c.owing()
	q.shut()
	if m := c.due(); !isClosed(owing) || m == nil || !m.Closed {
		t.Errorf("told %+v", m)
	}
	if c.owing() != nil || c.due() != nil {
		t.Error("told twice")
	}
	viewer := newInputCredit(newInputQueue(1), false)
	defer viewer.stop()
	if viewer.owing() != nil || viewer.due() != nil {
		t.Error("a viewer is told of credit")
	}
}
