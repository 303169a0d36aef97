package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// drip prints size bytes of Pattern, a kilobyte every tenth of a second.
func drip(size int) executortest.Command {
	return func(p *executortest.Process) int {
		for at := 0; at < size; at += 1024 {
			if _, err := p.Stdout.Write(executortest.PatternAt(at, min(1024, size-at))); err != nil || !p.Sleep(100*time.Millisecond) {
				return 1
			}
		}
		return 0
	}
}

func TestWarmExecTakesOneRoundTripAndColdOneFourMore(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		firstByte := func() time.Duration {
			t.Helper()
			began := time.Now()
			proc, err := p.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"echo", "x"}})
			if err != nil {
				t.Fatal(err)
			}
			defer proc.Close()
			r, err := proc.Read(t.Context(), wire.ReadRequest{Wait: time.Hour})
			if err != nil || len(r.Chunks) == 0 {
				t.Fatalf("Read: %+v, %v", r, err)
			}
			return time.Since(began)
		}
		cold := firstByte()
		<-time.After(time.Second)
		warm := firstByte()
		t.Logf("a round trip is %v on a hop, %v in all; first byte of output cold after %v, warm after %v", hopTrip, wholeTrip, cold, warm)
		if warm > wholeTrip+oneWay/2 {
			t.Errorf("a warm exec took %v, want one round trip of %v", warm, wholeTrip)
		}
		// QUIC one, the hop two (its handshake, then the relay's welcome), end to end one, exec one.
		if most := 3*hopTrip + 2*wholeTrip; cold > most+oneWay/2 {
			t.Errorf("a cold exec took %v, want %v", cold, most)
		}
	})
}

func TestLossyNetworkChangesNoByte(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, share := range []float64{0.01, 0.05, 0.1} {
		t.Run(fmt.Sprintf("%.0f percent", share*100), func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				p.network.lose(share, seed)
				p.exchange(t, 200_000, true)
				p.network.lose(0, seed)
			})
		})
	}
}

// exchange carries size bytes each way at once. It fails the test for a success that is not exact,
// and for an error where none may be.
func (p *parties) exchange(t *testing.T, size int, mustSucceed bool) error {
	t.Helper()
	input := executortest.PatternAt(77, size)
	var stdout, stderr bytes.Buffer
	cmd := p.command("exchange", fmt.Sprint(size))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	err := cmd.Run(t.Context())
	exact := bytes.Equal(stdout.Bytes(), executortest.Pattern(size)) && stderr.String() == executortest.Sum(input)
	if err == nil && !exact {
		t.Fatalf("success with %d bytes of output and %q, which is not exact", stdout.Len(), stderr.String())
	}
	if err != nil && mustSucceed {
		t.Fatalf("exchange of %d bytes: %v", size, err)
	}
	if _, failed := errors.AsType[*client.ExitError](err); failed {
		t.Fatalf("a cut looks like a failure of the command: %v", err)
	}
	return err
}

func TestOutageShorterThanTheIdleTimeoutIsNotNoticed(t *testing.T) {
	for name, host := range map[string]byte{"of the client": clientHost, "of the executor": itsHost, "of the relay": relayHost} {
		t.Run(name, func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				const size = 200 << 10 // takes 20 s
				p.runner.Handle("drip", drip(size))
				go func() {
					<-time.After(5 * time.Second)
					p.network.setDown(host, true)
					<-time.After(8 * time.Second)
					p.network.setDown(host, false)
				}()
				out, err := p.command("drip").Output(t.Context())
				if err != nil || !bytes.Equal(out, executortest.Pattern(size)) {
					t.Errorf("%d bytes of output, %v, want all %d", len(out), err, size)
				}
				if connects, _ := p.opened(); connects != 1 {
					t.Errorf("%d connections, want 1", connects)
				}
			})
		})
	}
}

func TestOutageLongerThanTheIdleTimeoutDetaches(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		p.impatient()
		const grace = 5 * time.Minute
		cmd := p.command("sleep", "24h")
		cmd.Params.Grace = grace
		if err := cmd.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		viewer, err := p.mine().Attach(t.Context(), cmd.Process().ID(), wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		p.network.setDown(clientHost, true)
		began := time.Now()
		lost := make(chan time.Duration, 1)
		go func() {
			if _, err := cmd.Wait(context.Background()); !errors.Is(err, wire.ErrLost) {
				t.Errorf("the client's Wait: %v, want ErrLost", err)
			}
			lost <- time.Since(began)
		}()
		const step = 10 * time.Millisecond
		for viewer.Info().Attached {
			<-time.After(step)
		}
		detached := time.Now()
		// QUIC counts anew from the first packet that wants an answer and gets none (RFC 9000
		// section 10.1), and the relay may send one just before its time is over: the executor's Ping.
		if took := detached.Sub(began); took > 2*wire.ClientIdle+time.Second {
			t.Errorf("detached after %v, want at most %v", took, 2*wire.ClientIdle)
		}
		status, err := viewer.Wait(t.Context())
		if err != nil || status.Cause != wire.CauseTerminated || status.Signal != "TERM" {
			t.Errorf("ended %+v, %v, want terminated", status, err)
		}
		if off := time.Since(detached) - grace; off > 0 || off < -step {
			t.Errorf("ended %v after the detach, want %v", time.Since(detached), grace)
		}
		// QUIC counts anew from the first heartbeat that gets no answer.
		if took, most := <-lost, wire.ClientIdle+wire.ClientHeartbeat*11/10; took > most {
			t.Errorf("the client noticed after %v, want at most %v", took, most)
		}
		p.network.setDown(clientHost, false)
		if again, err := p.remote.Attach(t.Context(), cmd.Process().ID(), wire.AttachOptions{Control: true}); err != nil {
			t.Errorf("attach when the network is back: %v", err)
		} else if got, err := again.Wait(t.Context()); err != nil || !got.Equal(status) {
			t.Errorf("the result is %+v, %v, want %+v", got, err, status)
		}
	})
}

