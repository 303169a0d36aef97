package noiseconn

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/flynn/noise"
)

// libraryVectors is the file that comes with the Noise library: its published test vectors.
func libraryVectors(t *testing.T) string {
	t.Helper()
	var tried []string
	try := func(dir string) bool {
		path := filepath.Join(dir, "vectors.txt")
		tried = append(tried, path)
		_, err := os.Stat(path)
		return err == nil
	}
	// Where the library was compiled, unless paths were trimmed.
	source, _ := runtime.FuncForPC(reflect.ValueOf(noise.NewCipherSuite).Pointer()).FileLine(0)
	if dir := filepath.Dir(source); try(dir) {
		return filepath.Join(dir, "vectors.txt")
	}
	if out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/flynn/noise").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); try(dir) {
			return filepath.Join(dir, "vectors.txt")
		}
	}
	t.Skipf("needs vectors.txt of module github.com/flynn/noise, found at none of %q (is the go tool or the module cache missing?)", tried)
	return ""
}

// noiseVector is one entry of the file: values by name, and the messages in order.
type noiseVector struct {
	values   map[string][]byte
	payloads [][]byte
	messages [][]byte
}

func readLibraryVectors(t *testing.T, suite string) []*noiseVector {
	t.Helper()
	f, err := os.Open(libraryVectors(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []*noiseVector
	var v *noiseVector
	for scan := bufio.NewScanner(f); scan.Scan(); {
		name, value, ok := strings.Cut(scan.Text(), "=")
		if !ok || name == "" {
			continue
		}
		if name == "handshake" {
			if v = nil; value == suite {
				v = &noiseVector{values: map[string][]byte{}}
				all = append(all, v)
			}
			continue
		}
		if v == nil {
			continue
		}
		b, err := hex.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(name, "_payload"):
			v.payloads = append(v.payloads, b)
		case strings.HasSuffix(name, "_ciphertext"):
			v.messages = append(v.messages, b)
		default:
			v.values[name] = b
		}
	}
	return all
}

func TestPublishedVectorsPassThroughOurKeyAgreementAndPattern(t *testing.T) {
	for _, suite := range []string{"Noise_XK_25519_AESGCM_SHA256", Suite} {
		t.Run(suite, func(t *testing.T) {
			vectors := readLibraryVectors(t, suite)
			if len(vectors) < 2 {
				t.Fatalf("the file has %d vectors of this suite, want some", len(vectors))
			}
			for _, v := range vectors {
				checkLibraryVector(t, v, suite == Suite)
			}
		})
	}
}

func checkLibraryVector(t *testing.T, v *noiseVector, withPSK bool) {
	t.Helper()
	side := func(initiator bool, static, ephemeral string) *noise.HandshakeState {
		dh := &keptDH{}
		c := noise.Config{
			CipherSuite: noise.NewCipherSuite(dh, noise.CipherAESGCM, noise.HashSHA256), Pattern: pattern(), Initiator: initiator,
			Prologue: v.values["prologue"], Random: bytes.NewReader(v.values[ephemeral]), StaticKeypair: dh.add(x25519(t, v.values[static])),
		}
		if initiator {
			c.PeerStatic = x25519(t, v.values["resp_static"]).PublicKey().Bytes()
		}
		if withPSK {
			// As the product does it: a placeholder at first, the secret later.
			c.PresharedKey, c.PresharedKeyPlacement = fixed("placeholder", 32), 3
		}
		s, err := noise.NewHandshakeState(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	i := side(true, "init_static", "gen_init_ephemeral")
	r := side(false, "resp_static", "gen_resp_ephemeral")
	// The library gives the initiator's direction first, to both sides.
	var sealed, opened [2]*noise.CipherState
	for n, want := range v.messages {
		var got, back []byte
		var err error
		if n < 3 {
			from, to := i, r
			if n == 1 {
				from, to = r, i
			}
			if withPSK && n == 2 {
				for _, s := range []*noise.HandshakeState{i, r} {
					if err := s.SetPresharedKey(v.values["preshared_key"]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got, sealed[0], sealed[1], err = from.WriteMessage(nil, v.payloads[n]); err == nil {
				back, opened[0], opened[1], err = to.ReadMessage(nil, got)
			}
		} else if got, err = sealed[(n-3)%2].Encrypt(nil, nil, v.payloads[n]); err == nil {
			back, err = opened[(n-3)%2].Decrypt(nil, nil, got)
		}
		if err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
		wantBytes(t, "message", got, want)
		wantBytes(t, "payload", back, v.payloads[n])
	}
}
