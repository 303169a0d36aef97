package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// relayDouble has a relay's key and does with circuits what a test says.
type relayDouble struct {
	t   *testing.T
	key *keys.PrivateKey
	ctx context.Context

	serving sync.WaitGroup

	mu      sync.Mutex
	dials   int
	refuse  func(dial int) error               // a connection
	circuit func(s wire.Stream, to *wire.Dial) // one that was asked for
	request func(s wire.Stream, m wire.Message)
	control func(c *noiseconn.Conn)         // after welcome
	current wire.Transport                  // the relay's side of the last connection
	gate    func(ctx context.Context) error // before each dial
	welcome func(w *wire.HopWelcome)        // changes it
	decide  func(dial int) *wire.Error      // instead of welcome, when the client has proven its key; nil: welcome
	next    *keys.PrivateKey                // a second key, or nil
	pinned  []keys.PublicKey                // which of the keys each connection wanted
}

// withRelay runs a test in a bubble with a client of a double.
func withRelay(t *testing.T, test func(t *testing.T, r *relayDouble, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		r := &relayDouble{t: t, key: newKey(t, keys.Relay)}
		var cancel context.CancelFunc
		r.ctx, cancel = context.WithCancel(context.Background())
		c, err := New(Config{Key: newKey(t, keys.Client), Relay: keys.RelayURL{Host: "relay.test", Port: 4433, Key: r.key.Public()}, Connect: r.connect})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			c.Close()
			cancel()
			r.serving.Wait()
		}()
		test(t, r, c)
	})
}

func (r *relayDouble) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *relayDouble) dialled() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

func (r *relayDouble) connect(ctx context.Context) (wire.Transport, error) {
	r.mu.Lock()
	r.dials++
	n, gate, refuse := r.dials, r.gate, r.refuse
	r.mu.Unlock()
	if gate != nil {
		if err := gate(ctx); err != nil {
			return nil, err
		}
	}
	if refuse != nil {
		if err := refuse(n); err != nil {
			return nil, err
		}
	}
	mine, theirs := wiretest.Transports([]byte("binding"))
	r.set(func() { r.current = theirs })
	r.serving.Go(func() { r.serve(theirs) })
	return mine, nil
}

func (r *relayDouble) serve(t wire.Transport) {
	defer t.Close(wire.CodeShutdown, "")
	s, err := t.AcceptStream(r.ctx)
	if err != nil {
		return
	}
	r.mu.Lock()
	cfg := noiseconn.ResponderConfig{Static: r.key, Next: r.next, Prologue: noiseconn.HopPrologue(t.Binding())}
	r.mu.Unlock()
	p, err := noiseconn.Accept(r.ctx, s, cfg)
	if err != nil {
		return
	}
	w := &wire.HopWelcome{Versions: wire.Versions, Connection: 1}
	r.mu.Lock()
	r.pinned = append(r.pinned, p.Local())
	if r.welcome != nil {
		r.welcome(w)
	}
	control, decide, n := r.control, r.decide, r.dials
	r.mu.Unlock()
	if decide != nil {
		if no := decide(n); no != nil {
			_ = p.Refuse(no)
			<-time.After(time.Second) // that it arrives before the end of the connection
			return
		}
	}
	c, err := p.Accept(w)
	if err != nil {
		return
	}
	r.serving.Go(func() {
		if control != nil {
			control(c)
		}
		for {
			m, err := c.Recv()
			if err != nil {
				return
			}
			if ping, ok := m.(*wire.HopPing); ok && control == nil {
				c.Send(&wire.HopPong{Number: ping.Number})
			}
		}
	})
	for {
		s, err := t.AcceptStream(r.ctx)
		if err != nil {
			return
		}
		r.serving.Go(func() {
			m, err := wire.ReadFrame(s)
			r.mu.Lock()
			circuit, request := r.circuit, r.request
			r.mu.Unlock()
			switch dial, ok := m.(*wire.Dial); {
			case err != nil || !ok && request == nil:
				s.Reset(wire.CodeProtocol)
			case !ok:
				request(s, m)
			case circuit != nil:
				circuit(s, dial)
			}
		})
	}
}

func TestOneAttemptServesEveryCaller(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		open := make(chan struct{})
		r.gate = func(context.Context) error {
			<-open
			return nil
		}
		got := make(chan *noiseconn.Hop, 20)
		for range cap(got) {
			go func() {
				h, err := c.link.hop(context.Background())
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.link.hop(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose context ended: %v", err)
		}
		close(open) // its end did not end the attempt
		first := <-got
		for range cap(got) - 1 {
			if h := <-got; h != first {
				t.Error("two callers have different connections")
			}
		}
		if n := r.dialled(); n != 1 {
			t.Errorf("%d connections were made, want 1", n)
		}
	})
}

