package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// history is one random life of a client, an executor and what is between them.
type history struct {
	*hostileRelay
	seed uint64
	// inOrder: what is sent to the executor a second time never comes before the first. Only then does the client
	// know what certainly did not run: to a copy that overtakes the client's own circuit the executor answers
	// where nobody hears it, and what the client gets is no_channel.
	inOrder bool
	names   atomic.Uint64
	replays atomic.Int64
	folders atomic.Int64 // that the executor has had

	mu      sync.Mutex
	signals []signalled
	refused map[string]error // by token: the client was told that it certainly did not run; nil: once it was not
	renewed map[string]bool  // by token: it was asked for again after the executor had lost its state
}

// signalled is a call that asked for a signal.
type signalled struct {
	token  string
	signal wire.Signal
	ended  time.Time
	err    error
}

// misdeed is what the relay does with circuit n. The same seed and number give the same.
func (h *history) misdeed(n int) treatment {
	r := rand.New(rand.NewPCG(h.seed, uint64(n)))
	pick := func(of ...time.Duration) time.Duration { return of[r.IntN(len(of))] }
	if n > 0 && r.IntN(2) == 0 { // and one of before comes again
		rec, later := h.circuits[r.IntN(n)], pick(0, time.Second, 20*time.Second, 31*time.Minute, 61*time.Minute, 3*time.Hour, 25*time.Hour)
		h.running.Go(func() {
			if h.wait(later) && len(rec.all()) > 0 && (rec.hasPassed() || !h.inOrder) {
				h.replays.Add(1)
				h.replay(rec)
			}
		})
	}
	switch r.IntN(10) {
	case 0:
		return treatment{hold: pick(time.Second, 5*time.Second, 20*time.Second)} // reorders what is at the same time
	case 1:
		return treatment{hold: pick(29*time.Second, 40*time.Second, 5*time.Minute, time.Hour, 24*time.Hour)}
	case 2:
		return treatment{after: r.IntN(3000), pause: pick(time.Second, 20*time.Second, 50*time.Second, 10*time.Minute)}
	case 3:
		return treatment{copy: !h.inOrder}
	case 4:
		return treatment{deaf: true}
	case 5:
		return treatment{cut: 1 + r.IntN(3000)}
	}
	return treatment{}
}

// bounded calls do, which must return in time by itself.
func (h *history) bounded(what string, most time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	err := do(ctx)
	if ctx.Err() != nil {
		h.t.Errorf("%s has not returned after %v: %v", what, most, err)
	}
	return err
}

const (
	// A call that makes a request has two tries on a silent channel, each after handshakes of others
	// that fail, and then its patience.
	longestCall = hostilePatience + 5*time.Minute
	longestWait = 40 * time.Minute
)

// start starts a command for at most d, and notes what the client is told when it fails.
func (h *history) start(d time.Duration, p wire.ExecParams) wire.ExecProcess {
	var proc wire.ExecProcess
	try := func(ctx context.Context) error {
		started, err := h.remote.Start(ctx, p)
		if err == nil {
			proc = started
		}
		return err
	}
	var err error
	if d > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		err = try(ctx)
	} else {
		err = h.bounded("Start", longestCall, try)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	earlier, again := h.refused[p.Argv[1]]
	if err == nil || errors.Is(err, wire.ErrLost) || wire.CodeOf(err) == wire.CodeUnknown || again && earlier == nil {
		h.refused[p.Argv[1]] = nil
	} else {
		h.refused[p.Argv[1]] = err
	}
	return proc
}

// end waits for the end of an exec, and checks what the client is told.
func (h *history) end(p wire.ExecProcess, token string) {
	defer p.Close()
	var status wire.ExitStatus
	err := h.bounded("Wait", longestWait, func(ctx context.Context) (err error) {
		status, err = p.Wait(ctx)
		return err
	})
	switch {
	case err == nil:
		h.ledger.wantTruth(h.t, token, status)
	case wire.CodeOf(err) != wire.CodeUnknown:
		h.t.Errorf("%s: Wait: %v", token, err)
	}
}

