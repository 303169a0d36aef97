package relay_test

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

// spellings are the forms in which a secret might get into a log.
func spellings(secret [32]byte) []string {
	lower := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret[:]))
	return []string{
		hex.EncodeToString(secret[:]), lower, strings.ToUpper(lower), base64.StdEncoding.EncodeToString(secret[:]),
		fmt.Sprint(secret), fmt.Sprintf("%#v", secret), string(secret[:]),
	}
}

func TestExecutorWithATokenIsAdmittedAndStaysAMember(t *testing.T) {
	r, log := logged(t, relay.Limits{})
	alice := r.newPeerIn(t, "acme", keys.Client)
	tok, key := alice.newToken("builder-*", 1), generate(t, keys.Executor)
	h := tok.hello(key, "builder-1")
	first := r.join(t, key, h)
	if first.welcome.Name != "builder-1" || first.welcome.Tenant != "acme" {
		t.Errorf("welcome %+v", first.welcome)
	}
	circuit(t, alice, first)
	r.join(t, key, h)                                                                                           // the answer was lost: it shows the token again
	circuit(t, alice, r.join(t, key, &wire.HopHello{Role: h.Role, Versions: h.Versions, Instance: h.Instance})) // the token is gone
	for result, want := range map[string]float64{"ok": 1, "again": 1, "spent": 0, "unknown": 0} {
		if n := value(t, r.Relay, "joins_total", result); n != want {
			t.Errorf("counted %v joins as %s, want %v", n, result, want)
		}
	}
	items := alice.carriedOut(&wire.ListExecutors{})
	item, _ := items[0].(*wire.ExecutorItem)
	if len(items) != 1 || item == nil || item.Token == nil || *item.Token != wire.ID(tok.id) || *item.MAC != h.Join.MAC || item.Executor != key.Public().Raw() {
		t.Errorf("alice is told %+v, want the announcement", item)
	}
	for _, secret := range spellings(tok.secret) {
		if strings.Contains(log.String(), secret) {
			t.Error("the log has the token's secret")
		}
	}
}

func TestRefusedJoinIsToldLoggedAndCountedWithoutItsSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := logged(t, relay.Limits{})
		alice, bob := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "other", keys.Client)
		taken := r.newPeerIn(t, "acme", keys.Executor)
		fresh, spent := alice.newToken("*", 5), alice.newToken("*", 1)
		first := generate(t, keys.Executor)
		r.join(t, first, spent.hello(first, "first"))
		foreign := bob.newToken("*", 1)
		wrong := fresh
		wrong.secret[3] ^= 1
		for _, c := range []struct {
			name, as string
			tok      token
			key      *keys.PrivateKey
			result   string
			code     wire.Code
		}{
			{"wrong secret", "x", wrong, generate(t, keys.Executor), "unknown", wire.CodeToken},
			{"unknown id", "x", token{id: keys.TokenID{9}, secret: fresh.pairing}, generate(t, keys.Executor), "unknown", wire.CodeToken},
			{"spent", "x", spent, generate(t, keys.Executor), "spent", wire.CodeToken},
			{"taken name", taken.welcome.Name, fresh, generate(t, keys.Executor), "name", wire.CodeNameTaken},
			{"no name", "", fresh, generate(t, keys.Executor), "name", wire.CodeNameTaken},
			{"another tenant's", "x", foreign, first, "foreign", wire.CodeUnauthorized},
			{"expired", "x", fresh, generate(t, keys.Executor), "expired", wire.CodeToken},
		} {
			if c.result == "expired" {
				time.Sleep(time.Hour) // on the bubble's clock
			}
			before, logBefore := value(t, r.Relay, "joins_total", c.result), log.String()
			tr := r.dial(t)
			_, _, err := shake(t.Context(), tr, r.Key.Public(), c.key, c.tok.hello(c.key, c.as))
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != c.code || e.Text == "" {
				t.Errorf("%s: %v, want code %v and a text", c.name, err, c.code)
			}
			wantCode(t, c.name, ended(t, tr), c.code)
			if n := value(t, r.Relay, "joins_total", c.result); n != before+1 {
				t.Errorf("%s: counted %v more as %s, want 1", c.name, n-before, c.result)
			}
			said := log.String()[len(logBefore):]
			if strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, c.tok.id.String()) || !strings.Contains(said, "result="+c.result) {
				t.Errorf("%s: log has %q, want one warning with the token's id", c.name, said)
			}
			for _, secret := range append(spellings(c.tok.secret), spellings(c.tok.pairing)...) {
				if strings.Contains(log.String(), secret) || err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: a secret is in the log or in the answer", c.name)
				}
			}
		}
		if n := value(t, r.Relay, "handshakes_total", "join", "executor"); n != 7 {
			t.Errorf("counted %v handshakes as join, want 7", n)
		}
	})
}

