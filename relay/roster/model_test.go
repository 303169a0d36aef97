package roster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
)

// model is what a roster must hold to, kept apart from it: who made which token, who was let in with it,
// and what the operator has written. Members are read from the roster before each step.
type model struct {
	*house
	clients map[string]keys.Member // by tenant
	listed  map[string]bool        // tenants in the operator's list
	byHand  map[keys.PublicKey]keys.Member
	tokens  []*ledger
	keys    []keys.PublicKey // of executors
}

// ledger is one token and who was let in with it.
type ledger struct {
	token
	tenant, pattern string
	uses, granted   int
	expires         time.Time
	removed         bool
}

var (
	modelTenants  = []string{"acme", "other"}
	modelNames    = []string{"a1", "a2", "b1"}
	modelPatterns = []string{"*", "a*", "b1"}
)

// write puts the operator's list in force.
func (m *model) write() {
	var lines []string
	for _, tenant := range modelTenants {
		if !m.listed[tenant] {
			continue
		}
		lines = append(lines, "tenant "+tenant, line(m.clients[tenant]))
		for _, key := range m.keys {
			if own, in := m.byHand[key]; in && own.Tenant == tenant {
				lines = append(lines, line(own))
			}
		}
	}
	m.relist(lines...)
}

// live is whether a token can be found at all.
func (m *model) live(l *ledger) bool { return !l.removed && m.listed[l.tenant] }

// mayJoin is the rule, told once more.
func (m *model) mayJoin(l *ledger, key keys.PublicKey, name string, secretIsRight bool) (again, fresh bool) {
	if !secretIsRight || !m.live(l) {
		return false, false
	}
	own, member := m.Current().Lookup(key)
	if member && own.Tenant != l.tenant {
		return false, false
	}
	if member && own.Token == l.id && own.Name == name {
		return true, false
	}
	for _, holder := range m.Current().Members(l.tenant) {
		oneMachine := holder.Key == key || member && (holder.Key == own.Follows || holder.Follows == key)
		if holder.Key.Kind() == keys.Executor && holder.Name == name && !oneMachine {
			return false, false
		}
	}
	if hand, in := m.byHand[key]; in && m.listed[hand.Tenant] && hand.Name != name {
		return false, false
	}
	return false, l.granted < l.uses && time.Now().Before(l.expires) && keys.MatchName(l.pattern, name)
}

func (m *model) join(t *rapid.T) {
	if len(m.tokens) == 0 {
		t.Skip("no token yet")
	}
	l, key, name := rapid.SampledFrom(m.tokens).Draw(t, "token"), rapid.SampledFrom(m.keys).Draw(t, "key"), rapid.SampledFrom(modelNames).Draw(t, "name")
	proof := l.proof(key, name)
	right := rapid.IntRange(0, 9).Draw(t, "secret") > 0
	if !right {
		proof.Secret[0] ^= 1
	}
	again, fresh := m.mayJoin(l, key, name, right)
	got, result, err := m.Join(key, name, proof)
	if (result == roster.JoinAgain) != again || (result == roster.Joined) != fresh || (err == nil) != (again || fresh) {
		t.Fatalf("join with %+v as %s: %s, %v, want again %v, joined %v", l, name, result, err, again, fresh)
	}
	if result == roster.Joined {
		l.granted++
	}
	if err == nil && (got.Key != key || got.Name != name || got.Tenant != l.tenant || got.Token != l.id || got.MAC != proof.MAC) {
		t.Fatalf("joined as %+v", got)
	}
}

func (m *model) addToken(t *rapid.T) {
	l := &ledger{
		token: newToken(), tenant: rapid.SampledFrom(modelTenants).Draw(t, "tenant"), pattern: rapid.SampledFrom(modelPatterns).Draw(t, "pattern"),
		uses: rapid.IntRange(1, 3).Draw(t, "uses"), expires: time.Now().Add(10 * time.Second).Truncate(time.Second),
	}
	err := m.AddToken(m.clients[l.tenant], l.request(l.pattern, l.uses, 10*time.Second))
	if (err == nil) != m.listed[l.tenant] {
		t.Fatalf("token of %s: %v, listed %v", l.tenant, err, m.listed[l.tenant])
	}
	if err == nil {
		m.tokens = append(m.tokens, l)
	}
}

func (m *model) removeToken(t *rapid.T) {
	if len(m.tokens) == 0 {
		t.Skip("no token yet")
	}
	l, by := rapid.SampledFrom(m.tokens).Draw(t, "token"), m.clients[rapid.SampledFrom(modelTenants).Draw(t, "by")]
	err := m.RemoveToken(by, l.id)
	if want := m.live(l) && by.Tenant == l.tenant; (err == nil) != want {
		t.Fatalf("%s removes a token of %s: %v", by.Tenant, l.tenant, err)
	}
	l.removed = l.removed || err == nil
}

