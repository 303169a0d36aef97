package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
)

// framesOf are messages as they stand on a stream.
func framesOf(t testing.TB, messages ...wire.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, m := range messages {
		if err := wire.WriteFrame(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// said is a stream whose peer has said everything already.
type said struct{ io.Reader }

func (said) Write(p []byte) (int, error)      { return len(p), nil }
func (said) CloseWrite() error                { return nil }
func (said) Reset(wire.Code)                  {}
func (said) SetReadDeadline(time.Time) error  { return nil }
func (said) SetWriteDeadline(time.Time) error { return nil }

var listing = question{"list executors", "a list of executors", &wire.ListExecutors{}}

// takeExecutors counts items and takes no others.
func takeExecutors(n *int) func(wire.Message) error {
	return func(m wire.Message) error {
		if _, ok := m.(*wire.ExecutorItem); !ok {
			return wire.Errorf(wire.CodeProtocol, "a %T", m)
		}
		*n++
		return nil
	}
}

func TestAnswerThatIsCutAnywhereIsAnErrorAndNoShortList(t *testing.T) {
	whole := framesOf(t, itemOf(""), itemOf(""), &wire.Reply{})
	for cut := range len(whole) + 1 {
		n := 0
		err := exchange(said{bytes.NewReader(whole[:cut])}, listing, takeExecutors(&n))
		switch {
		case cut == len(whole) && (err != nil || n != 2):
			t.Errorf("whole: %d items, %v", n, err)
		case cut < len(whole) && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("cut after %d of %d bytes: %v, want an unexpected end", cut, len(whole), err)
		}
	}
	eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
		for _, frames := range [][]wire.Message{nil, {itemOf(name)}} {
			r.set(func() { r.request = answering(frames...) })
			n, err := ask(t.Context())
			if err == nil || errors.Is(err, wire.ErrLost) || n != 0 {
				t.Errorf("%d frames and no Reply: %d items, %v", len(frames), n, err)
			}
		}
		if n := r.dialled(); n != 1 {
			t.Errorf("%d connections, want 1: the connection stands", n)
		}
	})
}

func TestWrongFramesFromTheRelayAreAnError(t *testing.T) {
	zero := wire.Bytes32{}
	for what, frame := range map[string][]byte{
		"a dial":               framesOf(t, &wire.Dial{Executor: wire.Bytes32{1}}),
		"a circuit":            framesOf(t, &wire.DialReply{Circuit: 1}),
		"another question":     framesOf(t, &wire.ListTokens{}),
		"a frame too long":     {0xff, 0xff, 1},
		"no CBOR":              {0, 3, 0xff, 0xff, 0xff},
		"an unknown type":      {0, 4, 0xa1, 0x01, 0x18, 0xfe},
		"an impossible key":    framesOf(t, &wire.ExecutorItem{Executor: wire.Bytes32{1}, Follows: &zero}),
		"an impossible time":   framesOf(t, &wire.ExecutorItem{Executor: wire.Bytes32{1}, Seen: 1 << 62}),
		"a time before 1970":   framesOf(t, &wire.ExecutorItem{Executor: wire.Bytes32{1}, Seen: -1 << 40}),
		"a name without a key": {0, 6, 0xa2, 0x01, 0x18, 0x72, 0x03, 0x60},
	} {
		t.Run(what, func(t *testing.T) {
			eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
				for _, before := range []bool{false, true} {
					r.set(func() {
						r.request = func(s wire.Stream, _ wire.Message) {
							if before && isList(name) {
								wire.WriteFrame(s, itemOf(name))
							}
							s.Write(frame)
							wire.WriteFrame(s, &wire.Reply{})
							s.CloseWrite()
						}
					})
					n, err := ask(t.Context())
					wantCode(t, "ask", err, wire.CodeProtocol)
					if n != 0 {
						t.Errorf("%d items beside an error", n)
					}
				}
			})
		})
	}
}

func TestItemsOfAnotherListAndOfACommandAreAnError(t *testing.T) {
	eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
		other := itemOf("list of tokens")
		if name == "list of tokens" {
			other = itemOf("list of executors")
		}
		r.request = answering(other, &wire.Reply{})
		n, err := ask(t.Context())
		wantCode(t, "ask", err, wire.CodeProtocol)
		if n != 0 {
			t.Errorf("%d items beside an error", n)
		}
	})
}

func TestListHasAnEnd(t *testing.T) {
	item := framesOf(t, itemOf("list of executors"))
	for _, more := range []int{0, 1} {
		withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
			r.request = func(s wire.Stream, _ wire.Message) {
				s.Write(bytes.Repeat(item, maxItems+more))
				wire.WriteFrame(s, &wire.Reply{})
				s.CloseWrite()
			}
			list, err := c.Executors(t.Context())
			switch {
			case more == 0 && (err != nil || len(list) != maxItems):
				t.Errorf("%d items, %v, want %d", len(list), err, maxItems)
			case more == 1:
				wantCode(t, "one item more", err, wire.CodeProtocol)
			}
		})
	}
}

