package keys

import (
	"bytes"
	"crypto/ecdh"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

var allKinds = []Kind{Relay, Executor, Client}

// generate returns a new key and fails the test otherwise.
func generate(t testing.TB, kind Kind) *PrivateKey {
	t.Helper()
	k, err := Generate(kind)
	if err != nil {
		t.Fatalf("Generate(%s): %v", kind, err)
	}
	return k
}

// fixedKey returns the public key whose bytes are seed, seed+1, ...: the same in every run.
func fixedKey(t testing.TB, kind Kind, seed byte) PublicKey {
	t.Helper()
	var raw [32]byte
	for i := range raw {
		raw[i] = seed + byte(i)
	}
	key, err := NewPublicKey(kind, raw)
	if err != nil {
		t.Fatalf("NewPublicKey(%s): %v", kind, err)
	}
	return key
}

func TestKeyTextRoundTrips(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds {
		for range 50 {
			private := generate(t, kind)
			public, err := ParsePublicKey(private.Public().String())
			if err != nil || public != private.Public() || public.Kind() != kind {
				t.Fatalf("ParsePublicKey(String()) = %v, %v, want the same key", public, err)
			}
			again, err := ParsePrivateKey(private.Secret())
			if err != nil || !again.ECDH().Equal(private.ECDH()) || again.Public() != public {
				t.Fatalf("ParsePrivateKey(Secret()) = %v, %v, want the same key", again, err)
			}
			encoded, err := json.Marshal(public)
			var decoded PublicKey
			if err != nil || json.Unmarshal(encoded, &decoded) != nil || decoded != public {
				t.Fatalf("key through JSON = %v, %v, want %v", decoded, err, public)
			}
		}
	}
}

// TestNoOneCharacterChangeIsAccepted uses fixed keys: a checksum of 16 bits lets one of 65,536 changes through, so that random
// keys would fail this test now and then. Every change to the prefix and every change of length is refused for any key.
func TestNoOneCharacterChangeIsAccepted(t *testing.T) {
	t.Parallel()
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_-=# \n\x00\xff"
	for _, kind := range allKinds {
		raw := fixedKey(t, kind, 7).Raw()
		key, err := ecdh.X25519().NewPrivateKey(raw[:])
		if err != nil {
			t.Fatal(err)
		}
		private, err := NewPrivateKey(kind, key)
		if err != nil {
			t.Fatal(err)
		}
		for text, parses := range map[string]func(string) bool{
			private.Public().String(): func(s string) bool { _, err := ParsePublicKey(s); return err == nil },
			private.Secret():          func(s string) bool { _, err := ParsePrivateKey(s); return err == nil },
		} {
			for i := range len(text) + 1 {
				for _, c := range []byte(characters) {
					if changed := text[:i] + string(c) + text[i:]; parses(changed) {
						t.Errorf("accepted %q with %q put in at %d", text, c, i)
					}
					if i < len(text) && c != text[i] && parses(text[:i]+string(c)+text[i+1:]) {
						t.Errorf("accepted %q with %q at %d", text, c, i)
					}
				}
				if i < len(text) && parses(text[:i]+text[i+1:]) {
					t.Errorf("accepted %q without the character at %d", text, i)
				}
				if i+1 < len(text) && text[i] != text[i+1] && parses(text[:i]+text[i+1:i+2]+text[i:i+1]+text[i+2:]) {
					t.Errorf("accepted %q with %d and the next swapped", text, i)
				}
			}
		}
	}
}

func TestShortAndZeroKeysAreNotInput(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	for _, text := range []string{"", key.Short(), strings.TrimSuffix(key.Short(), "..."), PublicKey{}.Short(), PublicKey{}.String()} {
		if got, err := ParsePublicKey(text); err == nil {
			t.Errorf("ParsePublicKey(%q) = %v, want an error", text, got)
		}
	}
	if !strings.HasPrefix(key.String(), strings.TrimSuffix(key.Short(), "...")) {
		t.Errorf("Short() = %q is no beginning of %q", key.Short(), key)
	}
	if _, err := (PublicKey{}).MarshalText(); err == nil {
		t.Error("MarshalText of the zero key succeeded")
	}
}

func TestUnusableKeysAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := NewPublicKey(Client, [32]byte{}); err == nil {
		t.Error("NewPublicKey accepted the all-zero key")
	}
	for _, kind := range []Kind{"", "org", "Client", "clientsecret"} {
		if _, err := NewPublicKey(kind, [32]byte{1}); err == nil {
			t.Errorf("NewPublicKey accepted kind %q", kind)
		}
		if _, err := Generate(kind); err == nil {
			t.Errorf("Generate accepted kind %q", kind)
		}
	}
	p256, err := ecdh.P256().NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []*ecdh.PrivateKey{nil, p256} {
		if _, err := NewPrivateKey(Client, key); err == nil {
			t.Errorf("NewPrivateKey accepted %v", key)
		}
	}
}

