package relay_test

import (
	"context"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

const kib = 1 << 10

// flow writes to one end of a circuit as fast as it can be written and reads at the other, until the circuit ends. It returns
// how many bytes have arrived so far.
func flow(from io.Writer, to io.Reader) (arrived func() int) {
	var mu sync.Mutex
	n := 0
	go func() { _ = writeErr(from) }()
	go func() {
		for b := make([]byte, 64*kib); ; {
			got, err := to.Read(b)
			mu.Lock()
			n += got
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// paced is two tenants, of which one has a rate.
type paced struct {
	memory
	client, executor           *peer
	otherClient, otherExecutor *peer
}

func newPaced(t *testing.T, perSecond int) paced {
	t.Helper()
	r := inMemory(t, relay.Limits{})
	r.Limit("acme", keys.TenantLimits{Bytes: perSecond})
	return paced{
		r, r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "acme", keys.Executor),
		r.newPeerIn(t, "other", keys.Client), r.newPeerIn(t, "other", keys.Executor),
	}
}

// end ends the circuits.
func (p paced) end() {
	for _, tr := range []*peer{p.client, p.executor, p.otherClient, p.otherExecutor} {
		_ = tr.Close(wire.CodeShutdown, "done")
	}
	synctest.Wait()
}

func wantRate(t *testing.T, what string, bytes int, over time.Duration, perSecond int) {
	t.Helper()
	got := float64(bytes) / over.Seconds()
	if off := math.Abs(got/float64(perSecond) - 1); off > 0.02 {
		t.Errorf("%s: %.0f bytes/s, want %d within 2 in 100", what, got, perSecond)
	}
}

func TestTenantIsHeldToItsRateAllItsCircuitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 1 << 20
		p := newPaced(t, perSecond)
		if w := p.client.welcome.Limits.BytesPerSecond; w != perSecond {
			t.Errorf("welcome says %d bytes/s, want %d", w, perSecond)
		}
		var all []func() int
		for range 3 {
			c, e := circuit(t, p.client, p.executor)
			all = append(all, flow(c, e), flow(e, c)) // both ways count together
		}
		sum := func() (n int) {
			for _, arrived := range all {
				n += arrived()
			}
			return n
		}
		time.Sleep(5 * time.Second) // the burst is over
		before := sum()
		each := make([]int, len(all))
		for i, arrived := range all {
			each[i] = arrived()
		}
		time.Sleep(time.Minute)
		wantRate(t, "three circuits", sum()-before, time.Minute, perSecond)
		for i, arrived := range all {
			if share := arrived() - each[i]; share < perSecond*60/len(all)*9/10 {
				t.Errorf("direction %d got %d bytes, want about a sixth", i, share)
			}
		}
		if value(t, p.Relay, "limited_total", "tenant_bytes") == 0 {
			t.Error("not counted as limited")
		}

		// The other tenant is not held up for a moment.
		c, e := circuit(t, p.otherClient, p.otherExecutor)
		start := time.Now()
		go func() {
			_, _ = c.Write(make([]byte, 8<<20))
			_ = c.CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, e); n != 8<<20 || err != nil || time.Since(start) != 0 {
			t.Errorf("other tenant: %d bytes, %v, in %v, want all of them at once", n, err, time.Since(start))
		}
		p.end()
	})
}

func TestSmallMessageWaitsForOneChunkOfEachCircuitOfItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, bulk = 1 << 20, 4
		p := newPaced(t, perSecond)
		for range bulk {
			c, e := circuit(t, p.client, p.executor)
			flow(c, e)
		}
		c, e := circuit(t, p.client, p.executor)
		time.Sleep(5 * time.Second)
		chunk := time.Second * 32 * kib / perSecond
		for range 50 {
			start := time.Now()
			say(t, c, "ping")
			hear(t, e, "ping")
			if took := time.Since(start); took > (bulk+1)*chunk {
				t.Fatalf("a small message took %v, want at most %v", took, (bulk+1)*chunk)
			}
		}
		p.end()
	})
}

