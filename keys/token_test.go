package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

// testToken is a token whose secrets are fixed.
func testToken(t testing.TB) *JoinToken {
	t.Helper()
	token := &JoinToken{
		Relay:   testRelay(t),
		Clients: []TokenClient{{fixedKey(t, Client, 1), "alice-laptop"}, {fixedKey(t, Client, 2), ""}},
		Pattern: "builder-*",
		Expires: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
	}
	for i := range 32 {
		token.ID[i%16] = byte(i % 16)
		token.Secret[i] = byte(100 + i)
		token.Pairing[i] = byte(200 + i)
	}
	return token
}

// textOf is the text of a token that has one.
func textOf(t testing.TB, token *JoinToken) string {
	t.Helper()
	text, err := token.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestJoinTokenComesBackFromItsText(t *testing.T) {
	t.Parallel()
	token, err := NewJoinToken(testRelay(t), testToken(t).Clients, "*", time.Date(2027, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	text := textOf(t, token)
	for name, pasted := range map[string]string{
		"as printed": text,
		"with space": "\n  " + text + " \t\r\n",
		"wrapped":    text[:3] + "\n" + text[3:80] + "\r\n  " + text[80:] + "\n",
	} {
		got, err := ParseJoinToken(pasted)
		if err != nil || !reflect.DeepEqual(got, token) {
			t.Errorf("%s: another token, or none: %v", name, err)
		}
		got, err = ReadJoinToken(strings.NewReader("# for builder-1\n" + pasted + "\n # end"))
		if err != nil || !reflect.DeepEqual(got, token) {
			t.Errorf("%s, from a file: another token, or none: %v", name, err)
		}
	}
	if got := formatTime(token.Expires); got != "2027-01-02T03:04:05Z" {
		t.Errorf("expires %s, want whole seconds in UTC", got)
	}
	other, err := NewJoinToken(token.Relay, token.Clients, "*", token.Expires)
	if err != nil || other.ID == token.ID || other.Secret == token.Secret || other.Pairing == token.Pairing || token.Secret == token.Pairing {
		t.Errorf("secrets repeat, or none were made: %v", err)
	}
}

// tokenVariants are tokens that must not be made.
func tokenVariants(t testing.TB) map[string]func(*JoinToken) {
	t.Helper()
	one := fixedKey(t, Client, 1)
	return map[string]func(*JoinToken){
		"no relay":             func(k *JoinToken) { k.Relay = RelayURL{} },
		"relay in capitals":    func(k *JoinToken) { k.Relay.Host = "RELAY" },
		"relay with a space":   func(k *JoinToken) { k.Relay.Host = "a b" },
		"no id":                func(k *JoinToken) { k.ID = TokenID{} },
		"no secret":            func(k *JoinToken) { k.Secret = [32]byte{} },
		"no pairing":           func(k *JoinToken) { k.Pairing = [32]byte{} },
		"no clients":           func(k *JoinToken) { k.Clients = nil },
		"too many clients":     func(k *JoinToken) { k.Clients = manyClients(t, 17) },
		"client twice":         func(k *JoinToken) { k.Clients = []TokenClient{{one, "a"}, {one, "b"}} },
		"executor as a client": func(k *JoinToken) { k.Clients[0].Key = fixedKey(t, Executor, 1) },
		"no client's key":      func(k *JoinToken) { k.Clients[0].Key = PublicKey{} },
		"client of two words":  func(k *JoinToken) { k.Clients[0].Name = "a b" },
		"no pattern":           func(k *JoinToken) { k.Pattern = "" },
		"two stars":            func(k *JoinToken) { k.Pattern = "**" },
		"no expiry":            func(k *JoinToken) { k.Expires = time.Time{} },
		"expires in year 9999": func(k *JoinToken) { k.Expires = time.Unix(lastSecond+1, 0) },
	}
}

func manyClients(t testing.TB, n byte) []TokenClient {
	t.Helper()
	var clients []TokenClient
	for i := range n {
		clients = append(clients, TokenClient{fixedKey(t, Client, i+1), strings.Repeat("n", maxName)})
	}
	return clients
}

func TestTokenThatWouldNotServeIsNeitherMadeNorWritten(t *testing.T) {
	t.Parallel()
	for name, spoil := range tokenVariants(t) {
		token := testToken(t)
		spoil(token)
		if text, err := token.Text(); err == nil || text != "" {
			t.Errorf("%s: Text gave %d characters, %v", name, len(text), err)
		}
		body, err := encodeToken(token) // as another program might
		if err != nil {
			t.Fatal(err)
		}
		if name == "executor as a client" {
			continue // the bytes do not say what a key is for
		}
		if _, err := ParseJoinToken(tokenPrefix + body); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
	if _, err := NewJoinToken(RelayURL{}, nil, "", time.Time{}); err == nil {
		t.Error("a token was made of nothing")
	}
	largest := testToken(t)
	largest.Clients = manyClients(t, maxTokenClient)
	largest.Relay.Host = strings.Repeat(strings.Repeat("a", 62)+".", 4)
	largest.Pattern = strings.Repeat("p", maxName)
	if got, err := ParseJoinToken(textOf(t, largest)); err != nil || !reflect.DeepEqual(got, largest) {
		t.Errorf("the largest token does not come back: %v", err)
	}
}

// tokenOfBytes is the text of encoded fields, with the right checksum.
func tokenOfBytes(encoded []byte) string {
	digest := sha256.Sum256(append([]byte("postern join token v1"), encoded...))
	return "join_" + independentBase32(append(bytes.Clone(encoded), digest[:4]...))
}

func TestMalformedTokensAreRefusedWithoutBeingRepeated(t *testing.T) {
	t.Parallel()
	text := textOf(t, testToken(t))
	encoded := independentToken(t, testToken(t))
	swap := func(old, with string) string {
		if bytes.Count(encoded, []byte(old)) != 1 {
			t.Fatalf("the token holds %q not once", old)
		}
		return tokenOfBytes(bytes.Replace(encoded, []byte(old), []byte(with), 1))
	}
	ascending := string(testToken(t).ID[:])
	for name, test := range map[string]struct{ text, want string }{
		"empty":                {"", "not a join token"},
		"another word":         {"joint_" + text[5:], "not a join token"},
		"upper case":           {strings.ToUpper(text), "not a join token"},
		"prefix alone":         {"join_", "cut short"},
		"private key":          {"clientsecret_" + text[5:60], "not a join token"},
		"cut short":            {text[:len(text)-1], "copy the whole token"},
		"cut in half":          {text[:len(text)/2], "copy the whole token"},
		"twice":                {text + text, "copy the whole token"},
		"other character":      {text[:40] + "1" + text[41:], "character other than"},
		"no-break space":       {text[:40] + "\u00a0" + text[40:], "character other than"},
		"body in upper case":   {"join_" + strings.ToUpper(text[5:]), "character other than"},
		"two swapped":          {text[:200] + swapped(text[200:202]) + text[202:], "checksum"},
		"too long":             {text + strings.Repeat("a", maxTokenText), "longer than"},
		"too much space":       {text + strings.Repeat(" ", maxTokenFile), "longer than"},
		"no map":               {tokenOfBytes([]byte{0x80}), "another version"},
		"nothing":              {tokenOfBytes([]byte{0xa0}), "wrong length"},
		"bytes after":          {tokenOfBytes(append(bytes.Clone(encoded), 0)), "another version"},
		"a field more":         {tokenOfBytes(append(append([]byte{0xa9}, encoded[1:]...), 0x09, 0x00)), "another version"},
		"a field twice":        {tokenOfBytes(append(append([]byte{0xa9}, encoded[1:]...), 0x08, 0x01)), "another version"},
		"a field by name":      {tokenOfBytes(append(append([]byte{0xa9}, encoded[1:]...), 0x61, 'x', 0x01)), "another version"},
		"indefinite length":    {tokenOfBytes(append(append([]byte{0xbf}, encoded[1:]...), 0xff)), "another version"},
		"id cut short":         {swap("\x03\x50"+ascending, "\x03\x4f"+ascending[1:]), "id of a wrong length"},
		"id as text":           {swap("\x03\x50"+ascending, "\x03\x70"+ascending), "another version"},
		"id as an array":       {swap("\x03\x50"+ascending, "\x03\x90"+ascending), "only spelling"},
		"length in two bytes":  {swap("\x03\x50"+ascending, "\x03\x58\x10"+ascending), "only spelling"},
		"pattern as bytes":     {swap("\x07\x69builder-*", "\x07\x49builder-*"), "another version"},
		"pattern not UTF-8":    {swap("\x07\x69builder-*", "\x07\x69builder\xff*"), "another version"},
		"expiry as text":       {swap("\x08\x1a", "\x08\x64"), "another version"},
		"expiry below zero":    {swap("\x08\x1a", "\x08\x3a"), "1970"},
		"expiry as a fraction": {swap("\x08\x1a", "\x08\xfa"), "another version"},
		"tagged":               {swap("\x08\x1a", "\x08\xc1\x1a"), "another version"},
		"relay in capitals":    {swap("relay.example.com", "Relay.example.com"), "only spelling"},
		"relay with a fragment": {
			swap("relay.example.com:4433", "relay.example.com:443#"), "relay URL",
		},
	} {
		token, err := ParseJoinToken(test.text)
		if err == nil || token != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want an error that says %q", name, token, err, test.want)
			continue
		}
		for i := 0; i+12 <= len(text); i += 12 {
			if strings.Contains(strings.ToLower(err.Error()), text[i:i+12]) {
				t.Errorf("%s: the error repeats the token: %v", name, err)
			}
		}
	}
	for name, input := range map[string]string{"nothing": "", "comments": "# x\n", "too much": text + strings.Repeat("\n", maxTokenFile)} {
		if _, err := ReadJoinToken(strings.NewReader(input)); err == nil {
			t.Errorf("ReadJoinToken of %s succeeded", name)
		}
	}
	if _, err := ReadJoinToken(endless{}); err == nil {
		t.Error("an endless token was read")
	}
}

func swapped(two string) string {
	if two[0] == two[1] {
		return two[:1] + "z"
	}
	return two[1:] + two[:1]
}

func TestTokenInPlaceOfANameOrKeyIsRecognised(t *testing.T) {
	t.Parallel()
	text := textOf(t, testToken(t))
	for _, misplaced := range []string{text, text[:45], strings.ToUpper(text), "x=" + text, "join_" + text} {
		if !isSecretText(misplaced) {
			t.Errorf("%.20q, %d characters, is taken for no secret", misplaced, len(misplaced))
		}
		if _, err := ParsePublicKey(misplaced); err == nil || !strings.Contains(err.Error(), "this is a join token") {
			t.Errorf("ParsePublicKey of a token: %v", err)
		}
	}
	for _, name := range []string{"join_", "join_us", "join_" + strings.Repeat("a", 39), "join_" + strings.Repeat("a", 39) + "-" + strings.Repeat("a", 18), "sojoin_9"} {
		if isSecretText(name) || checkName(name) != nil {
			t.Errorf("name %q is taken for a secret", name)
		}
	}
	if err := checkName(text[:60]); err == nil || !strings.Contains(err.Error(), "replace the key or the join token") {
		t.Errorf("checkName of a token: %v", err)
	}
}

func TestNamesMatchTheirPatterns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "a", true},
		{"*", "", false},
		{"*", "a b", false},
		{"*", "-a", false},
		{"*", strings.Repeat("a", 64), true},
		{"builder-*", "builder-1", true},
		{"builder-*", "builder-", false},
		{"builder-*", "xbuilder-1", false},
		{"*-ci", "a-ci", true},
		{"*-ci", "-ci", false},
		{"*-ci", "a-ci2", false},
		{"a*a", "aa", false},
		{"a*a", "aba", true},
		{"aba*ba", "aba", false},
		{"one", "one", true},
		{"one", "One", false},
		{"one", "one2", false},
		{"b*", "b*", false},
		{"", "", false},
		{"", "a", false},
		{"a**", "abc", false},
		{"-*", "-a", false},
		{"a?", "ab", false},
	} {
		if got := MatchName(test.pattern, test.name); got != test.want {
			t.Errorf("MatchName(%q, %q) = %v, want %v", test.pattern, test.name, got, test.want)
		}
	}
	for pattern, good := range map[string]bool{
		"*": true, "a": true, "*.x": true, strings.Repeat("a", 63) + "*": true, strings.Repeat("a", 64) + "*": false,
		"": false, ".*": false, "a*b*": false, "a/*": false, "*\n": false,
	} {
		if err := CheckPattern(pattern); (err == nil) != good {
			t.Errorf("CheckPattern(%q) = %v, want good: %v", pattern, err, good)
		}
	}
}