func TestLostConnectionIsMadeAnewWhenItIsNeeded(t *testing.T) {
	for name, lose := range map[string]func(r *relayDouble, c *Client){
		"the relay closes":        func(r *relayDouble, _ *Client) { r.current.Close(wire.CodeShutdown, "restart") },
		"the relay falls silent":  func(*relayDouble, *Client) { <-time.After(5 * wire.ClientHeartbeat) },
		"the relay breaks Noise":  func(*relayDouble, *Client) {},
		"the relay says farewell": func(*relayDouble, *Client) {},
	} {
		t.Run(name, func(t *testing.T) {
			withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
				switch name {
				case "the relay falls silent":
					r.control = func(*noiseconn.Conn) {}
				case "the relay breaks Noise":
					r.control = func(c *noiseconn.Conn) {
						c.Send(&wire.HopHello{Role: wire.RoleClient, Versions: wire.Versions, Instance: wire.ID{1}})
					}
				case "the relay says farewell":
					r.control = func(c *noiseconn.Conn) { c.CloseWrite() }
				}
				if _, err := c.link.hop(t.Context()); err != nil {
					t.Fatal(err)
				}
				lose(r, c)
				synctest.Wait()
				if n := r.dialled(); n != 1 {
					t.Errorf("%d connections before anybody needed one, want 1", n)
				}
				r.set(func() { r.control = nil })
				if _, err := c.link.hop(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := r.dialled(); n != 2 {
					t.Errorf("%d connections, want 2", n)
				}
			})
		})
	}
}

func TestRelayThatIsLoadedIsTriedAgainAndOneThatRefusesIsNot(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		times int // that it is refused
		again bool
	}{
		{"busy", &wire.Error{Code: wire.CodeBusy, RetryAfter: time.Second}, 2, true},
		{"dropped", wire.ErrLost, 2, true},
		{"silent once", quicconn.ErrNoAnswer, 1, true},
		{"silent", fmt.Errorf("dial: %w", quicconn.ErrNoAnswer), 2, false},
		{"unauthorized", wire.Errorf(wire.CodeUnauthorized, "who are you"), 1, false},
		{"no such name", errors.New("does not resolve"), 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			withRelay(t, func(t *testing.T, r *relayDouble, cl *Client) {
				r.refuse = func(n int) error {
					if n <= c.times {
						return c.err
					}
					return nil
				}
				_, err := cl.link.hop(t.Context())
				want := c.times
				if c.again {
					want++
				}
				if n := r.dialled(); (err == nil) != c.again || n != want {
					t.Errorf("%v after %d attempts, want %d, and to get in: %v", err, n, want, c.again)
				}
				if !c.again && !errors.Is(err, c.err) {
					t.Errorf("the error is %v, want %v in it", err, c.err)
				}
			})
		})
	}
}

func TestRelayThatIsNeverFreeIsGivenUp(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.refuse = func(int) error { return &wire.Error{Code: wire.CodeBusy, Text: "full", RetryAfter: time.Second} }
		began := time.Now()
		_, err := c.link.hop(t.Context())
		wantCode(t, "connect", err, wire.CodeBusy)
		if took := time.Since(began); took > wire.HandshakeTimeout {
			t.Errorf("it took %v, want at most %v", took, wire.HandshakeTimeout)
		}
	})
}

func TestRelayWithAnotherKeyOrVersionIsRefused(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		right := r.key
		r.set(func() { r.key = newKey(t, keys.Relay) })
		if _, err := c.link.hop(t.Context()); err == nil {
			t.Error("a relay with another key was taken for the right one")
		}
		r.set(func() {
			r.key = right
			r.welcome = func(w *wire.HopWelcome) { w.Versions = wire.VersionRange{Min: 2, Max: 3} }
		})
		_, err := c.link.hop(t.Context())
		wantCode(t, "a relay of another version", err, wire.CodeVersion)
		r.set(func() { r.welcome = func(w *wire.HopWelcome) { w.Versions = wire.VersionRange{Min: 1, Max: 2} } })
		if _, err := c.link.hop(t.Context()); err != nil {
			t.Errorf("a relay that speaks a newer version too: %v", err)
		}
	})
}