// removeByHand takes a line out of the relay's own list, as an operator may.
func (m *model) removeByHand(t *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(t, "key")
	if err := keys.RewriteTenants(m.path(), func(edit *keys.TenantsEdit) error {
		edit.RemoveMember(key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := m.Reload(); err != nil {
		t.Fatal(err)
	}
	if own, in := m.Current().Lookup(key); in && m.byHand[key].Key != key {
		t.Fatalf("removed by hand, and still %+v", own)
	}
}

// relistKey lists a key by hand under a name, or takes that back.
func (m *model) relistKey(t *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(t, "key")
	if _, in := m.byHand[key]; in {
		delete(m.byHand, key)
	} else {
		own := keys.Member{Key: key, Tenant: rapid.SampledFrom(modelTenants).Draw(t, "tenant"), Name: rapid.SampledFrom(modelNames).Draw(t, "name")}
		for _, other := range m.byHand {
			if other.Tenant == own.Tenant && other.Name == own.Name {
				t.Skip("the operator would make a mistake")
			}
		}
		m.byHand[key] = own
	}
	m.write()
}

func (m *model) follow(t *rapid.T) {
	key, next := rapid.SampledFrom(m.keys).Draw(t, "key"), rapid.SampledFrom(m.keys).Draw(t, "next")
	own, member := m.Current().Lookup(key)
	if !member {
		own = keys.Member{Key: key, Name: "a1", Tenant: "acme"} // it was one a moment ago
	}
	other, taken := m.Current().Lookup(next)
	_, chain := m.Current().Lookup(own.Follows)
	err := m.Follow(own, next)
	if err == nil && (!member || taken && other.Follows != key || chain && !taken) {
		t.Fatalf("%+v is followed by %+v: it must not be", own, other)
	}
	if err == nil {
		if got, in := m.Current().Lookup(next); !in || got.Follows != key || got.Tenant != own.Tenant {
			t.Fatalf("follows as %+v, %v", got, in)
		}
	}
}

func (m *model) retire(t *rapid.T) {
	key := rapid.SampledFrom(m.keys).Draw(t, "key")
	own, member := m.Current().Lookup(key)
	old := rapid.SampledFrom(append(slices.Clone(m.keys), own.Follows)).Draw(t, "old")
	if old.IsZero() {
		t.Skip("it follows none")
	}
	err := m.Retire(keys.Member{Key: key, Tenant: own.Tenant}, old)
	if (err == nil) != (member && own.Follows == old) {
		t.Fatalf("%+v retires %v: %v", own, old, err)
	}
	if _, in := m.Current().Lookup(old); err == nil && in && m.byHand[old].Key != old {
		t.Fatal("the retired key is still a member")
	}
}

// check is what holds whatever happened.
func (m *model) check(t *rapid.T) {
	current := m.Current()
	for _, tenant := range modelTenants {
		names := make(map[string][]keys.Member)
		for _, own := range current.Members(tenant) {
			if own.Tenant != tenant || !m.listed[tenant] {
				t.Fatalf("%s has %+v", tenant, own)
			}
			if own.Key.Kind() == keys.Executor {
				names[own.Name] = append(names[own.Name], own)
			}
		}
		for name, holders := range names {
			if len(holders) > 2 || len(holders) == 2 && holders[0].Follows != holders[1].Key && holders[1].Follows != holders[0].Key {
				t.Fatalf("%s is the name of %+v", name, holders)
			}
		}
	}
	for key, own := range m.byHand {
		if got, in := current.Lookup(key); m.listed[own.Tenant] && (!in || got.Tenant != own.Tenant || got.Name != own.Name) {
			t.Fatalf("listed %+v, in force %+v, %v", own, got, in)
		}
	}
	for _, l := range m.tokens {
		join, known := current.Join(l.id)
		if known != m.live(l) || known && (join.Tenant != l.tenant || join.Used != l.granted || join.Used > join.Uses || join.Uses != l.uses) {
			t.Fatalf("token %+v, in force %+v, %v", l, join, known)
		}
	}
	again, err := roster.Open(m.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range m.keys {
		before, in := current.Lookup(key)
		if after, still := again.Current().Lookup(key); still != in || after != before {
			t.Fatalf("in force %+v, on disk %+v", before, after)
		}
	}
}

// TestWhateverHappensEveryoneGotInByAUseOrByHand runs random histories against the model.
func TestWhateverHappensEveryoneGotInByAUseOrByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make([]keys.PublicKey, 5)
		for i := range all {
			all[i] = newKey(t, keys.Executor)
		}
		clients := make(map[string]keys.Member)
		for _, tenant := range modelTenants {
			clients[tenant] = keys.Member{Key: newKey(t, keys.Client), Name: "client", Tenant: tenant}
		}
		dir := t.TempDir()
		// Without its Deadline, which the bubble does not allow and rapid asks for.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			m := &model{
				house: &house{t: t, dir: dir, log: new(bytes.Buffer)}, clients: clients, keys: all,
				listed: map[string]bool{"acme": true, "other": true}, byHand: make(map[keys.PublicKey]keys.Member),
			}
			if err := os.Remove(m.path()); err != nil && !os.IsNotExist(err) {
				rt.Fatal(err)
			}
			m.begin(rt)
			rt.Repeat(map[string]func(*rapid.T){
				"join": m.join, "join too": m.join, "token": m.addToken, "token back": m.removeToken, "remove by hand": m.removeByHand,
				"list by hand": m.relistKey, "follow": m.follow, "retire": m.retire, "": m.check,
				"tenant": func(rt *rapid.T) {
					tenant := rapid.SampledFrom(modelTenants).Draw(rt, "tenant")
					m.listed[tenant] = !m.listed[tenant]
					m.write()
				},
				// On the bubble's clock, and short: rapid ends after a day of it.
				"time":   func(rt *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 6).Draw(rt, "seconds")) * time.Second) },
				"reopen": func(*rapid.T) { m.restart() },
			})
		})
	})
}

// begin opens the roster with the model's first list.
func (m *model) begin(t *rapid.T) {
	lines := []string{"tenant acme", line(m.clients["acme"]), "tenant other", line(m.clients["other"])}
	if err := os.WriteFile(filepath.Join(m.dir, roster.ListedFile), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	m.restart()
}