// loseFirst ends the connection under the first so many requests.
func loseFirst(r *relayDouble, times int, then func(wire.Stream, wire.Message)) {
	n := 0
	r.request = func(s wire.Stream, m wire.Message) {
		r.mu.Lock()
		n++
		lose, current := n <= times, r.current
		r.mu.Unlock()
		if !lose {
			then(s, m)
			return
		}
		switch m.(type) { // after an item, which the second answer repeats
		case *wire.ListExecutors:
			wire.WriteFrame(s, itemOf("list of executors"))
		case *wire.ListTokens:
			wire.WriteFrame(s, itemOf("list of tokens"))
		}
		synctest.Wait() // it is read
		current.Close(wire.CodeShutdown, "restart")
	}
}

func TestRequestIsMadeOnceMoreOnAFreshLinkWhenTheConnectionIsLost(t *testing.T) {
	eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
		frames, want := []wire.Message{&wire.Reply{}}, 0
		if isList(name) {
			frames, want = []wire.Message{itemOf(name), itemOf(name), &wire.Reply{}}, 2
		}
		loseFirst(r, 1, answering(frames...))
		if n, err := ask(t.Context()); err != nil || n != want {
			t.Errorf("%d items, %v, want %d", n, err, want)
		}
		if n := r.dialled(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

func TestRequestIsGivenUpAfterTheSecondLoss(t *testing.T) {
	eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
		loseFirst(r, 2, answering(&wire.Reply{}))
		n, err := ask(t.Context())
		// Whether a token was added is unknown; a list has no outcome.
		if err == nil || n != 0 || errors.Is(err, wire.ErrLost) == isList(name) {
			t.Errorf("%d items, %v", n, err)
		}
		if n := r.dialled(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
	})
}

func TestRequestWhoseAnswerWasLostStaysInDoubtWhenTheRelayIsGone(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		loseFirst(r, 1, nil)
		r.refuse = func(dial int) error {
			if dial > 1 {
				return errors.New("no route")
			}
			return nil
		}
		wantLost(t, "add", c.AddToken(t.Context(), aToken))
	})
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.refuse = func(int) error { return wire.ErrLost }
		if err := c.AddToken(t.Context(), aToken); err == nil || errors.Is(err, wire.ErrLost) {
			t.Errorf("add: %v, want an error that leaves no doubt: nothing was sent", err)
		}
	})
}

func TestContextBoundsARequest(t *testing.T) {
	eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
		r.request = func(s wire.Stream, _ wire.Message) { // goes on for ever, and never ends
			for isList(name) && wire.WriteFrame(s, itemOf(name)) == nil {
				<-time.After(time.Second)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if n, err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || n != 0 || time.Since(began) != 10*time.Second {
			t.Errorf("%d items, %v after %v", n, err, time.Since(began))
		}
	})
}

func TestRelayThatFallsSilentIsGivenUp(t *testing.T) {
	eachRequest(t, func(t *testing.T, _ string, r *relayDouble, ask func(context.Context) (int, error)) {
		r.request = func(wire.Stream, wire.Message) {}
		began := time.Now()
		_, err := ask(t.Context())
		wantCode(t, "ask", err, wire.CodeTimeout)
		if took := time.Since(began); took != wire.PingSilence {
			t.Errorf("it took %v, want %v", took, wire.PingSilence)
		}
	})
}

func TestClosedClientAsksNothing(t *testing.T) {
	eachRequest(t, func(t *testing.T, _ string, r *relayDouble, ask func(context.Context) (int, error)) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := ask(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		c.Close()
		if _, err := c.Executors(t.Context()); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("Executors: %v, want ErrClosed", err)
		}
		if err := c.AddToken(t.Context(), aToken); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("AddToken: %v, want ErrClosed", err)
		}
	})
}

// Whatever a relay says: only a Reply with code zero, after items alone, is success.
func FuzzAnswerOfTheRelay(f *testing.F) {
	f.Add(framesOf(f, &wire.Reply{}))
	f.Add(framesOf(f, itemOf(""), itemOf(""), &wire.Reply{}))
	f.Add(framesOf(f, itemOf(""), &wire.Reply{Code: wire.CodeBusy, Text: "x", RetryMillis: 1}))
	f.Add(framesOf(f, wire.DialRefusal(&wire.Error{Code: wire.CodeUnsupported})))
	f.Add(framesOf(f, itemOf("list of tokens"), &wire.Reply{}))
	f.Add([]byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, answer []byte) {
		n := 0
		err := exchange(said{bytes.NewReader(answer)}, listing, takeExecutors(&n))
		r := bytes.NewReader(answer)
		items := 0
		for {
			m, readErr := wire.ReadFrame(r)
			if _, ok := m.(*wire.ExecutorItem); ok && readErr == nil {
				items++
				continue
			}
			reply, ok := m.(*wire.Reply)
			if good := readErr == nil && ok && reply.Code == 0; good != (err == nil) || n != items {
				t.Fatalf("%d items, %v; the answer has %d, and ends well: %v", n, err, items, good)
			}
			return
		}
	})
}
