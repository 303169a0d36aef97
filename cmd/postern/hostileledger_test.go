package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// ledger is what commands really did, whoever claims what. It outlives executors.
type ledger struct {
	mu     sync.Mutex
	starts map[string]int         // by the token that each exec has of its own
	acts   map[string][]time.Time // by token and signal
	ends   map[string]wire.ExitStatus
}

// handle adds the commands that write into the ledger:
//
//	append TOKEN CODE DURATION  prints its token, and ends with the code after the duration
//	signals TOKEN DURATION      prints each signal that it gets
func (l *ledger) handle(r *executortest.Runner) {
	l.starts, l.acts, l.ends = make(map[string]int), make(map[string][]time.Time), make(map[string]wire.ExitStatus)
	r.Handle("append", func(p *executortest.Process) int {
		l.started(p.Argv[1])
		code, _ := strconv.Atoi(p.Argv[2])
		d, _ := time.ParseDuration(p.Argv[3])
		fmt.Fprintln(p.Stdout, p.Argv[1])
		if !p.Sleep(d) {
			return 1
		}
		l.ended(p.Argv[1], code)
		return code
	})
	r.Handle("signals", func(p *executortest.Process) int {
		p.Ignore()
		l.started(p.Argv[1])
		d, _ := time.ParseDuration(p.Argv[2])
		end := time.NewTimer(d)
		defer end.Stop()
		for {
			select {
			case s := <-p.Signals:
				l.acted(p.Argv[1], s)
				fmt.Fprintln(p.Stdout, s)
			case <-end.C:
				l.ended(p.Argv[1], 0)
				return 0
			case <-p.Context().Done():
				return 1
			}
		}
	})
}

func (l *ledger) started(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[token]++
}

func (l *ledger) acted(token string, s wire.Signal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := token + " " + string(s)
	l.acts[key] = append(l.acts[key], time.Now())
}

// ended is called where nobody has ended the command before its time.
func (l *ledger) ended(token string, code int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[token] = wire.ExitStatus{Code: code, Cause: wire.CauseExited}
}

func (l *ledger) startsOf(token string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starts[token]
}

func (l *ledger) actsOf(token string, s wire.Signal) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acts[token+" "+string(s)]
}

// excuse forgets a token whose id was used anew for an executor that knew nothing of it.
func (l *ledger) excuse(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starts, token)
}

// wantOnce checks that nothing ever ran twice, and that no signal acted twice. TERM is also what the executor
// sends by itself.
func (l *ledger) wantOnce(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for token, n := range l.starts {
		if n > 1 {
			t.Errorf("%s was started %d times", token, n)
		}
	}
	for key, at := range l.acts {
		if len(at) > 1 && !strings.HasSuffix(key, " TERM") {
			t.Errorf("%s acted %d times", key, len(at))
		}
	}
}

// wantTruth checks an exit status that a client was told.
func (l *ledger) wantTruth(t *testing.T, token string, told wire.ExitStatus) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	really, whole := l.ends[token]
	switch {
	case l.starts[token] == 0:
		t.Errorf("%s never ran, and the client was told %+v", token, told)
	case whole && !told.Equal(really) && told.Cause != wire.CauseTerminated: // which may have come too late
		t.Errorf("%s ended %+v, and the client was told %+v", token, really, told)
	case !whole && told.Cause != wire.CauseTerminated && told.Cause != wire.CauseExecutorLost:
		t.Errorf("%s was ended, and the client was told %+v", token, told)
	}
}
