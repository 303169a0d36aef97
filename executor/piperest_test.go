//go:build unix

package executor

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/wire"
)

// The reader is held up from before the end of the command until its time is over: that costs no output, and nobody is said to
// hold a pipe that nobody holds.
func TestOutputThatIsInThePipeIsTakenHoweverLate(t *testing.T) {
	for _, c := range []struct {
		name    string
		held    bool
		endless bool
		expired bool // the deadline of the Read has passed before it is tried
		size    int  // bytes of output that are there at the end of the command
	}{
		{"closed", false, false, false, 64 << 10},
		{"closed and short", false, false, false, 1},
		{"closed, and never read", false, false, true, 64 << 10},
		{"held by another", true, false, false, 64 << 10},
		{"held by another, and never read", true, false, true, 64 << 10},
		{"held by another that goes on printing", true, true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				x := newExecution(wire.ExecInfo{}, nil)
				x.log = execlog.New(execlog.Config{Window: 4 << 20, Keep: 4 << 20})
				printed := 0
				x.printedBytes = func(_ wire.OutputStream, n int) { printed += n }
				slow := &lateReader{File: r, expired: c.expired, reading: make(chan struct{}), goOn: make(chan struct{})}
				held := make(chan bool)
				go func() { held <- x.readPipe(OutputPipe{wire.Stdout, slow}) }()
				<-slow.reading
				if _, err := w.Write(make([]byte, c.size)); err != nil {
					t.Fatal(err)
				}
				if !c.held {
					w.Close()
				}
				x.exitedAt = time.Now()
				close(x.exited)
				time.Sleep(2 * wire.DrainDeadline) // on the bubble's clock
				printing := make(chan struct{})
				go func() {
					defer close(printing)
					for c.endless {
						if _, err := w.Write(make([]byte, 4<<10)); err != nil {
							return // nobody reads any more
						}
					}
				}()
				close(slow.goOn)
				if got := <-held; got != c.held {
					t.Errorf("held is %v, want %v", got, c.held)
				}
				<-printing
				if !c.endless && printed != c.size || printed > largestPipe+2*wire.MaxChunk {
					t.Errorf("%d bytes were taken, want %d", printed, c.size)
				}
				if last := x.log.LastSeq(); last == 0 {
					t.Error("nothing of it is in the log")
				}
			})
		})
	}
}

// lateReader is a pipe whose first Read is held up.
type lateReader struct {
	*os.File
	expired       bool
	reading, goOn chan struct{}
}

func (l *lateReader) Read(b []byte) (int, error) {
	if !isClosed(l.reading) {
		close(l.reading)
		<-l.goOn
	}
	if l.expired {
		l.File.SetReadDeadline(time.Unix(1, 0))
	}
	return l.File.Read(b)
}