func (h *history) signal(token string, s wire.Signal, do func(context.Context, wire.Signal) error) {
	err := h.bounded("Signal", longestCall, func(ctx context.Context) error { return do(ctx, s) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signals = append(h.signals, signalled{token, s, time.Now(), err})
}

// act is one thing that a user does.
func (h *history) act(r *rand.Rand) {
	token := fmt.Sprint("t", h.names.Add(1))
	p := wire.ExecParams{ID: wire.NewExecID(), Argv: []string{"append", token, fmt.Sprint(r.IntN(100)), fmt.Sprint(r.IntN(20), "s")}}
	folder := h.folders.Load()
	defer func() {
		if h.folders.Load() != folder {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.renewed[token] = true
		}
	}()
	switch r.IntN(6) {
	case 0: // gives up early, and looks again later
		if proc := h.start(time.Duration(1+r.IntN(40))*time.Second, p); proc != nil {
			proc.Close()
		}
		<-time.After(time.Duration(r.IntN(120)) * time.Second)
		fallthrough
	case 1: // asks again with the same id
		if proc := h.start(0, p); proc != nil {
			proc.Close()
		}
		if proc := h.start(0, p); proc != nil {
			h.end(proc, token)
		}
	case 2, 3:
		p.Argv = []string{"signals", token, "10m"}
		proc := h.start(0, p)
		if proc == nil {
			return
		}
		<-time.After(time.Millisecond) // it ignores signals now
		for i := range 1 + r.IntN(4) {
			h.signal(token, wire.Signal(fmt.Sprintf("RTMIN+%d", 1+2*i)), proc.Signal)
			h.signal(token, wire.Signal(fmt.Sprintf("RTMIN+%d", 2+2*i)), func(ctx context.Context, s wire.Signal) error {
				return h.remote.Signal(ctx, wire.ExecRef{ID: p.ID}, s)
			})
		}
		if r.IntN(2) == 0 {
			h.signal(token, "TERM", func(ctx context.Context, _ wire.Signal) error { return proc.Terminate(ctx, 0) })
		}
		h.end(proc, token)
	default:
		if proc := h.start(0, p); proc != nil {
			h.end(proc, token)
		}
	}
}

// restarts ends the executor now and then, and once in a while its state is gone.
func (h *history) restarts(r *rand.Rand, users chan struct{}) {
	for {
		select {
		case <-time.After(time.Duration(5+r.IntN(20)) * time.Minute):
		case <-users:
			return
		}
		h.closeExecutor()
		<-time.After(time.Duration(r.IntN(60)) * time.Second)
		state := h.state
		if r.IntN(5) == 0 {
			state = h.t.TempDir()
			h.folders.Add(1)
		}
		h.openExecutor(state)
	}
}

func (h *history) check(t *testing.T) {
	t.Helper()
	for token := range h.renewed {
		h.ledger.excuse(token)
	}
	h.ledger.wantOnce(t)
	for _, s := range h.signals {
		acts := h.ledger.actsOf(s.token, s.signal)
		switch {
		case s.err == nil && len(acts) == 0:
			t.Errorf("%s %s was answered and never acted", s.token, s.signal)
		case s.err == nil && acts[0].After(s.ended):
			t.Errorf("%s %s acted %v after it was answered", s.token, s.signal, acts[0].Sub(s.ended))
		case len(acts) > 0 && acts[0].Sub(s.ended) > latest(s.signal):
			t.Errorf("%s %s acted %v after its caller had given up", s.token, s.signal, acts[0].Sub(s.ended))
		}
	}
	for token, err := range h.refused {
		if h.inOrder && err != nil && h.ledger.startsOf(token) > 0 {
			t.Errorf("%s did run, and the client was told: %v", token, err)
		}
	}
}

// latest is how long after its caller has given up a signal can act. TERM is also what the executor sends by itself: when it ends, and when
// the grace of a command is over that nobody controls, of whose last controller it has heard at most mostLag too long.
// TestHeldSignalOfAHandleActsSoonOrNever has the caller's TERM alone.
func latest(s wire.Signal) time.Duration {
	if s == "TERM" {
		return wire.DefaultGrace + mostLag
	}
	return mostLag
}

func TestNoHistoryOfAHostileRelayActsTwice(t *testing.T) {
	for i := range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
				h := &history{hostileRelay: r, seed: seed, inOrder: i%2 == 0, refused: make(map[string]error), renewed: make(map[string]bool)}
				r.run(t, "first")
				r.treats(h.misdeed)
				var users sync.WaitGroup
				for user := range 4 {
					users.Go(func() {
						r := rand.New(rand.NewPCG(seed, uint64(1_000_000+user)))
						for range 10 {
							h.act(r)
							<-time.After(time.Duration(r.IntN(180)) * time.Second)
						}
					})
				}
				gone := make(chan struct{})
				var restarting sync.WaitGroup
				restarting.Go(func() { h.restarts(rand.New(rand.NewPCG(seed, 2_000_000)), gone) })
				users.Wait()
				close(gone)
				restarting.Wait()
				r.treats(nil)
				r.dropClient()
				<-time.After(26 * time.Hour) // everything that was held or kept comes in this time
				h.check(t)
				t.Logf("%d circuits, %d replays, %d commands, %d signals, over %v; the state was lost %d times",
					len(r.recorded()), h.replays.Load(), r.runner.Starts(), len(h.signals), r.clock().Round(time.Hour), h.folders.Load())
			})
		})
	}
}
