package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

// TestWhoReachesWhom is the access matrix: every client, every executor.
func TestWhoReachesWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		const acme, other = "acme", "other"
		clients := map[string]*peer{acme: r.newPeerIn(t, acme, keys.Client), other: r.newPeerIn(t, other, keys.Client)}
		strange := generate(t, keys.Client)
		if _, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), strange, hello(strange)); wire.CodeOf(err) != wire.CodeUnauthorized {
			t.Errorf("unknown client: %v", err)
		}
		gone := r.newPeerIn(t, acme, keys.Client)
		r.Remove(gone.key.Public())
		wantCode(t, "removed client", ended(t, gone), wire.CodeUnauthorized)
		if _, err := gone.OpenStream(t.Context()); err == nil {
			t.Error("a removed client opens a stream")
		}

		type row struct {
			name      string
			key       keys.PublicKey
			reachable string // for clients of this tenant; "": for nobody
			live      *peer
		}
		rows := []row{{"unknown", generate(t, keys.Executor).Public(), "", nil}, {"a client's key", clients[acme].key.Public(), "", nil}, {"the relay's key", r.Key.Public(), "", nil}}
		for _, tenant := range []string{acme, other} {
			online := r.newPeerIn(t, tenant, keys.Executor)
			offline := r.newPeerIn(t, tenant, keys.Executor)
			_ = offline.Close(wire.CodeShutdown, "bye")
			never := generate(t, keys.Executor)
			r.AllowIn(tenant, never.Public())
			removed := r.newPeerIn(t, tenant, keys.Executor)
			r.Remove(removed.key.Public())
			twice := r.newPeerIn(t, tenant, keys.Executor)
			twice.answer()
			clone := r.dial(t)
			if _, _, err := shake(t.Context(), clone, r.Key.Public(), twice.key, hello(twice.key)); wire.CodeOf(err) != wire.CodeDuplicate {
				t.Errorf("second instance: %v", err)
			}
			rows = append(rows,
				row{"online in " + tenant, online.key.Public(), tenant, online},
				row{"with a second instance in " + tenant, twice.key.Public(), tenant, twice},
				row{"offline in " + tenant, offline.key.Public(), "", nil},
				row{"never seen in " + tenant, never.Public(), "", nil},
				row{"removed from " + tenant, removed.key.Public(), "", nil},
			)
		}
		synctest.Wait()
		want := ""
		for tenant, client := range clients {
			for _, row := range rows {
				if row.reachable == tenant {
					c, e := circuit(t, client, &peer{Transport: row.live, t: t, key: row.live.key})
					say(t, c, "hello "+tenant)
					hear(t, e, "hello "+tenant)
					c.Reset(wire.CodeCancelled)
					continue
				}
				dials, refusals, tally := value(t, r.Relay, "dials_total", "unreachable"), value(t, r.Relay, "refusals_total", "unreachable"), value(t, r.Relay, "circuits")
				got := rawReply(t, client, row.key)
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%s asks for %s: %s, want the one answer %s", tenant, row.name, got, want)
				}
				// The same way through the code: one refusal of one kind, whatever the reason.
				if value(t, r.Relay, "dials_total", "unreachable") != dials+1 || value(t, r.Relay, "refusals_total", "unreachable") != refusals+1 || value(t, r.Relay, "circuits") > tally {
					t.Errorf("%s asks for %s: not counted as one unreachable", tenant, row.name)
				}
			}
		}
		// No executor has heard of those who may not reach it: nothing waits to be accepted.
		for _, row := range rows {
			if row.live == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if s, err := row.live.AcceptStream(ctx); err == nil {
				t.Errorf("%s: a stream came of a refused dial: %v", row.name, s)
			}
			cancel()
		}
	})
}

