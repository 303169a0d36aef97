package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestStatusSaysHowManyAndNamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeerIn(t, "acme", keys.Executor), r.newPeerIn(t, "acme", keys.Client)
		r.newPeerIn(t, "other", keys.Client)
		tok := client.newToken("builder-*", 3)
		circuit(t, client, executor)
		circuit(t, client, executor)
		left := r.newPeerIn(t, "acme", keys.Executor)
		_ = left.Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		s := r.Status()
		if s.Executors != 1 || s.Clients != 2 || s.Circuits != 2 || s.Tenants != 3 || s.Members != 4 || s.Tokens != 1 || !s.Started.Equal(start) {
			t.Errorf("status %+v", s)
		}
		if len(s.Disconnects) != 1 || s.Disconnects[0] != (relay.Disconnect{At: time.Now().UTC(), Role: "executor", Reason: "peer_closed"}) {
			t.Errorf("disconnects %+v", s.Disconnects)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		named := []string{"acme", "other", "peer0", "builder", "exec_", "client_", "relay_", string(fmt.Sprint(tok.id))}
		for _, p := range []*peer{executor, client, left} {
			named = append(named, p.key.Public().String(), p.welcome.Name)
		}
		for _, name := range named {
			if strings.Contains(string(text), name) {
				t.Errorf("status says %q: %s", name, text)
			}
		}
		time.Sleep(2 * time.Hour) // the token has expired
		if s := r.Status(); s.Tokens != 0 {
			t.Errorf("%d tokens that can be used, want none", s.Tokens)
		}
		for range 150 {
			key := r.NewPeer(keys.Client)
			_ = r.join(t, key, hello(key)).Close(wire.CodeShutdown, "bye")
		}
		synctest.Wait()
		if n := len(r.Status().Disconnects); n != 100 {
			t.Errorf("%d disconnects are kept, want 100", n)
		}
	})
}

// measured is a transport that has QUIC's figures to tell, and remembers what it was blamed for.
type measured struct {
	wire.Transport

	mu     sync.Mutex
	stats  quicconn.Stats
	blamed []wire.Code
}

func (m *measured) Stats() quicconn.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

func (m *measured) set(s quicconn.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats = s
}

func (m *measured) Penalise(c wire.Code) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blamed = append(m.blamed, c)
}

func (m memory) dialMeasured(t *testing.T) (wire.Transport, *measured) {
	t.Helper()
	mine, theirs := wiretest.Transports([]byte("binding"))
	seen := &measured{Transport: theirs}
	if err := m.listener.Offer(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mine.Close(wire.CodeShutdown, "test is over") })
	return mine, seen
}

func TestLinksAreLookedAtEveryMinuteAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		tr, link := r.dialMeasured(t)
		key := r.NewPeer(keys.Executor)
		join(t, tr, r.Relay, key, hello(key))
		r.newPeer(t, keys.Client) // has no figures
		want := func(when string, samples uint64, lost, paths float64) {
			t.Helper()
			synctest.Wait()
			if n, sum := rtt(t, r, "executor"); n != samples || sum != 0.25*float64(samples) {
				t.Errorf("%s: %d samples of a round trip, sum %v, want %d of 0.25", when, n, sum, samples)
			}
			if n, _ := rtt(t, r, "client"); n != 0 {
				t.Errorf("%s: %d samples of a peer without figures", when, n)
			}
			if l, p := value(t, r.Relay, "quic_lost_packets_total", "executor"), value(t, r.Relay, "path_changes_total", "executor"); l != lost || p != paths {
				t.Errorf("%s: %v lost, %v path changes, want %v and %v", when, l, p, lost, paths)
			}
		}
		want("at first", 0, 0, 0)
		time.Sleep(time.Minute)
		want("before QUIC has measured anything", 0, 0, 0)
		link.set(quicconn.Stats{RTT: 250 * time.Millisecond, PacketsLost: 7, PathChanges: 1})
		time.Sleep(time.Minute)
		want("after a minute", 1, 7, 1)
		time.Sleep(time.Minute)
		want("after another one", 2, 7, 1)
		link.set(quicconn.Stats{RTT: 250 * time.Millisecond, PacketsLost: 9, PathChanges: 2})
		_ = tr.Close(wire.CodeShutdown, "bye")
		want("at the end", 3, 9, 2)
		time.Sleep(10 * time.Minute)
		want("afterwards", 3, 9, 2)
	})
}

// rtt is the histogram of round trips.
func rtt(t *testing.T, r memory, role string) (samples uint64, sum float64) {
	t.Helper()
	families, err := r.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "postern_relay_quic_rtt_seconds" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == role {
					return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
				}
			}
		}
	}
	t.Fatal("no histogram of round trips")
	return 0, 0
}

