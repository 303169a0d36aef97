package wire

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// invalid is a message that has to be refused, and a word that the error must have.
type invalid struct {
	name        string
	bytes       []byte
	says        string
	unsupported bool
}

// sampleValue is the reference's value of a named sample, changed: a nil deletes a key.
func sampleValue(name string, changes refMap) []byte {
	for _, s := range samples() {
		if s.name != name {
			continue
		}
		v := maps.Clone(s.value)
		for k, e := range changes {
			if v[k] = e; e == nil {
				delete(v, k)
			}
		}
		return append([]byte(refEncode(v)), s.tail...)
	}
	panic("no sample " + name)
}

func invalidMessages() []invalid {
	var out []invalid
	add := func(name, says string, b []byte) { out = append(out, invalid{name: name, bytes: b, says: says}) }
	change := func(sample, what, says string, changes refMap) {
		add(sample+": "+what, says, sampleValue(sample, changes))
	}
	raw := func(name, says, b string) { add(name, says, []byte(b)) }

	raw("nothing", "not a CBOR map", "")
	raw("array", "not a CBOR map", "\x81\x01")
	raw("map of unknown length", "not a CBOR map", "\xbf\x01\x18\x30\x02\x00\xff")
	raw("map with a length of two bytes", "not a CBOR map", "\xb9\x00\x02\x01\x18\x30\x02\x00")
	raw("empty map", "begin with its type", "\xa0")
	raw("another key first", "begin with its type", "\xa2\x02\x05\x01\x18\x30")
	raw("text key first", "begin with its type", "\xa1\x61\x31\x01")
	raw("key 1 not in its shortest form", "begin with its type", "\xa2\x18\x01\x18\x30\x02\x00")
	raw("type 0", "shortest form", "\xa1\x01\x00")
	raw("type not in its shortest form", "shortest form", "\xa2\x01\x18\x11\x02\x00")
	raw("type in two bytes", "shortest form", "\xa2\x01\x19\x00\x30\x02\x00")
	raw("type above 255", "shortest form", "\xa2\x01\x19\x01\x00\x02\x00")
	raw("type negative", "shortest form", "\xa2\x01\x20\x02\x00")
	raw("type as text", "shortest form", "\xa2\x01\x61\x30\x02\x00")
	raw("type missing at the end", "begin with its type", "\xa1\x01")
	for _, t := range []Type{TypeFiles, TypeForward, TypeForwardListen, 7, 255} {
		out = append(out, invalid{fmt.Sprintf("unknown type %d", t), []byte(refEncode(refMap{1: int(t)})), "not supported", true})
	}
	raw("duplicate type", "duplicate", "\xa3\x01\x18\x30\x02\x00\x01\x18\x30")
	raw("duplicate key", "duplicate", "\xa3\x01\x18\x30\x02\x00\x02\x00")
	raw("duplicate key, one not in its shortest form", "duplicate", "\xa3\x01\x18\x30\x02\x00\x18\x02\x00")
	raw("duplicate unknown key", "duplicate", "\xa4\x01\x18\x30\x02\x00\x18\x63\x00\x18\x63\x00")
	raw("null", "", "\xa2\x01\x18\x30\x02\xf6")
	raw("undefined", "", "\xa2\x01\x18\x30\x02\xf7")
	raw("null under an unknown key", "", "\xa3\x01\x18\x30\x02\x00\x18\x63\xf6")
	raw("tag", "", "\xa2\x01\x18\x30\x02\xc2\x41\x05")
	raw("float", "", "\xa2\x01\x18\x30\x02\xf9\x3c\x00")
	raw("negative number", "", "\xa2\x01\x18\x30\x02\x20")
	raw("bytes of unknown length", "", "\xa3\x01\x18\x30\x02\x00\x18\x63\x5f\x41\x61\xff")
	raw("array of unknown length", "", "\xa3\x01\x18\x30\x02\x00\x18\x63\x9f\x01\xff")
	raw("invalid UTF-8", "UTF-8", "\xa3\x01\x18\x31\x02\x01\x03\x61\xff")
	raw("fewer pairs than announced", "", "\xa3\x01\x18\x30\x02\x00")
	raw("more pairs than announced", "", "\xa1\x01\x18\x30\x02\x00")
	raw("trailing byte", "extraneous", "\xa2\x01\x18\x30\x02\x00\x00")
	raw("nesting of nine", "nested", "\xa3\x01\x18\x30\x02\x00\x18\x63"+strings.Repeat("\x81", 8)+"\x80")
	many := refMap{1: int(TypePing), 2: 0}
	for k := range uint64(63) {
		many[100+k] = 0
	}
	add("65 pairs", "", []byte(refEncode(many)))
	add("array of 4097", "", []byte(refEncode(refMap{1: int(TypePing), 2: 0, 99: make4097()})))
	raw("array of 2^32", "", "\xa3\x01\x18\x30\x02\x00\x18\x63\x9b\x00\x00\x00\x01\x00\x00\x00\x00")

	identifiers(change)
	fields(change)
	return out
}

