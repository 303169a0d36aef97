package client

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// heard keeps what was told about keys. Its method told is a callback.
type heard struct {
	mu    sync.Mutex
	pairs [][2]keys.PublicKey
}

func (h *heard) told(old, next keys.PublicKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pairs = append(h.pairs, [2]keys.PublicKey{old, next})
}

// want checks everything that was told, in order.
func (h *heard) want(t *testing.T, what string, pairs ...[2]keys.PublicKey) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.pairs, pairs) {
		t.Errorf("%s: told of %v, want %v", what, h.pairs, pairs)
	}
}

func pair(old, next *keys.PrivateKey) [2]keys.PublicKey {
	return [2]keys.PublicKey{old.Public(), next.Public()}
}

// withRelayNews is withRelay with a client that listens.
func withRelayNews(t *testing.T, test func(t *testing.T, r *relayDouble, c *Client, h *heard)) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		h := new(heard)
		cfg := c.cfg
		cfg.RelayKeyReplaced = h.told
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		test(t, r, c, h)
	})
}

// names makes the relay name a key that replaces its own.
func (r *relayDouble) names(next *keys.PrivateKey) {
	r.set(func() {
		raw := wire.Bytes32(next.Public().Raw())
		r.welcome = func(w *wire.HopWelcome) { w.NextRelay = &raw }
	})
}

// again loses the connection and makes a new one.
func (r *relayDouble) again(t *testing.T, c *Client) error {
	t.Helper()
	r.mu.Lock()
	current := r.current
	r.mu.Unlock()
	if current != nil {
		current.Close(wire.CodeShutdown, "restart")
		synctest.Wait()
	}
	_, err := c.link.hop(t.Context())
	return err
}

func (r *relayDouble) wantPinned(t *testing.T, what string, want ...*keys.PrivateKey) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.EqualFunc(r.pinned, want, func(got keys.PublicKey, want *keys.PrivateKey) bool { return got == want.Public() }) {
		t.Errorf("%s: connections pinned %v, want %d of them to %v", what, r.pinned, len(want), want)
	}
}

func TestNextKeyOfTheRelayIsPinnedFromTheNextConnectionOn(t *testing.T) {
	withRelayNews(t, func(t *testing.T, r *relayDouble, c *Client, h *heard) {
		old, next := r.key, newKey(t, keys.Relay)
		r.set(func() { r.next = next })
		if err := r.again(t, c); err != nil {
			t.Fatal(err)
		}
		h.want(t, "before there was a next key")
		r.names(next)
		for range 4 { // the relay says it in every welcome, whoever is pinned
			if err := r.again(t, c); err != nil {
				t.Fatal(err)
			}
		}
		r.wantPinned(t, "a relay with two keys", old, old, next, next, next)
		h.want(t, "a relay with two keys", pair(old, next))
		r.set(func() { r.key, r.next, r.welcome = next, nil, nil })
		if err := r.again(t, c); err != nil {
			t.Errorf("after the old key was dropped: %v", err)
		}
		h.want(t, "afterwards", pair(old, next))
	})
}

func TestStandingConnectionGoesOnWhenTheRelayNamesItsNextKey(t *testing.T) {
	withRelayNews(t, func(t *testing.T, r *relayDouble, c *Client, _ *heard) {
		r.set(func() { r.next = newKey(t, keys.Relay) })
		r.names(r.next)
		r.request = answering(&wire.Reply{})
		for range 3 {
			if _, err := c.Executors(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r.wantPinned(t, "one connection", r.key)
	})
}

func TestThereIsNoWayBackToTheRelaysOldKey(t *testing.T) {
	withRelayNews(t, func(t *testing.T, r *relayDouble, c *Client, h *heard) {
		old, next := r.key, newKey(t, keys.Relay)
		r.names(next) // which this relay does not have
		if err := r.again(t, c); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := r.again(t, c); err == nil {
				t.Error("a relay without the next key was accepted")
			}
		}
		r.wantPinned(t, "without the next key", old)
		// One that has it may not send us back either, nor ask us to pin what we pin.
		r.set(func() { r.next = next })
		for _, named := range []*keys.PrivateKey{old, next} {
			r.names(named)
			for range 2 {
				if err := r.again(t, c); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.wantPinned(t, "a relay that names old keys", old, next, next, next, next)
		h.want(t, "all of it", pair(old, next))
	})
}

func TestNextKeyOfARelayThatIsNotAcceptedIsIgnored(t *testing.T) {
	withRelayNews(t, func(t *testing.T, r *relayDouble, c *Client, h *heard) {
		raw := wire.Bytes32(newKey(t, keys.Relay).Public().Raw())
		r.set(func() {
			r.welcome = func(w *wire.HopWelcome) { w.NextRelay, w.Versions = &raw, wire.VersionRange{Min: 2, Max: 3} }
		})
		wantCode(t, "a relay of another version", r.again(t, c), wire.CodeVersion)
		h.want(t, "its word")
		r.set(func() { r.welcome = nil })
		if err := r.again(t, c); err != nil {
			t.Errorf("with the pinned key: %v", err)
		}
	})
}

func TestRelaysKeysAreToldInTheirOrder(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		a, b, last := r.key, newKey(t, keys.Relay), newKey(t, keys.Relay)
		h, slow := new(heard), make(chan struct{})
		cfg := c.cfg
		cfg.RelayKeyReplaced = func(old, next keys.PublicKey) {
			if old == a.Public() {
				<-slow
			}
			h.told(old, next)
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, step := range [][2]*keys.PrivateKey{{a, b}, {b, last}} {
			r.set(func() { r.key, r.next = step[0], step[1] })
			r.names(step[1])
			if err := r.again(t, c); err != nil {
				t.Fatal(err)
			}
		}
		h.want(t, "while the first callback waits")
		close(slow)
		h.want(t, "afterwards", pair(a, b), pair(b, last))
	})
}

func TestCallbackAboutTheRelaysKeyMayUseTheClient(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.set(func() { r.next = newKey(t, keys.Relay) })
		r.names(r.next)
		r.request = answering(&wire.Reply{})
		cfg, done := c.cfg, make(chan time.Duration, 1)
		cfg.RelayKeyReplaced = func(_, _ keys.PublicKey) {
			if _, err := c.Executors(t.Context()); err != nil {
				t.Error(err)
			}
			began := time.Now()
			c.Executor(newKey(t, keys.Executor).Public()).Close()
			c.Close() // not wise, and no deadlock
			done <- time.Since(began)
		}
		var err error
		if c, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := c.link.hop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := <-done; took > lingerAtMost {
			t.Errorf("Close in a callback took %v, want at most %v", took, lingerAtMost)
		}
	})
}

func TestCloseLetsNewsOfTheRelaysKeyBeTold(t *testing.T) {
	for _, takes := range []time.Duration{0, 3 * time.Second, time.Minute} {
		withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
			r.set(func() { r.next = newKey(t, keys.Relay) })
			r.names(r.next)
			cfg, h := c.cfg, new(heard)
			cfg.RelayKeyReplaced = func(old, next keys.PublicKey) {
				<-time.After(takes)
				h.told(old, next)
			}
			c, err := Dial(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			c.Close()
			if took, want := time.Since(began), min(takes, lingerAtMost); took != want {
				t.Errorf("a callback of %v: Close took %v, want %v", takes, took, want)
			}
			if takes < lingerAtMost {
				h.want(t, "at the end of Close", pair(r.key, r.next))
			}
			<-time.After(takes)
		})
	}
}