func TestExecutorComesBackAfterARelayRestart(t *testing.T) {
	for name, restart := range map[string]func(p *parties){
		"that said goodbye": func(p *parties) {
			p.stopRelay()
			<-time.After(5 * time.Second)
		},
		"that did not": func(p *parties) {
			p.network.setDown(relayHost, true)
			p.stopRelay()
			<-time.After(5 * time.Second)
			p.network.setDown(relayHost, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNetwork(t, func(t *testing.T, p *parties) {
				const size = 300 << 10 // takes half a minute
				p.runner.Handle("drip", drip(size))
				proc, err := p.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"drip"}})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					<-time.After(5 * time.Second)
					restart(p)
					p.startRelay()
				}()
				var out []byte
				after := uint64(0)
				for exited := false; !exited; {
					for e, err := range proc.Events(t.Context(), after) {
						if err != nil {
							break
						}
						after = e.Seq
						exited = e.Exit != nil
						if e.Gap != nil {
							t.Fatalf("gap %+v", e.Gap)
						}
						if e.Chunk != nil {
							out = append(out, e.Chunk.Data...)
						}
					}
					if exited {
						break
					}
					for { // until client and executor are both back
						again, err := p.remote.Attach(t.Context(), proc.ID(), wire.AttachOptions{After: after, Control: true})
						if err == nil {
							proc.Close()
							proc = again
							break
						}
						<-time.After(time.Second)
					}
				}
				if !bytes.Equal(out, executortest.Pattern(size)) {
					t.Errorf("%d bytes of output, want all %d", len(out), size)
				}
				if n := len(p.registered); n != 1 {
					t.Errorf("the executor registered %d times more, want once", n)
				}
				if _, kinds := p.opened(); bytes.Count(kinds, []byte{1}) != 1 {
					t.Errorf("circuits of kinds %v, want one handshake for both connections", kinds)
				}
				if p.runner.Starts() != 1 {
					t.Errorf("%d commands ran, want 1", p.runner.Starts())
				}
			})
		})
	}
}

func TestSessionSurvivesTheConnection(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		p.exchange(t, 1000, true)
		p.network.setDown(clientHost, true)
		<-time.After(20 * time.Second)
		p.network.setDown(clientHost, false)
		p.exchange(t, 1000, true)
		if connects, kinds := p.opened(); connects != 2 || !bytes.Equal(kinds, []byte{1, 2}) {
			t.Errorf("%d connections and circuits of kinds %v, want 2 and one handshake in all", connects, kinds)
		}
	})
}

func TestIdleLinkStaysUpForHours(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		p.exchange(t, 1000, true)
		long := p.command("sleep", "3h", "done")
		var out bytes.Buffer
		long.Stdout = &out
		if err := long.Run(t.Context()); err != nil || out.String() != "done\n" {
			t.Errorf("a command of three hours: %q, %v", out.String(), err)
		}
		p.exchange(t, 1000, true)
		if connects, _ := p.opened(); connects != 1 || len(p.registered) != 0 {
			t.Errorf("%d connections of the client and %d more of the executor, want 1 and 0", connects, len(p.registered))
		}
	})
}

func TestHalfCloseReachesTheOtherEnd(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		input := executortest.Pattern(100_000)
		sum := p.command("sum") // says nothing before its input has ended
		sum.Stdin = bytes.NewReader(input)
		if out, err := sum.Output(t.Context()); err != nil || string(out) != executortest.Sum(input) {
			t.Errorf("output after the end of the input: %q, %v", out, err)
		}
		deaf, err := p.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"deaf", "1m"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		defer deaf.Close()
		for offset, err := uint64(0), error(nil); err == nil; offset++ {
			err = deaf.Write(t.Context(), offset, []byte{0})
			if err != nil && !errors.Is(err, wire.ErrStdinClosed) {
				t.Errorf("input of a command that reads no more: %v, want ErrStdinClosed", err)
			}
			<-time.After(wholeTrip)
		}
		if status, err := deaf.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("its end: %+v, %v", status, err)
		}
	})
}

func TestCutCircuitIsNeverAShortSuccess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 8))
	const size = 60_000
	failed := 0
	onNetwork(t, func(t *testing.T, p *parties) {
		p.impatient()
		p.mu.Lock()
		p.cut = func() *cutter {
			c := uncut()
			if r.IntN(2) == 0 {
				c.read = int64(r.IntN(size + 6000))
			} else {
				c.written = int64(r.IntN(size + 6000))
			}
			return c
		}
		p.mu.Unlock()
		for range 30 {
			if p.exchange(t, size, false) != nil {
				failed++
			}
		}
	})
	if failed < 15 {
		t.Errorf("only %d of 30 exchanges were cut: this tested little", failed)
	}
}