func make4097() refArray {
	a := make(refArray, 4097)
	for i := range a {
		a[i] = 0
	}
	return a
}

// identifiers of another length or none at all.
func identifiers(change func(sample, what, says string, changes refMap)) {
	for _, c := range []struct {
		sample string
		key    uint64
		size   int
	}{
		{"start full", 3, 16},
		{"start full", 4, 16},
		{"start full", 6, 16},
		{"attach full", 3, 16},
		{"attach full", 4, 16},
		{"attach full", 8, 16},
		{"started full", 2, 16},
		{"started full", 3, 16},
		{"hello full", 3, 32},
		{"hello full", 4, 16},
		{"welcome full", 3, 16},
		{"welcome full", 4, 32},
		{"hop hello full", 6, 16},
		{"dial", 2, 32},
		{"incoming", 3, 32},
	} {
		change(c.sample, fmt.Sprintf("key %d one byte short", c.key), "byte string of", refMap{c.key: seq(1, c.size-1)})
		change(c.sample, fmt.Sprintf("key %d one byte long", c.key), "byte string of", refMap{c.key: seq(1, c.size+1)})
	}
	zero16, zero32 := make([]byte, 16), make([]byte, 32)
	for _, c := range []struct {
		sample string
		key    uint64
		zero   []byte
		says   string
	}{
		{"start full", 3, zero16, "exec id"},
		{"start full", 4, zero16, "instance"},
		{"attach full", 3, zero16, "exec id"},
		{"attach full", 4, zero16, "instance"},
		{"started full", 2, zero16, "exec id"},
		{"started full", 3, zero16, "log epoch"},
		{"hello full", 3, zero32, "random"},
		{"welcome full", 3, zero16, "session"},
		{"welcome full", 4, zero32, "random"},
		{"hop hello full", 6, zero16, "instance"},
		{"dial", 2, zero32, "executor"},
	} {
		change(c.sample, fmt.Sprintf("key %d is zero", c.key), c.says, refMap{c.key: c.zero})
		change(c.sample, fmt.Sprintf("key %d is missing", c.key), c.says, refMap{c.key: nil})
	}
}