func TestResetEndsACircuitThatWaitsForItsRate(t *testing.T) {
	cases := []struct {
		name string
		end  func(p paced, c, e wire.Stream)
		code wire.Code
	}{
		{"by the sender", func(_ paced, c, _ wire.Stream) { c.Reset(wire.CodeCancelled) }, wire.CodeCancelled},
		{"by the receiver", func(_ paced, _, e wire.Stream) { e.Reset(wire.CodeNoChannel) }, wire.CodeNoChannel},
		{"by the end of the sender's connection", func(p paced, _, _ wire.Stream) { _ = p.client.Close(wire.CodeShutdown, "bye") }, wire.CodeCancelled},
		{"by the end of the receiver's connection", func(p paced, _, _ wire.Stream) { _ = p.executor.Close(wire.CodeShutdown, "bye") }, wire.CodeUnknown},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaced(t, kib) // a chunk takes half a minute
				c, e := circuit(t, p.client, p.executor)
				flow(c, e)
				time.Sleep(time.Second)
				if n := value(t, p.Relay, "circuits"); n != 1 {
					t.Fatalf("%v circuits, want 1", n)
				}
				test.end(p, c, e)
				time.Sleep(time.Second)
				synctest.Wait()
				if n := value(t, p.Relay, "circuits"); n != 0 {
					t.Error("the circuit goes on a second after its end")
				}
				if n := value(t, p.Relay, "circuit_ends_total", test.code.String()); n != 1 {
					t.Errorf("%v circuits ended with %v, want 1", n, test.code)
				}
				p.end()
			})
		})
	}
}

func TestCleanEndIsNotTakenForAResetWhileTheRateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(t, 10*kib)
		c, e := circuit(t, p.client, p.executor)
		const size = 300 * kib
		go func() {
			_, _ = c.Write(make([]byte, size))
			_ = c.CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, e); n != size || err != nil {
			t.Errorf("%d bytes, %v, want all and a clean end", n, err)
		}
		p.end()
	})
}

func TestReloadChangesTheRateOfCircuitsThatGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaced(t, 0)
		c, e := circuit(t, p.client, p.executor) // begins without a rate
		p.Limit("acme", keys.TenantLimits{Bytes: 64 * kib})
		arrived := flow(c, e)
		measure := func(what string, perSecond int) {
			t.Helper()
			p.Limit("acme", keys.TenantLimits{Bytes: perSecond})
			time.Sleep(5 * time.Second)
			before := arrived()
			time.Sleep(time.Minute)
			wantRate(t, what, arrived()-before, time.Minute, perSecond)
		}
		measure("one that was set", 64*kib)
		measure("a higher one", 512*kib)
		measure("a lower one", 32*kib)
		// The next chunk would wait for more than half an hour.
		p.Limit("acme", keys.TenantLimits{Bytes: 16})
		time.Sleep(time.Minute)
		measure("one after it stood almost still", 256*kib)
		p.Limit("acme", keys.TenantLimits{Bytes: 1})
		time.Sleep(time.Hour)
		// Lifted: what waited goes on at once, and then as fast as it can, which on a fake clock has no end.
		c.Reset(wire.CodeCancelled)
		c, e = circuit(t, p.client, p.executor)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = c.Write(make([]byte, 1<<20))
			_ = c.CloseWrite()
		}()
		time.Sleep(time.Minute)
		start := time.Now()
		p.Limit("acme", keys.TenantLimits{})
		if n, err := io.Copy(io.Discard, e); n != 1<<20 || err != nil || time.Since(start) != 0 {
			t.Errorf("after the rate was lifted: %d bytes, %v, in %v, want all at once", n, err, time.Since(start))
		}
		<-sent
		p.end()
	})
}

func TestTenantsHandshakesAreHeldToTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		r.Limit("acme", keys.TenantLimits{Handshakes: 5})
		key, other := generate(t, keys.Client), generate(t, keys.Client)
		r.AllowIn("acme", key.Public())
		r.AllowIn("other", other.Public())
		come := func(key *keys.PrivateKey) error {
			tr := r.dial(t)
			_, _, err := shake(context.Background(), tr, r.Key.Public(), key, hello(key))
			_ = tr.Close(wire.CodeShutdown, "bye")
			return err
		}
		for n := range 10 {
			if err := come(key); err != nil {
				t.Fatalf("handshake %d: %v, want ten at once", n, err)
			}
		}
		wantBusy(t, "the eleventh", come(key))
		if n := value(t, r.Relay, "limited_total", "tenant_handshakes"); n != 1 {
			t.Errorf("counted %v, want 1", n)
		}
		if err := come(other); err != nil {
			t.Errorf("the other tenant: %v", err)
		}
		admitted := 0
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if come(key) == nil {
				admitted++
			}
		}
		if admitted < 49 || admitted > 51 {
			t.Errorf("%d in ten seconds, want 50", admitted)
		}
		r.Limit("acme", keys.TenantLimits{})
		for range 20 {
			if err := come(key); err != nil {
				t.Errorf("after the rate was lifted: %v", err)
			}
		}
	})
}
