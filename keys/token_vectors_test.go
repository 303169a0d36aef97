package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// tokenVector is testdata/vectors/join-v1.json: it fixes a token, its hash and a MAC for every implementation.
type tokenVector struct {
	Comment  string `json:"comment"`
	Relay    string `json:"relay"`
	ID       string `json:"id"`
	Secret   string `json:"secret"`
	Pairing  string `json:"pairing"`
	Clients  []any  `json:"clients"` // key and name in turn
	Pattern  string `json:"pattern"`
	Expires  int64  `json:"expires"`
	CBOR     string `json:"cbor"`
	Text     string `json:"text"`
	Hash     string `json:"hash"`
	Executor string `json:"executor"`
	Name     string `json:"name"`
	MAC      string `json:"mac"`
}

// independentToken encodes a token without this package's code and without a CBOR library.
func independentToken(t testing.TB, token *JoinToken) []byte {
	t.Helper()
	var out []byte
	head := func(major byte, n int) {
		switch {
		case n < 24:
			out = append(out, major<<5|byte(n))
		case n < 256:
			out = append(out, major<<5|24, byte(n))
		case n < 1<<16:
			out = append(out, major<<5|25, byte(n>>8), byte(n))
		default:
			out = binary.BigEndian.AppendUint32(append(out, major<<5|26), uint32(n))
		}
	}
	text := func(s string) { head(3, len(s)); out = append(out, s...) }
	data := func(b []byte) { head(2, len(b)); out = append(out, b...) }
	key := func(k PublicKey) { raw := k.Raw(); data(raw[:]) }
	head(5, 8)
	head(0, 1)
	text(token.Relay.Address())
	head(0, 2)
	key(token.Relay.Key)
	head(0, 3)
	data(token.ID[:])
	head(0, 4)
	data(token.Secret[:])
	head(0, 5)
	data(token.Pairing[:])
	head(0, 6)
	head(4, len(token.Clients))
	for _, client := range token.Clients {
		head(4, 2)
		key(client.Key)
		text(client.Name)
	}
	head(0, 7)
	text(token.Pattern)
	head(0, 8)
	head(0, int(token.Expires.Unix()))
	return out
}

// independentMAC is HMAC by its definition, without a library.
func independentMAC(key, message []byte) []byte {
	inner, outer := bytes.Repeat([]byte{0x36}, 64), bytes.Repeat([]byte{0x5c}, 64)
	for i, b := range key {
		inner[i] ^= b
		outer[i] ^= b
	}
	first := sha256.Sum256(append(inner, message...))
	second := sha256.Sum256(append(outer, first[:]...))
	return second[:]
}

// computeTokenVector makes the content of the file.
func computeTokenVector(t testing.TB) tokenVector {
	t.Helper()
	token := testToken(t)
	encoded := independentToken(t, token)
	hash := sha256.Sum256(append(append([]byte("postern join secret v1"), token.ID[:]...), token.Secret[:]...))
	raw := fixedKey(t, Executor, 3).Raw()
	executor, name := independentText("exec", raw[:]), "builder-1"
	message := []byte("\x00\x00\x00\x17postern announcement v1\x00\x00\x00\x10")
	message = append(message, token.ID[:]...)
	message = append(append(message, 0, 0, 0, byte(len(executor))), executor...)
	message = append(append(message, 0, 0, 0, byte(len(name))), name...)
	vector := tokenVector{
		Comment:  "postern join token, version 1: join_, lower-case base32 of the CBOR and the first four bytes of SHA-256(postern join token v1 | CBOR)",
		Relay:    token.Relay.String(),
		ID:       hex.EncodeToString(token.ID[:]),
		Secret:   hex.EncodeToString(token.Secret[:]),
		Pairing:  hex.EncodeToString(token.Pairing[:]),
		Pattern:  token.Pattern,
		Expires:  token.Expires.Unix(),
		CBOR:     hex.EncodeToString(encoded),
		Text:     tokenOfBytes(encoded),
		Hash:     hex.EncodeToString(hash[:]),
		Executor: executor,
		Name:     name,
		MAC:      hex.EncodeToString(independentMAC(token.Pairing[:], message)),
	}
	for _, client := range token.Clients {
		vector.Clients = append(vector.Clients, client.Key.String(), client.Name)
	}
	return vector
}

func TestTokenVectorHolds(t *testing.T) {
	t.Parallel()
	const path = "testdata/vectors/join-v1.json"
	var computed bytes.Buffer
	encoder := json.NewEncoder(&computed)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(computeTokenVector(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, computed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, computed.Bytes()) {
		t.Errorf("%s differs from the independent computation; the token format must not change", path)
	}
	var vector tokenVector
	if err := json.Unmarshal(content, &vector); err != nil {
		t.Fatal(err)
	}
	token, err := ParseJoinToken(vector.Text)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := ParsePublicKey(vector.Executor)
	if err != nil {
		t.Fatal(err)
	}
	hash, mac := token.Hash(), AnnouncementMAC(token.Pairing, token.ID, executor, vector.Name)
	for what, pair := range map[string][2]string{
		"text":    {textOf(t, token), vector.Text},
		"relay":   {token.Relay.String(), vector.Relay},
		"id":      {token.ID.String(), vector.ID},
		"secret":  {hex.EncodeToString(token.Secret[:]), vector.Secret},
		"pairing": {hex.EncodeToString(token.Pairing[:]), vector.Pairing},
		"client":  {token.Clients[0].Key.String(), vector.Clients[0].(string)},
		"name":    {token.Clients[0].Name, vector.Clients[1].(string)},
		"pattern": {token.Pattern, vector.Pattern},
		"hash":    {hex.EncodeToString(hash[:]), vector.Hash},
		"MAC":     {hex.EncodeToString(mac[:]), vector.MAC},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %s, want %s", what, pair[0], pair[1])
		}
	}
	if token.Expires.Unix() != vector.Expires {
		t.Errorf("expires %d, want %d", token.Expires.Unix(), vector.Expires)
	}
}