// fields that are missing, unknown or out of range.
func fields(change func(sample, what, says string, changes refMap)) {
	long := strings.Repeat("x", 256)
	text := strings.Repeat("x", MaxText+1)
	word := func(w string) refArray { return refArray{[]byte(w)} }
	for _, c := range []struct {
		sample, what, says string
		changes            refMap
	}{
		{"start full", "attempt 0", "attempt", refMap{5: 0}},
		{"start full", "no argv", "command", refMap{7: nil}},
		{"start full", "empty argv", "command", refMap{7: refArray{}}},
		{"start full", "empty command", "command", refMap{7: refArray{[]byte{}, []byte("x")}}},
		{"start full", "argv of text", "", refMap{7: refArray{"ls"}}},
		{"start full", "NUL in argv", "NUL", refMap{7: word("a\x00b")}},
		{"start full", "NUL in arg0", "NUL", refMap{8: []byte("\x00")}},
		{"start full", "NUL in cwd", "NUL", refMap{9: []byte("/\x00")}},
		{"start full", "NUL in env", "NUL", refMap{10: word("A=\x00")}},
		{"start full", "env without =", "without a name", refMap{10: word("A")}},
		{"start full", "env without a name", "without a name", refMap{10: word("=A")}},
		{"start full", "no inherit", "inherit", refMap{11: nil}},
		{"start full", "unknown inherit", "inherit", refMap{11: 4}},
		{"start full", "exclude of bytes", "", refMap{12: word("A")}},
		{"start full", "umask above 0777", "umask", refMap{13: 512}},
		{"start full", "umask above 32 bits", "", refMap{13: 1 << 32}},
		{"start full", "stdin as a number", "", refMap{14: 1}},
		{"start full", "terminal of three numbers", "", refMap{15: refArray{1, 2, 3}}},
		{"start full", "terminal above 16 bits", "", refMap{15: refArray{1, 65536}}},
		{"start full", "no sandbox mode", "sandbox", refMap{17: nil}},
		{"start full", "unknown sandbox mode", "sandbox", refMap{17: 4}},
		{"attach full", "attempt 0", "attempt", refMap{5: 0}},
		{"attach full", "control as a number", "", refMap{7: 1}},
		{"control list", "no verb", "verb", refMap{3: nil}},
		{"control signal", "no exec", "exec id", refMap{4: nil}},
		{"control signal", "exec id of zeros", "exec id", refMap{4: make([]byte, 16)}},
		{"control signal", "short exec id", "16 bytes", refMap{4: seq(1, 15)}},
		{"control signal", "no instance", "instance", refMap{6: nil}},
		{"control signal", "no request", "request", refMap{7: nil}},
		{"control signal", "no signal", "signal", refMap{8: nil}},
		{"control signal", "long owner", "owner", refMap{5: strings.Repeat("o", MaxOwner+1)}},
		{"control terminate", "no exec", "exec id", refMap{4: nil}},
		{"control remove", "no request", "request", refMap{7: nil}},
		{"attach full", "long owner", "owner", refMap{9: strings.Repeat("o", MaxOwner+1)}},
		{"start full", "unknown choice for a full log", "full log", refMap{23: 3}},
		{"started full", "unknown choice for a full log", "full log", refMap{19: 3}},
		{"input full", "offset beyond the end of numbers", "offset", refMap{2: uint64(most)}},
		{"resize", "no request number", "request", refMap{2: 0}},
		{"resize", "no size", "", refMap{3: refArray{}}},
		{"signal", "no request number", "request", refMap{2: 0}},
		{"signal", "no signal", "signal", refMap{3: nil}},
		{"signal", "signal with SIG", "signal", refMap{3: "SIGINT"}},
		{"signal", "signal as a number", "", refMap{3: 2}},
		{"signal", "signal beyond the last", "signal", refMap{3: "RTMIN+31"}},
		{"signal", "signal in another spelling", "signal", refMap{3: "RTMIN+01"}},
		{"terminate full", "no request number", "request", refMap{2: nil}},
		{"started full", "no window", "window", refMap{5: 0}},
		{"started full", "limit below offset", "limit", refMap{6: 0}},
		{"started full", "unknown sandbox mode", "sandbox", refMap{8: 0}},
		{"output full", "no number", "sequence", refMap{2: 0}},
		{"output full", "no stream", "stream", refMap{3: 0}},
		{"output full", "unknown stream", "stream", refMap{3: 4}},
		{"gap", "from 0", "gap", refMap{2: 0}},
		{"gap", "ends before it begins", "gap", refMap{2: 257}},
		{"exit minimal", "no number", "sequence", refMap{2: 0}},
		{"exit minimal", "no status", "cause", refMap{3: nil}},
		{"exit minimal", "no cause", "cause", refMap{3: refMap{1: 0}}},
		{"exit minimal", "unknown cause", "cause", refMap{3: refMap{1: 0, 3: 9}}},
		{"exit minimal", "unknown limit", "limit", refMap{3: refMap{1: 0, 3: 1, 6: 32}}},
		{"start minimal", "unknown view", "view", refMap{27: 3}},
		{"started minimal", "unknown view", "view", refMap{15: 3}},
		{"exit minimal", "code above 255", "exit code", refMap{3: refMap{1: 256, 3: 1}}},
		{"exit minimal", "negative code", "exit code", refMap{3: refMap{1: -1, 3: 1}}},
		{"exit minimal", "unknown signal", "signal", refMap{3: refMap{1: 0, 2: "FOO", 3: 2}}},
		{"exit minimal", "signalled by none", "signal", refMap{3: refMap{1: 0, 3: 2}}},
		{"exit minimal", "lost with a code", "", refMap{3: refMap{1: 1, 3: 7}}},
		{"input ack full", "limit below offset", "limit", refMap{3: 65535}},
		{"done full", "no request number", "request", refMap{2: 0}},
		{"done full", "text too long", "text", refMap{4: text}},
		{"list full", "item without an id", "list", refMap{2: refArray{refMap{2: 0, 3: 1}}}},
		{"list full", "item without a mode", "list", refMap{2: refArray{refMap{1: seq(1, 16), 2: 0}}}},
		{"list full", "item with a bad exit", "cause", refMap{2: refArray{refMap{1: seq(1, 16), 2: 0, 3: 1, 8: refMap{1: 0}}}}},
		{"refused full", "no code", "code", refMap{2: nil}},
		{"refused full", "code above 16 bits", "", refMap{2: 65536}},
		{"refused full", "text too long", "text", refMap{3: text}},
		{"hello full", "versions of one number", "", refMap{2: refArray{1}}},
		{"hello full", "version above 255", "", refMap{2: refArray{1, 256}}},
		{"hello full", "software too long", "too long", refMap{5: long}},
		{"welcome full", "no limits", "limits", refMap{5: nil}},
		{"welcome full", "no message limit", "limits", refMap{5: refMap{2: 1, 4: 1}}},
		{"welcome full", "no window", "limits", refMap{5: refMap{1: 1, 4: 1}}},
		{"welcome full", "no sandbox mode", "sandbox", refMap{5: refMap{1: 1, 2: 1}}},
		{"hop hello full", "no role", "role", refMap{2: nil}},
		{"hop hello full", "unknown role", "role", refMap{2: 3}},
		{"hop hello full", "name too long", "too long", refMap{4: long}},
		{"hop hello full", "software too long", "too long", refMap{8: long}},
		{"hop welcome full", "name too long", "too long", refMap{5: long}},
		{"hop welcome full", "tenant too long", "too long", refMap{4: long}},
		{"hop welcome full", "zeros as the next key", "key", refMap{9: make([]byte, 32)}},
		{"hop hello full", "a client that joins", "join", refMap{2: 2}},
		{"hop hello full", "join without a token", "join", refMap{5: refMap{2: seq(1, 32), 3: seq(1, 32)}}},
		{"hop hello full", "join with a short secret", "", refMap{5: refMap{1: seq(1, 16), 2: seq(1, 31), 3: seq(1, 32)}}},
		{"hop goaway full", "no code", "code", refMap{2: 0}},
		{"hop next key", "no key", "key", refMap{2: make([]byte, 32)}},
		{"hop notice full", "no code", "code", refMap{2: 0}},
		{"welcome full", "zeros as the next key", "key", refMap{10: make([]byte, 32)}},
		{"welcome full", "zeros as the previous key", "key", refMap{11: make([]byte, 32)}},
		{"reply full", "text too long", "text", refMap{3: text}},
		{"executor item full", "no key", "key", refMap{2: make([]byte, 32)}},
		{"executor item full", "name too long", "too long", refMap{3: long}},
		{"executor item full", "token without announcement", "together", refMap{7: nil}},
		{"executor item full", "announcement without token", "together", refMap{6: nil}},
		{"add token", "no id", "token", refMap{2: make([]byte, 16)}},
		{"add token", "no hash", "token", refMap{3: make([]byte, 32)}},
		{"add token", "no pattern", "pattern", refMap{4: ""}},
		{"add token", "pattern too long", "pattern", refMap{4: long}},
		{"add token", "no uses", "uses", refMap{5: 0}},
		{"add token", "no time", "time", refMap{6: 0}},
		{"remove token", "no id", "token", refMap{2: make([]byte, 16)}},
		{"token item full", "no id", "token", refMap{2: make([]byte, 16)}},
		{"token item full", "pattern too long", "pattern", refMap{3: long}},
		{"follow", "no key", "key", refMap{2: make([]byte, 32)}},
		{"retire", "no key", "key", refMap{2: make([]byte, 32)}},
		{"dial reply refused", "text too long", "text", refMap{3: text}},
	} {
		change(c.sample, c.what, c.says, c.changes)
	}
}