func TestPrivateKeyNeverPrints(t *testing.T) {
	t.Parallel()
	k := generate(t, Executor)
	type holder struct {
		Pointer *PrivateKey
		Value   PrivateKey
		hidden  *PrivateKey
		inline  PrivateKey
	}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o"} {
		fmt.Fprintf(&out, verb+"\n", k)
		fmt.Fprintf(&out, verb+"\n", *k)
		fmt.Fprintf(&out, verb+"\n", holder{k, *k, k, *k})
		fmt.Fprintf(&out, verb+"\n", &holder{k, *k, k, *k})
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("key", "pointer", k, "value", *k, "holder", holder{k, *k, k, *k}, "public", k.Public())
	}
	encoded, err := json.Marshal(holder{k, *k, k, *k})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	fmt.Fprintln(&out, fmt.Errorf("wrapped: %v", k))

	raw := k.ECDH().Bytes()
	for what, secret := range map[string]string{
		"secret text": k.Secret(),
		"base32 body": strings.TrimPrefix(k.Secret(), "execsecret_")[:20],
		"bytes":       string(raw[:8]),
		"hex":         fmt.Sprintf("%x", raw[:8]),
		"HEX":         fmt.Sprintf("%X", raw[:8]),
		"decimal":     strings.Trim(fmt.Sprint(raw[:8]), "[]"),
		"octal":       strings.Trim(fmt.Sprintf("%o", raw[:8]), "[]"),
	} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("output holds the key as %s", what)
		}
	}
	if !strings.Contains(out.String(), "redacted") {
		t.Error("output does not say that the key is redacted")
	}
}

func TestKeyErrorsDoNotRepeatSecrets(t *testing.T) {
	t.Parallel()
	secret := generate(t, Client).Secret()
	body := strings.TrimPrefix(secret, "clientsecret_")
	for _, text := range []string{
		secret, secret + "x", secret[:len(secret)-1], "Client" + secret[6:], strings.ToUpper(secret), "x" + secret, body,
		"client_" + body, "clinetsecret_" + body, "client-secret_" + body, "clientsecre_" + body,
	} {
		var failures []error
		_, err := ParsePublicKey(text)
		failures = append(failures, err)
		if text != secret {
			_, err = ParsePrivateKey(text)
			failures = append(failures, err)
		}
		_, err = ParseRelayURL("postern://h:1#" + text)
		failures = append(failures, err)
		public := fixedKey(t, Client, 3).String()
		for _, line := range []string{text, text + " name", public + " " + text, text + " " + public, "opt=" + text + " " + public} {
			_, err = ParseAuthorizedClients("f", strings.NewReader(line))
			if strings.HasPrefix(line, public) && !isSecretText(text) {
				continue // a comment that nobody can tell from another
			}
			failures = append(failures, err)
		}
		for _, line := range []string{text, "client " + text + " n", "client " + public + " " + secret, text + " " + text + " " + text} {
			_, err = ParseTenants("f", strings.NewReader("tenant t\n"+line))
			failures = append(failures, err)
			_, err = ParseKnownExecutors("f", strings.NewReader(line))
			failures = append(failures, err)
		}
		for _, err := range failures {
			if err == nil {
				t.Errorf("a parser accepted a misplaced secret (variant of length %d)", len(text))
			} else if strings.Contains(strings.ToLower(err.Error()), body[:10]) {
				t.Errorf("error repeats the secret: %v", err)
			}
		}
	}
}