// spellings are the ways in which output could show a secret of 32 bytes.
func spellings(secret [32]byte) map[string]string {
	return map[string]string{
		"base32":  alphabet.EncodeToString(secret[:])[:20],
		"base64":  base64.StdEncoding.EncodeToString(secret[:])[:12],
		"bytes":   string(secret[:8]),
		"hex":     hex.EncodeToString(secret[:8]),
		"HEX":     strings.ToUpper(hex.EncodeToString(secret[:8])),
		"decimal": strings.Trim(fmt.Sprint(secret[:6]), "[]"),
		"list":    strings.ReplaceAll(strings.Trim(fmt.Sprint(secret[:6]), "[]"), " ", ","),
		"go":      strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", secret[:6]), "[]byte{"), "}"),
		"octal":   strings.Trim(fmt.Sprintf("%o", secret[:6]), "[]"),
		"binary":  strings.Trim(fmt.Sprintf("%b", secret[:6]), "[]"),
		"quoted":  strings.Trim(fmt.Sprintf("%q", secret[:6]), "[]"),
	}
}

// checkRedacted prints a value in every way and looks for the secrets.
func checkRedacted[T any](t *testing.T, value T, secrets ...[32]byte) {
	t.Helper()
	type holder struct {
		Pointer *T
		Value   T
		List    []T
		Map     map[string]*T
	}
	all := holder{&value, value, []T{value}, map[string]*T{"x": &value}}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t"} {
		for _, printed := range []any{value, &value, all, &all} {
			fmt.Fprintf(&out, verb+"\n", printed)
		}
	}
	fmt.Fprintln(&out, value, &value, all)
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("value", "pointer", &value, "value", value, "holder", all)
	}
	encoded, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(encoded)
	fmt.Fprintln(&out, fmt.Errorf("wrapped: %v", value))
	for _, secret := range secrets {
		for what, spelling := range spellings(secret) {
			if strings.Contains(out.String(), spelling) {
				t.Errorf("output holds the secret as %s", what)
			}
		}
	}
	if !strings.Contains(out.String(), "redacted") {
		t.Error("output does not say that something is redacted")
	}
}