func TestWrongSecretAndUnknownTokenGetTheSameAnswer(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	tok := r.newPeer(t, keys.Client).newToken("*", 1)
	wrong := tok
	wrong.secret[0] ^= 1
	var answers []string
	for _, tok := range []token{wrong, {id: keys.TokenID{1}}} {
		key := generate(t, keys.Executor)
		_, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), key, tok.hello(key, "x"))
		e, ok := errors.AsType[*wire.Error](err)
		if !ok {
			t.Fatal(err)
		}
		b, err := wire.Encode(wire.Refusal(e))
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(b))
	}
	if answers[0] != answers[1] {
		t.Errorf("wrong secret: %x, unknown token: %x", answers[0], answers[1])
	}
}

func TestClientCannotShowAJoinProof(t *testing.T) {
	key := generate(t, keys.Executor)
	h := token{id: keys.TokenID{1}, secret: [32]byte{2}}.hello(key, "x")
	good, err := wire.Encode(h)
	if err != nil {
		t.Fatal(err)
	}
	h.Role = wire.RoleClient
	if _, err := wire.Encode(h); err == nil {
		t.Error("the codec writes it")
	}
	// {1: type, 2: role, ...}: the role is one small number.
	role := strings.Index(string(good), "\x02\x01\x03")
	if role < 0 {
		t.Fatalf("no role in %x", good)
	}
	bad := strings.Replace(string(good), "\x02\x01\x03", "\x02\x02\x03", 1)
	if _, err := wire.DecodeAs[*wire.HopHello](good); err != nil {
		t.Errorf("an executor's: %v", err)
	}
	if _, err := wire.DecodeAs[*wire.HopHello]([]byte(bad)); err == nil {
		t.Error("the codec reads it")
	}
}

// A stolen token serves one machine, and whoever comes second learns that there is another.
func TestStolenTokenIsNoticedWhoeverIsFirst(t *testing.T) {
	for _, first := range []string{"thief", "machine"} {
		t.Run(first+" first", func(t *testing.T) {
			r, log := logged(t, relay.Limits{})
			alice := r.newPeerIn(t, "acme", keys.Client)
			tok := alice.newToken("builder", 1)
			a, b := generate(t, keys.Executor), generate(t, keys.Executor)
			r.join(t, a, tok.hello(a, "builder"))
			_, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), b, tok.hello(b, "builder"))
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeToken || !strings.Contains(e.Text, "somebody else has it") {
				t.Errorf("second: %v, want code %v and that somebody else has it", err, wire.CodeToken)
			}
			if n := value(t, r.Relay, "joins_total", "spent"); n != 1 {
				t.Errorf("counted %v as spent, want 1", n)
			}
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), b.Public().Short()) {
				t.Error("no warning names the second machine")
			}
			_, in := r.Roster().Current().Lookup(b.Public())
			items := alice.carriedOut(&wire.ListTokens{})
			if item := items[0].(*wire.TokenItem); in || item.Used != 1 {
				t.Errorf("second is a member: %v; token %+v", in, item)
			}
		})
	}
}
