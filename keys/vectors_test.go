package keys

import (
	"bytes"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/big"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/keys-v1.json anew from the computation in this file")

// vectorFile is testdata/keys-v1.json: it fixes the text forms for every implementation.
type vectorFile struct {
	Comment string      `json:"comment"`
	Public  []vector    `json:"public"`
	Secret  []vector    `json:"secret"`
	Refused []badVector `json:"refused"`
}

type vector struct {
	Kind string `json:"kind"`
	Raw  string `json:"raw"` // hex: the public key, or the private one
	Text string `json:"text"`
}

type badVector struct {
	Text string `json:"text"`
	Why  string `json:"why"`
}

// independentText writes prefix_body without this package's code and without a base32 library: the bytes are one big number,
// padded with zero bits to a multiple of five, and its digits to base 32 are read off.
func independentText(prefix string, raw []byte) string {
	digest := sha256.New()
	digest.Write([]byte("postern key v1"))
	digest.Write([]byte(prefix))
	digest.Write(raw)
	all := append(bytes.Clone(raw), digest.Sum(nil)[:2]...)
	return prefix + "_" + independentBase32(all)
}

func independentBase32(data []byte) string {
	number := new(big.Int).SetBytes(data)
	digits := (len(data)*8 + 4) / 5
	number.Lsh(number, uint(digits*5-len(data)*8))
	out := make([]byte, digits)
	for i := digits - 1; i >= 0; i-- {
		digit := new(big.Int)
		number.DivMod(number, big.NewInt(32), digit)
		out[i] = "abcdefghijklmnopqrstuvwxyz234567"[digit.Int64()]
	}
	return string(out)
}

// computeVectors makes the content of the file.
func computeVectors() vectorFile {
	file := vectorFile{Comment: "postern key text, version 1: prefix, _, lower-case base32 of key and the first two bytes of SHA-256(postern key v1 | prefix | key)"}
	pattern := func(start, step byte) []byte {
		raw := make([]byte, 32)
		for i := range raw {
			raw[i] = start + step*byte(i)
		}
		return raw
	}
	raws := [][]byte{pattern(1, 0), pattern(0, 1), pattern(255, 0), pattern(9, 37), append(make([]byte, 31), 1)}
	for _, kind := range []string{"relay", "exec", "client"} {
		for _, raw := range raws {
			file.Public = append(file.Public, vector{kind, hex.EncodeToString(raw), independentText(kind, raw)})
			file.Secret = append(file.Secret, vector{kind, hex.EncodeToString(raw), independentText(kind+"secret", raw)})
		}
	}
	refuse := func(text, why string) { file.Refused = append(file.Refused, badVector{text, why}) }
	raw := pattern(0, 1)
	good := independentText("client", raw)
	body := strings.TrimPrefix(good, "client_")
	refuse("", "empty")
	refuse("client", "no underscore")
	refuse("client_", "no key")
	refuse(body, "no prefix")
	refuse("exec_"+body, "another kind's checksum")
	refuse("clientsecret_"+body, "a public key with a secret's prefix")
	refuse(independentText("org", raw), "unknown kind, right checksum")
	refuse(independentText("Client", raw), "prefix in upper case, right checksum")
	refuse(independentText("secret", raw), "no kind before secret, right checksum")
	refuse("client_"+strings.ToUpper(body), "body in upper case")
	refuse(independentText("client", make([]byte, 32)), "the all-zero key, right checksum")
	refuse(independentText("client", raw[:31]), "31 bytes, right checksum")
	refuse(independentText("client", append(bytes.Clone(raw), 7)), "33 bytes, right checksum")
	sum := sha256.Sum256(append([]byte("postern key v1client"), raw...))
	refuse("client_"+independentBase32(append(bytes.Clone(raw), sum[0], sum[1]^1)), "wrong checksum")
	sum = sha256.Sum256(append([]byte("postern key v2client"), raw...))
	refuse("client_"+independentBase32(append(bytes.Clone(raw), sum[0], sum[1])), "checksum of another version")
	last := strings.IndexByte("abcdefghijklmnopqrstuvwxyz234567", body[54])
	refuse("client_"+body[:54]+string("abcdefghijklmnopqrstuvwxyz234567"[last|1]), "not canonical: unused bits set")
	refuse(good+"=", "padding")
	refuse(good+"\n", "line end after the key")
	refuse(" "+good, "space before the key")
	refuse(good[:20]+"\n"+good[20:], "line end inside the key")
	refuse(good[:20]+"\n"+good[21:], "line end in place of a character")
	refuse(good[:20]+"1"+good[21:], "a digit outside the alphabet")
	refuse(good[:20]+"0"+good[21:], "zero for the letter o")
	refuse(good[:len(good)-1], "one character short")
	refuse(good[:15]+"...", "short form for logs")
	return file
}

func TestKeyVectorsHold(t *testing.T) {
	t.Parallel()
	const path = "testdata/keys-v1.json"
	var computed bytes.Buffer
	encoder := json.NewEncoder(&computed)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(computeVectors()); err != nil {
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
		t.Errorf("%s differs from the independent computation; the key format must not change", path)
	}
	var file vectorFile
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Public) < 15 || len(file.Secret) < 15 || len(file.Refused) < 20 {
		t.Fatalf("%s has %d, %d and %d vectors, want at least 15, 15 and 20", path, len(file.Public), len(file.Secret), len(file.Refused))
	}
	for _, v := range file.Public {
		checkPublicVector(t, v)
	}
	for _, v := range file.Secret {
		checkSecretVector(t, v)
	}
	for _, v := range file.Refused {
		if key, err := ParsePublicKey(v.Text); err == nil {
			t.Errorf("ParsePublicKey(%q) = %v, want an error: %s", v.Text, key, v.Why)
		}
		if _, err := ParsePrivateKey(v.Text); err == nil {
			t.Errorf("ParsePrivateKey(%q) succeeded, want an error: %s", v.Text, v.Why)
		}
	}
}

func checkPublicVector(t *testing.T, v vector) {
	t.Helper()
	raw, err := hex.DecodeString(v.Raw)
	if err != nil {
		t.Fatal(err)
	}
	key, err := NewPublicKey(Kind(v.Kind), [32]byte(raw))
	if err != nil || key.String() != v.Text {
		t.Errorf("text of %s %s = %v, %v, want %s", v.Kind, v.Raw, key, err, v.Text)
	}
	parsed, err := ParsePublicKey(v.Text)
	if err != nil || parsed != key {
		t.Errorf("ParsePublicKey(%q) = %v, %v, want %v", v.Text, parsed, err, key)
	}
	if _, err := ParsePrivateKey(v.Text); err == nil {
		t.Errorf("ParsePrivateKey accepted the public key %q", v.Text)
	}
}

func checkSecretVector(t *testing.T, v vector) {
	t.Helper()
	raw, err := hex.DecodeString(v.Raw)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParsePrivateKey(v.Text)
	if err != nil {
		t.Fatalf("ParsePrivateKey of the %s vector %s: %v", v.Kind, v.Raw, err)
	}
	if !key.ECDH().Equal(want) || key.Kind() != Kind(v.Kind) || key.Secret() != v.Text {
		t.Errorf("vector %s %s does not round trip", v.Kind, v.Raw)
	}
	if _, err := ParsePublicKey(v.Text); err == nil {
		t.Errorf("ParsePublicKey accepted the secret of vector %s %s", v.Kind, v.Raw)
	}
}