func TestJoinTokenNeverPrints(t *testing.T) {
	t.Parallel()
	token := testToken(t)
	checkRedacted(t, *token, token.Secret, token.Pairing)
}

func TestTokenIDHasOneSpelling(t *testing.T) {
	t.Parallel()
	id, err := ParseTokenID(tokenText)
	if err != nil || id.String() != tokenText {
		t.Fatalf("ParseTokenID(%q) = %v, %v", tokenText, id, err)
	}
	for _, text := range []string{"", tokenText[1:], tokenText + "0", strings.ToUpper(tokenText), " " + tokenText[1:], strings.Repeat("0", 32), "0x" + tokenText[2:]} {
		if got, err := ParseTokenID(text); err == nil || got != (TokenID{}) {
			t.Errorf("ParseTokenID(%q) = %v, %v, want an error", text, got, err)
		}
	}
	encoded, err := json.Marshal(id)
	var decoded TokenID
	if err != nil || json.Unmarshal(encoded, &decoded) != nil || decoded != id {
		t.Errorf("id through JSON = %v, %v", decoded, err)
	}
	if _, err := (TokenID{}).MarshalText(); err == nil {
		t.Error("the zero id was stored")
	}
	if decoded.UnmarshalText([]byte("x")) == nil || decoded != id {
		t.Error("a bad id was accepted, or changed the one before")
	}
}

