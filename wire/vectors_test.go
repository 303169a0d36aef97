package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the vectors anew, from the reference encoder")

type messageVectors struct {
	Valid   []messageVector `json:"valid"`
	Invalid []messageVector `json:"invalid"`
}

type messageVector struct {
	Name       string `json:"name"`
	Type       Type   `json:"type,omitempty"`
	Diagnostic string `json:"diagnostic,omitempty"`
	Tail       string `json:"tail,omitempty"` // raw bytes after the map
	Bytes      string `json:"bytes"`
}

func (s sample) encoded() []byte { return append([]byte(refEncode(s.value)), s.tail...) }

// loadVectors checks that the committed file is what the reference encoder makes of the
// samples, and returns what the file says.
func loadVectors(t testing.TB) messageVectors {
	t.Helper()
	var computed messageVectors
	for _, s := range samples() {
		computed.Valid = append(computed.Valid, messageVector{s.name, s.message.Type(), refDiagnostic(s.value), hex.EncodeToString(s.tail), hex.EncodeToString(s.encoded())})
	}
	for _, c := range invalidMessages() {
		computed.Invalid = append(computed.Invalid, messageVector{Name: c.name, Bytes: hex.EncodeToString(c.bytes)})
	}
	want, err := json.MarshalIndent(computed, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	path := filepath.Join("testdata", "messages-v1.json")
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(have)); d != "" {
		t.Fatalf("%s is not what the reference encodes (-reference +file):\n%s", path, d)
	}
	var out messageVectors
	if err := json.Unmarshal(have, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sameMessage takes nil and empty lists for the same.
var sameMessage = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Exporter(func(reflect.Type) bool { return true }),
}

func TestMessagesEqualTheVectors(t *testing.T) {
	all := samples()
	for i, v := range loadVectors(t).Valid {
		s := all[i]
		want := unhex(t, v.Bytes)
		got, err := Encode(s.message)
		if err != nil {
			t.Errorf("%s: Encode: %v", v.Name, err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: Encode = %x, want %x", v.Name, got, want)
		}
		m, err := Decode(want)
		if err != nil {
			t.Errorf("%s: Decode: %v", v.Name, err)
			continue
		}
		if d := cmp.Diff(s.message, m, sameMessage); d != "" {
			t.Errorf("%s: Decode (-want +got):\n%s", v.Name, d)
		}
		if typ, err := TypeOf(want); err != nil || typ != v.Type {
			t.Errorf("%s: TypeOf = %d, %v, want %d", v.Name, typ, err, v.Type)
		}
		// Append leaves what is there.
		if got, err := Append([]byte("before"), s.message); err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s: Append = %x, %v", v.Name, got, err)
		}
	}
}

func TestEveryMessageTypeHasVectors(t *testing.T) {
	seen := map[Type]bool{}
	for _, s := range samples() {
		seen[s.message.Type()] = true
	}
	for n := range 256 {
		if m := newMessage(Type(n)); m != nil && !seen[Type(n)] {
			t.Errorf("no vector of %T", m)
		} else if m != nil && m.Type() != Type(n) {
			t.Errorf("type %d makes a %T of type %d", n, m, m.Type())
		}
	}
}

func TestCutMessagesAreRefused(t *testing.T) {
	for _, s := range samples() {
		whole := []byte(refEncode(s.value))
		for i := range whole {
			if m, err := Decode(whole[:i]); err == nil {
				t.Errorf("%s cut at %d decodes as %+v", s.name, i, m)
			}
		}
	}
}

func TestTrailingBytesAreRefused(t *testing.T) {
	for _, s := range samples() {
		switch s.message.(type) {
		case *Input, *Output:
			continue // what follows their map is data
		}
		for _, tail := range []string{"\x00", "\xf6", refEncode(s.value)} {
			if m, err := Decode(append(s.encoded(), tail...)); err == nil {
				t.Errorf("%s with %x behind it decodes as %+v", s.name, tail, m)
			}
		}
	}
}

func TestUnknownKeysAreIgnored(t *testing.T) {
	for _, s := range samples() {
		larger := refMap{99: refMap{1: refArray{true, "x", []byte{1}, -5}}}
		maps.Copy(larger, s.value)
		m, err := Decode(append([]byte(refEncode(larger)), s.tail...))
		if err != nil {
			t.Errorf("%s with an unknown key: %v", s.name, err)
			continue
		}
		if d := cmp.Diff(s.message, m, sameMessage); d != "" {
			t.Errorf("%s with an unknown key (-want +got):\n%s", s.name, d)
		}
	}
}

func TestInvalidMessagesAreRefused(t *testing.T) {
	all := invalidMessages()
	for i, v := range loadVectors(t).Invalid {
		m, err := Decode(unhex(t, v.Bytes))
		if err == nil {
			t.Errorf("%s: decodes as %+v", v.Name, m)
			continue
		}
		if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported != all[i].unsupported {
			t.Errorf("%s: error %q, want *UnsupportedError: %t", v.Name, err, all[i].unsupported)
		}
		if !strings.Contains(err.Error(), all[i].says) {
			t.Errorf("%s: error %q, want it to say %q", v.Name, err, all[i].says)
		}
	}
}