func TestOversizedMessagesAreRefusedByTheirLength(t *testing.T) {
	value := func(t Type) []byte { return []byte(refEncode(refMap{1: int(t), 2: 0})) }
	for _, c := range []struct {
		name  string
		head  []byte
		limit int
	}{
		{"ping", value(TypePing), MaxMessage},
		{"output", sampleValue("output empty", nil), MaxMessage},
		{"start", sampleValue("start minimal", nil), MaxStart},
	} {
		b := append(bytes.Clone(c.head), make([]byte, c.limit+1-len(c.head))...)
		allocs := testing.AllocsPerRun(5, func() {
			if _, err := Decode(b); err == nil || !strings.Contains(err.Error(), "at most") {
				t.Errorf("%s of %d bytes: %v, want it refused for its length", c.name, len(b), err)
			}
		})
		if allocs > 12 {
			t.Errorf("%s: %v allocations before the length was refused", c.name, allocs)
		}
	}
	// At the limit it is data.
	b := append(sampleValue("output empty", nil), make([]byte, MaxMessage)...)[:MaxMessage]
	if m, err := Decode(b); err != nil || len(m.(*Output).Data) == 0 {
		t.Errorf("output of %d bytes: %v", len(b), err)
	}
}

func TestStartMayHaveManyWordsAndNothingElse(t *testing.T) {
	words := func(n int) refArray {
		a := make(refArray, n)
		for i := range a {
			a[i] = []byte("x")
		}
		return a
	}
	if _, err := Decode(sampleValue("start minimal", refMap{7: words(MaxStartElements)})); err != nil {
		t.Errorf("start of %d words: %v", MaxStartElements, err)
	}
	if _, err := Decode(sampleValue("start minimal", refMap{7: words(MaxStartElements + 1)})); err == nil {
		t.Errorf("start of %d words was accepted", MaxStartElements+1)
	}
	if _, err := Decode(sampleValue("started full", refMap{9: words(4097)})); err == nil {
		t.Error("started with 4097 roots was accepted")
	}
}