func TestAnnouncementMACCoversEveryField(t *testing.T) {
	t.Parallel()
	token, executor := testToken(t), fixedKey(t, Executor, 1)
	macs := map[[32]byte]string{}
	for name, mac := range map[string][32]byte{
		"itself":       AnnouncementMAC(token.Pairing, token.ID, executor, "builder-1"),
		"other secret": AnnouncementMAC(token.Secret, token.ID, executor, "builder-1"),
		"other id":     AnnouncementMAC(token.Pairing, TokenID{1}, executor, "builder-1"),
		"other key":    AnnouncementMAC(token.Pairing, token.ID, fixedKey(t, Executor, 2), "builder-1"),
		"other kind":   AnnouncementMAC(token.Pairing, token.ID, fixedKey(t, Client, 1), "builder-1"),
		"other name":   AnnouncementMAC(token.Pairing, token.ID, executor, "builder-2"),
		"no name":      AnnouncementMAC(token.Pairing, token.ID, executor, ""),
	} {
		if other, taken := macs[mac]; taken {
			t.Errorf("%s has the MAC of %s", name, other)
		}
		macs[mac] = name
	}
}

// FuzzParseJoinToken: a text that parses is, without white space, the only spelling of its token.
func FuzzParseJoinToken(f *testing.F) {
	text := textOf(f, testToken(f))
	for _, seed := range []string{"", "join_", text, text[:100] + "\n" + text[100:], "# x\n" + text, text[:len(text)-1]} {
		f.Add(seed, false)
	}
	encoded := string(independentToken(f, testToken(f)))
	for _, seed := range []string{encoded, encoded + "\x00", "\xa0", "\xa1\x01\x60", strings.Replace(encoded, "\x03\x50", "\x03\x58\x10", 1)} {
		f.Add(seed, true) // the fuzzer cannot find a checksum
	}
	f.Fuzz(func(t *testing.T, text string, sum bool) {
		if sum {
			text = tokenOfBytes([]byte(text))
		}
		token, err := ParseJoinToken(text)
		if err != nil {
			return
		}
		again, err := token.Text()
		if plain := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(text); err != nil || again != plain {
			t.Errorf("ParseJoinToken(%q) gives %q, %v", text, again, err)
		}
		if err := token.check(); err != nil {
			t.Errorf("a token was parsed that could not be made: %v", err)
		}
	})
}
