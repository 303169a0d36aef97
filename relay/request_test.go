package relay_test

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

func TestRequestBeyondTheCircuitLimitIsAnsweredAsARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{ClientCircuits: 1})
		client, executor := r.newPeer(t, keys.Client), r.newPeer(t, keys.Executor)
		c, _ := circuit(t, client, executor)
		for _, m := range []wire.Message{
			&wire.ListExecutors{}, &wire.ListTokens{}, &wire.RemoveToken{ID: wire.ID{1}},
			&wire.AddToken{ID: wire.ID{1}, Hash: [32]byte{1}, Pattern: "*", Uses: 1, TTLMillis: 1000},
		} {
			items, end := client.request(m) // it fails on anything but a Reply
			wantBusy(t, fmt.Sprintf("%T", m), end.Err())
			if len(items) != 0 {
				t.Errorf("%T: %d items", m, len(items))
			}
		}
		if _, known := r.Roster().Current().Join(keys.TokenID{1}); known {
			t.Error("a request that was refused was carried out")
		}
		if n := value(t, r.Relay, "requests_total", "list_executors", "busy"); n != 1 {
			t.Errorf("counted %v busy requests, want 1", n)
		}
		c.Reset(wire.CodeCancelled)
		synctest.Wait()
		client.carriedOut(&wire.ListExecutors{})
	})
}

func TestWhatFollowsARequestIsNotRead(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	for _, kind := range []keys.Kind{keys.Client, keys.Executor} {
		p := r.newPeer(t, kind)
		var m wire.Message = &wire.ListExecutors{}
		if kind == keys.Executor {
			m = &wire.Retire{Executor: [32]byte{1}}
		}
		for _, after := range []string{"garbage", "\xff\xff", string(make([]byte, 4<<10))} {
			s, err := p.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := wire.WriteFrame(s, m); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(s, after) // the relay may have ended the stream by now
			p.answered(s)
			if err := writeErr(s); err == nil {
				t.Error("the relay goes on reading")
			}
		}
		if p.Context().Err() != nil {
			t.Errorf("%s: the connection has ended", kind)
		}
	}
}

func TestHalfARequestEndsItsStreamOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		for _, kind := range []keys.Kind{keys.Client, keys.Executor} {
			p := r.newPeer(t, kind)
			for _, end := range []func(wire.Stream){
				func(s wire.Stream) { _ = s.CloseWrite() },
				func(s wire.Stream) { s.Reset(wire.CodeCancelled) },
				func(wire.Stream) {}, // nothing more until the time is over
			} {
				s, err := p.OpenStream(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Write([]byte{0, 40, 0xa2}); err != nil {
					t.Fatal(err)
				}
				end(s)
				if b, err := io.ReadAll(s); err == nil || len(b) != 0 {
					t.Errorf("%s: answered %x, %v", kind, b, err)
				}
			}
			if p.Context().Err() != nil {
				t.Errorf("%s: the connection has ended", kind)
			}
		}
		if n := value(t, r.Relay, "circuits"); n != 0 {
			t.Errorf("%v circuits, want none", n)
		}
	})
}

func TestUnknownRequestIsRefusedAndTheConnectionGoesOn(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	for _, kind := range []keys.Kind{keys.Client, keys.Executor} {
		p := r.newPeer(t, kind)
		s, err := p.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{0x00, 0x04, 0xa1, 0x01, 0x18, 0xfe}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, string(kind), p.reply(s).Code, wire.CodeUnsupported)
		if p.Context().Err() != nil {
			t.Errorf("%s: the connection has ended", kind)
		}
	}
}

// answerTo is the code of the answer to a request or a dial, CodeUnknown for none. Any goroutine may call it.
func answerTo(p *peer, m wire.Message) wire.Code {
	s, err := p.OpenStream(p.t.Context())
	if err != nil {
		return wire.CodeUnknown
	}
	defer s.Reset(wire.CodeCancelled)
	if err := wire.WriteFrame(s, m); err != nil {
		return wire.CodeUnknown
	}
	for {
		switch m, err := wire.ReadFrame(s); m := m.(type) {
		case *wire.Reply:
			return m.Code
		case *wire.DialReply:
			return m.Code
		default:
			if err != nil {
				return wire.CodeUnknown
			}
		}
	}
}

// Silent streams hold the places of circuits: what comes beyond is refused, holds nothing, and leaves nothing.
func TestThousandRequestsAtOnceStayWithinTheTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, requests = 10, 1000
		r := inMemory(t, relay.Limits{ClientCircuits: places})
		client, other := r.newPeer(t, keys.Client), r.newPeer(t, keys.Client)
		executor := r.newPeer(t, keys.Executor)
		synctest.Wait()
		before := inThisBubble()
		var open []wire.Stream
		for range places {
			s, err := client.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, s)
		}
		synctest.Wait()
		var asking sync.WaitGroup
		var mu sync.Mutex
		got := make(map[wire.Code]int)
		for i := range requests {
			asking.Go(func() {
				var m wire.Message = &wire.ListExecutors{}
				if i%2 == 0 {
					m = &wire.Dial{Executor: executor.key.Public().Raw()}
				}
				code := answerTo(client, m)
				mu.Lock()
				defer mu.Unlock()
				got[code]++
			})
		}
		asking.Wait()
		if got[wire.CodeBusy] != requests || len(got) != 1 {
			t.Errorf("answers %v, want %d busy", got, requests)
		}
		other.carriedOut(&wire.ListExecutors{}) // another key is not concerned
		for _, s := range open {
			wantCode(t, "silent stream", wire.CodeOf(readErr(s)), wire.CodeTimeout)
		}
		synctest.Wait()
		if after := inThisBubble(); after > before {
			t.Errorf("%d goroutines, before there were %d", after, before)
		}
		for range places { // every place is free again
			circuit(t, client, executor)
		}
		wantBusy(t, "one more", client.reply(client.ask(executor.key.Public())).Err())
	})
}

func TestThousandRequestsWithinTheLimitAreAllAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		client := r.newPeer(t, keys.Client)
		synctest.Wait()
		before := inThisBubble()
		var asking sync.WaitGroup
		start := time.Now()
		for range 1000 {
			asking.Go(func() {
				if code := answerTo(client, &wire.ListExecutors{}); code != 0 {
					t.Errorf("answered with code %v", code)
				}
			})
		}
		asking.Wait()
		synctest.Wait()
		if after := inThisBubble(); after > before || time.Since(start) != 0 {
			t.Errorf("%d goroutines after %v, before there were %d", after, time.Since(start), before)
		}
	})
}