func TestAddressIsBlamedForAFailedHandshakeAndForNothingElse(t *testing.T) {
	admitted := func(r memory, t *testing.T) *keys.PrivateKey { return r.NewPeer(keys.Client) }
	comes := func(tr wire.Transport, relayKey keys.PublicKey, key *keys.PrivateKey, h *wire.HopHello) {
		_, _, _ = shake(context.Background(), tr, relayKey, key, h)
	}
	cases := []struct {
		name   string
		blamed bool
		come   func(t *testing.T, r memory, tr wire.Transport)
	}{
		{"garbage", true, func(t *testing.T, r memory, tr wire.Transport) {
			s, err := tr.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Write(append([]byte{wire.Version, 4, 208}, make([]byte, 1232)...))
			<-tr.Context().Done()
		}},
		{"another relay's key", true, func(t *testing.T, r memory, tr wire.Transport) {
			comes(tr, generate(t, keys.Relay).Public(), admitted(r, t), hello(admitted(r, t)))
		}},
		{"a proven key that is not admitted", false, func(t *testing.T, r memory, tr wire.Transport) {
			key := generate(t, keys.Client)
			comes(tr, r.Key.Public(), key, hello(key))
		}},
		{"an admitted key", false, func(t *testing.T, r memory, tr wire.Transport) {
			key := admitted(r, t)
			comes(tr, r.Key.Public(), key, hello(key))
		}},
		{"another version", false, func(t *testing.T, r memory, tr wire.Transport) {
			key := admitted(r, t)
			h := hello(key)
			h.Versions = wire.VersionRange{Min: wire.Version + 1, Max: wire.Version + 1}
			comes(tr, r.Key.Public(), key, h)
		}},
		{"one that left", false, func(t *testing.T, r memory, tr wire.Transport) { _ = tr.Close(wire.CodeCancelled, "") }},
		{"one that is silent", false, func(t *testing.T, r memory, tr wire.Transport) { <-tr.Context().Done() }},
		{"a join token that is unknown", false, func(t *testing.T, r memory, tr wire.Transport) {
			key := generate(t, keys.Executor)
			h := hello(key)
			h.Join = &wire.JoinProof{Token: wire.ID{1}}
			comes(tr, r.Key.Public(), key, h)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, relay.Limits{})
				tr, seen := r.dialMeasured(t)
				c.come(t, r, tr)
				_ = tr.Close(wire.CodeShutdown, "bye")
				synctest.Wait()
				seen.mu.Lock()
				defer seen.mu.Unlock()
				if blamed := len(seen.blamed) > 0; blamed != c.blamed {
					t.Errorf("blamed for %v, want blamed: %v", seen.blamed, c.blamed)
				}
			})
		})
	}
}

func TestBlameBarsTheAddressOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	key := r.NewPeer(keys.Client)
	wrong := generate(t, keys.Relay).Public()
	for n := 0; ; n++ {
		c, err := relaytest.Dial(t.Context(), r.Address(), quicconn.Options{Role: wire.RoleClient})
		if err == nil {
			_, _, err = shake(t.Context(), c, wrong, key, hello(key))
			_ = c.Close(wire.CodeShutdown, "bye")
		}
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == wire.CodeBusy {
			if n < 3 {
				t.Errorf("barred after %d failures, want at least 3 to be free", n)
			}
			break
		}
		if n == 20 {
			t.Fatalf("not barred after %d failures: %v", n, err)
		}
	}
}

func TestTenantSeriesAreCappedAndGoWithTheirTenant(t *testing.T) {
	l := relaytest.NewListener()
	r := memory{relaytest.ServeWith(t, l, func(c *relay.Config) { c.TenantSeries = true }), l}
	tenant := func(n int) string { return fmt.Sprintf("t%03d", n) }
	const tenants = 203
	key := func(kind keys.Kind) *keys.PrivateKey { return generate(t, kind) }
	type pair struct{ client, executor *keys.PrivateKey }
	var all []pair
	for n := range tenants {
		p := pair{key(keys.Client), key(keys.Executor)}
		r.ListUnchecked(tenant(n), p.client.Public())
		r.ListUnchecked(tenant(n), p.executor.Public())
		all = append(all, p)
	}
	r.AllowIn(tenant(0), key(keys.Client).Public()) // reads the list
	carry := func(n int) {
		t.Helper()
		client, executor := r.join(t, all[n].client, hello(all[n].client)), r.join(t, all[n].executor, hello(all[n].executor))
		c, e := circuit(t, client, executor)
		say(t, c, "12345")
		hear(t, e, "12345")
		_, _ = c.CloseWrite(), e.CloseWrite()
		readAll(t, c)
		_ = client.Close(wire.CodeShutdown, "bye")
		_ = executor.Close(wire.CodeShutdown, "bye")
	}
	for n := range tenants {
		carry(n)
	}
	series := func() int {
		t.Helper()
		families, err := r.Metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "tenant" {
						names[label.GetValue()] = true
					}
				}
			}
		}
		return len(names)
	}
	if n := series(); n != 201 {
		t.Errorf("%d tenants have series, want 200 and one for the rest", n)
	}
	if n := value(t, r.Relay, "tenant_relayed_bytes_total", "to_executor", "_other"); n != 15 {
		t.Errorf("the rest has %v bytes, want 15", n)
	}
	if n := value(t, r.Relay, "tenant_dials_total", "ok", "t007"); n != 1 {
		t.Errorf("t007 has %v dials, want 1", n)
	}
	for n := range 10 {
		r.RemoveTenant(tenant(n))
	}
	if n := series(); n != 191 {
		t.Errorf("%d tenants have series when ten have gone, want 191", n)
	}
	carry(tenants - 1) // has room for one of its own now
	if n := value(t, r.Relay, "tenant_dials_total", "ok", tenant(tenants-1)); n != 1 {
		t.Errorf("it has %v dials of its own, want 1", n)
	}
	// Without being asked for there are none.
	plain := inMemory(t, relay.Limits{})
	client, executor := plain.newPeer(t, keys.Client), plain.newPeer(t, keys.Executor)
	c, _ := circuit(t, client, executor)
	c.Reset(wire.CodeCancelled)
	_, _ = io.Copy(io.Discard, c)
	r = plain
	if n := series(); n != 0 {
		t.Errorf("%d tenants are named without being asked for", n)
	}
}