func TestListOfExecutorsIsThatOfTheOwnTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		alice, bob := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "other", keys.Client)
		online, offline := r.newPeerIn(t, "acme", keys.Executor), r.newPeerIn(t, "acme", keys.Executor)
		never := generate(t, keys.Executor)
		r.AllowAs("acme", never.Public(), "never-here")
		foreign := r.newPeerIn(t, "other", keys.Executor)
		time.Sleep(time.Hour) // on the bubble's clock
		left := time.Now()
		_ = offline.Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		time.Sleep(time.Hour)

		got := make(map[[32]byte]*wire.ExecutorItem)
		for _, m := range alice.carriedOut(&wire.ListExecutors{}) {
			item := m.(*wire.ExecutorItem)
			got[item.Executor] = item
		}
		if len(got) != 3 {
			t.Errorf("alice is told of %d executors, want the 3 of her tenant", len(got))
		}
		for name, c := range map[string]struct {
			key    keys.PublicKey
			online bool
			seen   time.Time
			name   string
		}{
			"online":  {online.key.Public(), true, time.Now(), online.welcome.Name},
			"offline": {offline.key.Public(), false, left, offline.welcome.Name},
			"never":   {never.Public(), false, time.Time{}, "never-here"},
		} {
			item := got[c.key.Raw()]
			seen := int64(0)
			if !c.seen.IsZero() {
				seen = c.seen.UnixMilli()
			}
			if item == nil || item.Online != c.online || item.Seen != seen || item.Name != c.name || item.Token != nil || item.Follows != nil {
				t.Errorf("%s: %+v, want online %v, seen %d, name %s", name, item, c.online, seen, c.name)
			}
		}
		items := bob.carriedOut(&wire.ListExecutors{})
		if len(items) != 1 || items[0].(*wire.ExecutorItem).Executor != foreign.key.Public().Raw() {
			t.Errorf("bob is told %v, want the one of his tenant", items)
		}
	})
}

func TestListOfTokensIsThatOfTheOwnTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		alice, bob := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "other", keys.Client)
		tok := alice.newToken("builder-*", 2)
		key := generate(t, keys.Executor)
		r.join(t, key, tok.hello(key, "builder-1"))
		for _, expired := range []bool{false, true} {
			items := alice.carriedOut(&wire.ListTokens{})
			if len(items) != 1 {
				t.Fatalf("alice is told of %d tokens, want hers", len(items))
			}
			item := items[0].(*wire.TokenItem)
			if item.ID != wire.ID(tok.id) || item.Pattern != "builder-*" || item.Uses != 2 || item.Used != 1 || item.By != alice.key.Public().Raw() || item.Expired != expired {
				t.Errorf("%+v, want her token, expired %v", item, expired)
			}
			time.Sleep(time.Hour) // on the bubble's clock
		}
		if items := bob.carriedOut(&wire.ListTokens{}); len(items) != 0 {
			t.Errorf("bob is told of %d tokens, want none", len(items))
		}
		if _, end := bob.request(&wire.RemoveToken{ID: wire.ID(tok.id)}); end.Code != wire.CodeNotFound {
			t.Errorf("bob removes it: %v", end.Err())
		}
	})
}

func TestMovedClientIsToldOfItsNewTenantOnly(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	alice := r.newPeerIn(t, "acme", keys.Client)
	alice.newToken("*", 1)
	r.newPeerIn(t, "acme", keys.Executor)
	r.MoveUnchecked("other", alice.key.Public(), "moved")
	for _, m := range []wire.Message{&wire.ListExecutors{}, &wire.ListTokens{}} {
		if items, end := alice.request(m); len(items) != 0 || end.Err() != nil {
			t.Errorf("%T: %d items of the tenant that it has left, %v", m, len(items), end.Err())
		}
	}
}

func TestRequestOfARemovedKeyIsRefused(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	client, executor := r.newPeer(t, keys.Client), r.newPeer(t, keys.Executor)
	tok := client.newToken("*", 1)
	r.RemoveUnchecked(client.key.Public())
	r.RemoveUnchecked(executor.key.Public())
	for _, m := range []wire.Message{
		&wire.ListExecutors{}, &wire.ListTokens{}, &wire.RemoveToken{ID: wire.ID(tok.id)},
		&wire.AddToken{ID: wire.ID{1}, Hash: [32]byte{1}, Pattern: "*", Uses: 1, TTLMillis: 1},
	} {
		if items, end := client.request(m); len(items) != 0 || end.Code != wire.CodeUnauthorized {
			t.Errorf("%T: %d items, %v, want unauthorized", m, len(items), end.Err())
		}
	}
	for _, m := range []wire.Message{&wire.Follow{Executor: [32]byte{1}}, &wire.Retire{Executor: [32]byte{1}}} {
		if _, end := executor.request(m); end.Code != wire.CodeUnauthorized {
			t.Errorf("%T: %v, want unauthorized", m, end.Err())
		}
	}
	if _, known := r.Roster().Current().Join(tok.id); !known {
		t.Error("a removed key has removed a token")
	}
}

func TestOnlyExecutorsReplaceTheirKeys(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	client := r.newPeer(t, keys.Client)
	for _, m := range []wire.Message{&wire.Follow{Executor: [32]byte{1}}, &wire.Retire{Executor: [32]byte{1}}} {
		if _, end := client.request(m); end.Code != wire.CodeBadRequest {
			t.Errorf("%T of a client: %v, want a bad request", m, end.Err())
		}
	}
	if _, err := client.OpenStream(t.Context()); errors.Is(err, wire.ErrLost) {
		t.Error("the connection is gone")
	}
}
