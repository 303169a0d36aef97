package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

func TestCloseLetsACheckFinishAndDelaysItselfByFiveSecondsAtMost(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer time.Duration // of the next key
		used   time.Duration // before Close
		delay  time.Duration // of Close
		told   bool
	}{
		{"at once", 0, 0, 0, true},
		{"soon", 4 * time.Second, 0, 4 * time.Second, true},
		{"after a while", 7 * time.Second, 4 * time.Second, 3 * time.Second, true},
		{"too late", 6 * time.Second, 0, lingerAtMost, false},
		{"never", time.Hour, 0, lingerAtMost, false},
		{"never, and given up before", time.Hour, wire.HandshakeTimeout, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inSuccession(t, func(t *testing.T, s *succession, old, next *announcer) {
				next.before = func(ctx context.Context) {
					select {
					case <-time.After(c.answer):
					case <-ctx.Done():
					}
				}
				s.use()
				<-time.After(c.used)
				synctest.Wait()
				began := time.Now()
				s.remote.Close()
				if took := time.Since(began); took != c.delay {
					t.Errorf("Close took %v, want %v", took, c.delay)
				}
				if c.told {
					s.want(t, "at the end of Close", pair(old.key, next.key))
				} else {
					s.want(t, "at the end of Close")
				}
				began = time.Now()
				s.remote.Close()
				if took := time.Since(began); took != 0 {
					t.Errorf("a second Close took %v", took)
				}
			})
		})
	}
}

func TestCheckWhoseCircuitNeverOpensIsGivenUp(t *testing.T) {
	inSuccession(t, func(t *testing.T, s *succession, old, _ *announcer) {
		s.remote.Close()
		cfg, ended := s.config(old), make(chan time.Duration, 1)
		cfg.OpenCircuitTo = func(ctx context.Context, _ keys.PublicKey) (wire.Stream, error) {
			began := time.Now()
			<-ctx.Done()
			ended <- time.Since(began)
			return nil, context.Cause(ctx)
		}
		s.remote = NewRemote(cfg)
		s.use()
		if took := <-ended; took != wire.HandshakeTimeout {
			t.Errorf("given up after %v, want %v", took, wire.HandshakeTimeout)
		}
	})
}

func TestClientCloseWaitsForAllChecksTogether(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		s := &succession{t: t, ctx: r.ctx, begun: time.Now(), announced: make(map[keys.PublicKey]*announcer)}
		cfg := c.cfg
		cfg.ExecutorKeyReplaced = s.told
		silent := 0
		r.circuit = func(stream wire.Stream, to *wire.Dial) {
			a := s.at(executorKey(t, to.Executor))
			if a == nil {
				s.now.Lock()
				silent++
				s.now.Unlock()
				return // a next key that never answers
			}
			wire.WriteFrame(stream, &wire.DialReply{})
			s.serve(a, stream)
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			a := s.add()
			a.change = naming(newKey(t, keys.Executor))
			if _, err := c.Executor(a.key.Public()).List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if silent != 5 {
			t.Errorf("%d next keys were asked, want 5", silent)
		}
		began := time.Now()
		c.Close()
		if took := time.Since(began); took != lingerAtMost {
			t.Errorf("Close took %v, want %v for all together", took, lingerAtMost)
		}
	})
}

func TestCallbackAboutAnExecutorsKeyMayUseTheClient(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		s := &succession{t: t, ctx: r.ctx, begun: time.Now(), announced: make(map[keys.PublicKey]*announcer)}
		old, next := s.add(), s.add()
		old.change, next.change = naming(next.key), following(old.key)
		r.request = answering(&wire.Reply{})
		r.circuit = func(stream wire.Stream, to *wire.Dial) {
			wire.WriteFrame(stream, &wire.DialReply{})
			s.serve(s.at(executorKey(t, to.Executor)), stream)
		}
		cfg, done := c.cfg, make(chan error, 1)
		cfg.ExecutorKeyReplaced = func(was, is keys.PublicKey) {
			_, first := c.Executor(is).List(t.Context())
			_, second := c.Executor(was).List(t.Context())
			_, third := c.Executors(t.Context())
			began := time.Now()
			c.Close() // not wise, and no deadlock
			if took := time.Since(began); took > lingerAtMost {
				t.Errorf("Close in a callback took %v", took)
			}
			done <- errors.Join(first, second, third)
		}
		var err error
		if c, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Executor(old.key.Public()).List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("in the callback: %v", err)
		}
	})
}