func TestClosedClientConnectsNoMore(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		c.Close()
		if _, err := c.link.hop(t.Context()); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("hop: %v, want ErrClosed", err)
		}
		if r.dialled() != 0 {
			t.Error("a closed client dialled")
		}
	})
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.gate = func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		failed := make(chan error)
		go func() {
			_, err := c.link.hop(context.Background())
			failed <- err
		}()
		synctest.Wait()
		go c.Close()
		if err := <-failed; !errors.Is(err, wire.ErrClosed) {
			t.Errorf("an attempt during Close: %v, want ErrClosed", err)
		}
	})
}

func TestRelaysRefusalOfACircuitIsSaidOnceAndIsNoLoss(t *testing.T) {
	executor := newKey(t, keys.Executor).Public()
	for code := wire.CodeInternal; code.Known(); code++ {
		t.Run(code.String(), func(t *testing.T) {
			withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
				circuits := 0
				r.circuit = func(s wire.Stream, to *wire.Dial) {
					r.set(func() { circuits++ })
					if to.Executor != executor.Raw() {
						t.Error("another executor was asked for")
					}
					wire.WriteFrame(s, &wire.DialReply{Code: code, Text: "because", RetryMillis: 3000})
					s.CloseWrite()
				}
				_, err := c.Executor(executor).Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
				e, ok := errors.AsType[*wire.Error](err)
				if !ok || e.Code != code || e.Text != "because" || e.RetryAfter != 3*time.Second || errors.Is(err, wire.ErrLost) {
					t.Errorf("start: %v, want the relay's words", err)
				}
				synctest.Wait()
				r.set(func() {
					if circuits != 1 {
						t.Errorf("%d circuits were asked for, want 1", circuits)
					}
				})
			})
		})
	}
}

func TestGarbageFromTheRelayIsAnErrorAndNoLoss(t *testing.T) {
	executor := newKey(t, keys.Executor).Public()
	for name, circuit := range map[string]func(s wire.Stream){
		"another message":    func(s wire.Stream) { wire.WriteFrame(s, &wire.Incoming{Circuit: 1}) },
		"a frame too long":   func(s wire.Stream) { s.Write([]byte{0xff, 0xff, 1, 2, 3}) },
		"no CBOR":            func(s wire.Stream) { s.Write([]byte{0, 3, 0xff, 0xff, 0xff}) },
		"half a frame":       func(s wire.Stream) { s.Write([]byte{0, 9, 1}); s.CloseWrite() },
		"nothing":            func(s wire.Stream) { s.CloseWrite() },
		"a reset":            func(s wire.Stream) { s.Reset(wire.CodeInternal) },
		"ok, then garbage":   func(s wire.Stream) { wire.WriteFrame(s, &wire.DialReply{}); s.Write(make([]byte, 4000)) },
		"ok, then nothing":   func(s wire.Stream) { wire.WriteFrame(s, &wire.DialReply{}); s.CloseWrite() },
		"ok, then a version": func(s wire.Stream) { wire.WriteFrame(s, &wire.DialReply{}); s.Write([]byte{9}) },
		"silence":            func(wire.Stream) {},
	} {
		t.Run(name, func(t *testing.T) {
			withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
				r.circuit = func(s wire.Stream, _ *wire.Dial) { circuit(s) }
				_, err := c.Executor(executor).Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
				if err == nil || errors.Is(err, wire.ErrLost) {
					t.Errorf("start: %v, want an error that is no loss", err)
				}
			})
		})
	}
}

func TestNewRefusesAnIncompleteConfiguration(t *testing.T) {
	relay := keys.RelayURL{Host: "relay.test", Port: 1, Key: newKey(t, keys.Relay).Public()}
	for name, cfg := range map[string]Config{
		"no key":            {Relay: relay},
		"an executor's key": {Key: newKey(t, keys.Executor), Relay: relay},
		"no relay":          {Key: newKey(t, keys.Client)},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: a client was made", name)
		}
	}
}

func TestDialSaysAtOnceWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := errors.New("no route")
		_, err := Dial(t.Context(), Config{
			Key: newKey(t, keys.Client), Relay: keys.RelayURL{Host: "relay.test", Port: 4433, Key: newKey(t, keys.Relay).Public()},
			Connect: func(context.Context) (wire.Transport, error) { return nil, want },
		})
		if !errors.Is(err, want) {
			t.Errorf("Dial: %v, want %v", err, want)
		}
	})
}
