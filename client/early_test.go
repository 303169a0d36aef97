package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// echoing answers a circuit and sends back what it gets, and tells how many circuits there were.
func echoing(r *relayDouble) *int {
	n := new(int)
	r.circuit = func(s wire.Stream, _ *wire.Dial) {
		r.set(func() { *n++ })
		if wire.WriteFrame(s, &wire.DialReply{Circuit: 1}) == nil {
			_, _ = io.Copy(s, s)
			_ = s.CloseWrite()
		}
	}
	return n
}

// exchangeOn sends a word and wants it back.
func exchangeOn(t *testing.T, s wire.Stream, word string) {
	t.Helper()
	if _, err := io.WriteString(s, word); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != word {
		t.Fatalf("sent %q, got %q, %v", word, got, err)
	}
}

func TestCircuitIsAskedForBeforeTheWelcome(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		decided := make(chan struct{})
		r.decide = func(int) *wire.Error {
			<-decided
			return nil
		}
		circuits := echoing(r)
		s, err := c.link.openCircuit(t.Context(), newKey(t, keys.Executor).Public())
		if err != nil {
			t.Fatal(err) // although nobody was welcome yet
		}
		if _, err := io.WriteString(s, "early "); err != nil {
			t.Fatal(err)
		}
		if n := r.dialled(); n != 1 || *circuits != 0 {
			t.Errorf("%d connections and %d circuits before the welcome, want 1 and 0", n, *circuits)
		}
		close(decided)
		got := make([]byte, 6)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "early " {
			t.Fatalf("got %q, %v", got, err)
		}
		exchangeOn(t, s, "and late")
		s.Reset(wire.CodeCancelled)
	})
}

// What a busy relay did not take reaches the executor once, by the connection that it takes later.
func TestEarlyCircuitMovesToTheConnectionThatIsTaken(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.decide = func(dial int) *wire.Error {
			if dial < 3 {
				return &wire.Error{Code: wire.CodeBusy, Text: "busy", RetryAfter: time.Second}
			}
			return nil
		}
		circuits := echoing(r)
		s, err := c.link.openCircuit(t.Context(), newKey(t, keys.Executor).Public())
		if err != nil {
			t.Fatal(err)
		}
		exchangeOn(t, s, "once")
		exchangeOn(t, s, "and more")
		if err := s.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(s); len(rest) > 0 || err != nil {
			t.Errorf("after the end came %q, %v", rest, err)
		}
		if n := r.dialled(); n != 3 || *circuits != 1 {
			t.Errorf("%d connections and %d circuits, want 3 and 1", n, *circuits)
		}
		s.Reset(wire.CodeCancelled)
	})
}

func TestRefusalOfTheRelayIsTheErrorOfAnEarlyCircuit(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.decide = func(int) *wire.Error { return wire.Errorf(wire.CodeUnauthorized, "this relay does not admit this key") }
		remote := c.Executor(newKey(t, keys.Executor).Public())
		begun := time.Now()
		_, err := remote.Start(t.Context(), wire.ExecParams{Argv: []string{"true"}})
		wantCode(t, "Start", err, wire.CodeUnauthorized)
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the refusal took %v: it was tried again", took)
		}
		if n := r.dialled(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

func TestDeadlineOfAnEarlyCircuitHoldsBeforeTheWelcome(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		decided := make(chan struct{})
		r.decide = func(int) *wire.Error {
			<-decided
			return nil
		}
		echoing(r)
		s, err := c.link.openCircuit(t.Context(), newKey(t, keys.Executor).Public())
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for range 2 {
			_ = s.(*circuit).Stream.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := s.(*circuit).Stream.Read(make([]byte, 1)); err != os.ErrDeadlineExceeded {
				t.Errorf("Read: %v", err)
			}
		}
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("two deadlines of a second passed after %v", took)
		}
		_ = s.SetReadDeadline(time.Time{})
		close(decided)
		exchangeOn(t, s, "still good")
		s.Reset(wire.CodeCancelled)
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Error("a circuit that was reset is read")
		}
	})
}

func TestResetEndsAReadThatWaitsForTheWelcome(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.control = func(*noiseconn.Conn) {}
		r.decide = func(int) *wire.Error {
			<-r.ctx.Done()
			return wire.Errorf(wire.CodeShutdown, "over")
		}
		s, err := c.link.openCircuit(t.Context(), newKey(t, keys.Executor).Public())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := s.Read(make([]byte, 1))
			ended <- err
		}()
		s.Reset(wire.CodeCancelled)
		wantCode(t, "Read", <-ended, wire.CodeCancelled)
	})
}

// admittedTransport takes the request for a circuit, and breaks while what follows is written.
type admittedTransport struct{ wire.Transport }

func (admittedTransport) OpenStream(context.Context) (wire.Stream, error) {
	mine, theirs := wiretest.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	return &breakingStream{Stream: mine}, nil
}

type breakingStream struct {
	wire.Stream
	writes int
}

func (b *breakingStream) Write(p []byte) (int, error) {
	if b.writes++; b.writes > 1 {
		return len(p) / 2, wire.ErrLost
	}
	return b.Stream.Write(p)
}

func TestWhatWasWrittenAgainInPartIsNotCertainlyUnsent(t *testing.T) {
	mine, _ := wiretest.Pipe()
	taken := &attempt{done: make(chan struct{}), hop: &noiseconn.Hop{Transport: admittedTransport{}}}
	close(taken.done)
	c := &earlyCircuit{
		link: &link{ctx: t.Context()}, attempt: taken, executor: newKey(t, keys.Executor).Public(),
		stream: mine, gone: make(chan struct{}), expired: make(chan struct{}), sent: []byte("a start"),
	}
	_, err := c.Read(make([]byte, 1))
	if err = lostError(err); !isLost(err) {
		t.Errorf("%v counts as certainly not carried out", err)
	}
	c.Reset(wire.CodeCancelled)
}

// The welcome of a connection that was lost may have been on its way, and the relay may have carried the Start.
func TestOnlyARefusalOfItsConnectionMakesAnEarlyStartUnsent(t *testing.T) {
	mine, _ := wiretest.Pipe()
	own, other := &admittedTransport{}, &admittedTransport{Transport: admittedTransport{}}
	for name, c := range map[string]struct {
		err  error
		last wire.Transport
		lost bool
	}{
		"refused":                    {wire.Errorf(wire.CodeUnauthorized, "no"), own, false},
		"lost":                       {wire.ErrLost, own, true},
		"timed out":                  {context.DeadlineExceeded, own, true},
		"closed with a code":         {fmt.Errorf("%w (%w)", wire.Errorf(wire.CodeUnauthorized, "no"), wire.ErrLost), own, true},
		"lost, the next one refused": {wire.Errorf(wire.CodeBusy, "no"), other, true},
	} {
		ended := &attempt{done: make(chan struct{}), err: c.err, transport: c.last}
		close(ended.done)
		early := &earlyCircuit{link: &link{}, attempt: ended, on: own, stream: mine, gone: make(chan struct{}), expired: make(chan struct{}), sent: []byte("a start")}
		if _, err := early.Read(make([]byte, 1)); isLost(lostError(err)) != c.lost {
			t.Errorf("%s: %v, which leaves open whether it was carried out: %t, want %t", name, err, !c.lost, c.lost)
		}
	}
}
