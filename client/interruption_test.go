package client

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

func TestPatienceEndsInALossThatNamesItsReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []Interruption
		w.remote.cfg.Interrupted = func(i Interruption) { told = append(told, i) }
		cut := w.cuttable()
		p := w.begin("sleep", "24h")
		synctest.Wait()
		w.refusing(&relayRefusal{wire.Errorf(wire.CodeUnreachable, "the executor is offline")})
		cut()
		began := time.Now()
		_, err := p.Wait(t.Context())
		wantLost(t, "Wait", err)
		wantCode(t, "Wait", err, wire.CodeUnknown)
		if took := time.Since(began); took != DefaultPatience || !bytes.Contains([]byte(err.Error()), []byte("offline")) {
			t.Errorf("Wait: %v after %v, want the relay's words after %v", err, took, DefaultPatience)
		}
		wantLost(t, "Signal", p.Signal(t.Context(), "INT"))
		wantLost(t, "Write", p.Write(t.Context(), 0, []byte("x")))
		if len(told) != 1 || told[0].Err == nil || told[0].Exec != p.ID() {
			t.Errorf("told: %+v, want one loss", told)
		}
	})
}

func TestInterruptionIsToldOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []Interruption
		w.remote.cfg.Interrupted = func(i Interruption) { told = append(told, i) }
		cut := w.cuttable()
		p := w.begin("sleep", "1h", "done")
		for range 3 {
			<-time.After(5 * time.Minute)
			w.refusing(wire.ErrLost)
			cut()
			<-time.After(time.Minute)
			w.refusing(nil)
		}
		if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
		if len(told) != 6 {
			t.Fatalf("told %d times: %+v, want 6", len(told), told)
		}
		for i, one := range told {
			lost := i%2 == 0
			if one.Exec != p.ID() || one.Executor != w.it.Public() || (one.Err != nil) != lost {
				t.Errorf("interruption %d: %+v", i, one)
			}
			if !lost && (one.Lasted < time.Minute || one.Lasted > time.Minute+lastPause) {
				t.Errorf("interruption %d lasted %v, want about a minute", i, one.Lasted)
			}
		}
	})
}

func TestBusyExecutorIsGivenTheTimeItAsksFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		busy := func(c *noiseconn.Conn, _ wire.Message) {
			c.Send(&wire.Refused{Code: wire.CodeBusy, RetryMillis: 20_000})
			c.CloseWrite()
		}
		w.returning(saying(nil, out(1, "a")), busy, busy, saying(nil, exit(2, 0)))
		if status, err := w.begin("x").Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
		if took := w.clock(); took < 40*time.Second || took > 41*time.Second {
			t.Errorf("it took %v, want a little more than the 40s that were asked for", took)
		}
	})
}

func TestPausesGrowAndTheFirstTryIsMadeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newComeback(time.Hour)
		for i, most := range []time.Duration{0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000} {
			most *= time.Millisecond
			began := time.Now()
			if !b.pause(t.Context(), wire.ErrLost) {
				t.Fatal("no more tries")
			}
			if took := time.Since(began); took > most || took < most/2 {
				t.Errorf("pause %d took %v, want %v to %v", i, took, most/2, most)
			}
		}
	})
}

func TestCloseDuringAReconnectReturnsAtOnce(t *testing.T) {
	for name, closing := range map[string]func(w *world, p wire.ExecProcess) error{
		"the handle": func(_ *world, p wire.ExecProcess) error { return p.Close() },
		"the remote": func(w *world, _ wire.ExecProcess) error { return w.remote.Close() },
	} {
		for how, bad := range map[string]func(w *world){
			"refused": func(w *world) { w.refusing(wire.ErrLost) },
			"silent":  func(w *world) { w.set(func() { w.serve = func(s wire.Stream) { <-w.ctx.Done() } }) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					cut := w.cuttable()
					p := w.begin("sleep", "1h")
					synctest.Wait()
					bad(w)
					cut()
					<-time.After(7 * time.Second)
					read := make(chan error)
					go func() {
						_, err := p.Read(t.Context(), wire.ReadRequest{Wait: time.Hour})
						read <- err
					}()
					synctest.Wait()
					began := time.Now()
					if err := closing(w, p); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > 0 {
						t.Errorf("Close took %v", took)
					}
					if err := <-read; !errors.Is(err, wire.ErrClosed) {
						t.Errorf("Read: %v, want ErrClosed", err)
					}
				})
			})
		}
	}
}

func TestCloseOfALiveHandleIsNoInterruption(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.remote.cfg.Interrupted = func(i Interruption) { t.Errorf("told: %+v", i) }
		p := w.begin("sleep", "1h")
		q := w.begin("sleep", "1h")
		w.set(func() { w.kinds = nil })
		p.Close()
		go q.Close()
		w.remote.Close()
		<-time.After(time.Minute)
		w.wantKinds("after Close")
	})
}

func TestFlakyLinkIsNotGivenUpAsLongAsItComesBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p := w.begin("sleep", "1h")
		go func() {
			for range 350 { // less than a Ping comes through between two of them
				<-time.After(10 * time.Second)
				cut()
			}
		}()
		if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
	})
}

func TestTakenOutputIsAcknowledgedAgainOnANewCircuit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const size = 3 * wire.OutputWindow
		r := rand.New(rand.NewPCG(1, 1))
		w.output("echo")
		w.fused(func() (int64, int64) { return int64(wire.OutputWindow/2 + r.IntN(wire.OutputWindow)), -1 })
		if out := w.output("flood", fmt.Sprint(size)); out != string(executortest.Pattern(size)) {
			t.Errorf("%d bytes of output that are not the %d printed", len(out), size)
		}
	})
}

// An executor that comes back without the exec cannot tell how it ended.
func TestExecThatTheExecutorDoesNotKnowAnyMoreHasAnUnknownOutcome(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cut := w.cuttable()
		p := w.begin("sleep", "1h")
		synctest.Wait()
		old := w.local
		defer old.Close()
		var err error
		if w.local, err = executor.NewLocal(executor.LocalConfig{Runner: w.runner}); err != nil {
			t.Fatal(err)
		}
		w.restart()
		cut()
		_, err = p.Wait(t.Context())
		wantCode(t, "Wait", err, wire.CodeUnknown)
	})
}

func TestClientComesBackThroughANewConnection(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		it, begun := newKey(t, keys.Executor), time.Now()
		local, err := executor.NewLocal(executor.LocalConfig{Runner: new(executortest.Runner)})
		if err != nil {
			t.Fatal(err)
		}
		defer local.Close()
		e := newExecutor(t, it, c.cfg.Key.Public(), local, func() time.Duration { return time.Since(begun) })
		c.cfg.Clock = func() time.Duration { return time.Since(begun) }
		r.circuit = func(s wire.Stream, _ *wire.Dial) {
			wire.WriteFrame(s, &wire.DialReply{Circuit: 1})
			e.ServeCircuit(r.ctx, s, c.cfg.Key.Public().Raw())
		}
		p, err := c.Executor(it.Public()).Start(t.Context(), wire.ExecParams{Argv: []string{"sleep", "1m", "back"}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.refuse = func(n int) error {
			if n < 5 {
				return errors.New("network is unreachable")
			}
			return nil
		}
		r.current.Close(wire.CodeShutdown, "restart")
		if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
		if n := r.dialled(); n != 5 {
			t.Errorf("%d connections were tried, want 5", n)
		}
	})
}
