package wire

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allocated is how many bytes do allocates, other goroutines' included.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzDecode: what decodes also encodes, to something that decodes to the same; and a
// message costs memory in proportion to its length.
func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(s.encoded())
	}
	for _, c := range invalidMessages() {
		if len(c.bytes) < 2000 {
			f.Add(c.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		var err error
		// An element of a list costs one byte on the wire and up to a ListItem in memory.
		if n := allocated(func() { m, err = Decode(b) }); n > 1<<20+uint64(200*len(b)) {
			t.Fatalf("%d bytes allocated for a message of %d", n, len(b))
		}
		if err != nil {
			if m != nil {
				t.Fatalf("a message with the error %v", err)
			}
			return
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatalf("decoded %T does not encode: %v", m, err)
		}
		if len(again) > 2*len(b)+64 {
			t.Fatalf("encodes to %d bytes, decoded from %d", len(again), len(b))
		}
		m2, err := Decode(again)
		if err != nil {
			t.Fatalf("encoded %T does not decode: %v\n%x", m, err, again)
		}
		if d := cmp.Diff(m, m2, sameMessage); d != "" {
			t.Fatalf("decode, encode, decode changes a %T:\n%s", m, d)
		}
		third, err := Encode(m2)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%T has two encodings: %x and %x, %v", m, again, third, err)
		}
	})
}

// strictReader fails the test when it is asked for more than a frame may have.
type strictReader struct {
	t *testing.T
	*bytes.Reader
}

func (r strictReader) Read(p []byte) (int, error) {
	if len(p) > MaxHeader {
		r.t.Fatalf("asked for %d bytes", len(p))
	}
	return r.Reader.Read(p)
}

func FuzzFrame(f *testing.F) {
	for _, m := range []Message{&Dial{Executor: [32]byte{1}}, &Incoming{Circuit: 1}, &DialReply{}, &Refused{Code: CodeVersion, Text: "no"}} {
		var b bytes.Buffer
		if err := WriteFrame(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(append(b.Bytes(), "and more"...))
		f.Add(b.Bytes()[:b.Len()-1])
	}
	f.Add([]byte{0xff, 0xff, 0xa1})
	f.Add([]byte{4, 1})
	f.Add([]byte{0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := strictReader{t, bytes.NewReader(b)}
		m, err := ReadFrame(r)
		if len(b) >= 2 {
			n := int(b[0])<<8 | int(b[1])
			if read := len(b) - r.Len(); n <= MaxHeader && read > 2+n || n > MaxHeader && read > 2 {
				t.Fatalf("read %d bytes of a frame of %d", read, 2+n)
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && len(b) > 0 {
				t.Fatalf("a cut frame is io.EOF")
			}
			return
		}
		var out bytes.Buffer
		if err := WriteFrame(&out, m); err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		if m2, err := ReadFrame(&out); err != nil || !cmp.Equal(m, m2, sameMessage) {
			t.Fatalf("%+v came back as %+v, %v", m, m2, err)
		}
	})
}

// FuzzDataHead: the heads that are written by hand are what the codec makes of the same
// message, and what the reference encoder makes of it.
func FuzzDataHead(f *testing.F) {
	for _, n := range []uint64{0, 1, 23, 24, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, most} {
		f.Add(n, byte(1), []byte("data"))
	}
	f.Fuzz(func(t *testing.T, n uint64, stream byte, data []byte) {
		out := &Output{Seq: max(n, 1), Stream: OutputStream(stream%3 + 1), Data: data}
		in := &Input{Offset: min(n, most-uint64(len(data))), Data: data}
		for _, c := range []struct {
			m     Message
			value refMap
		}{
			{out, refMap{1: int(TypeOutput), 2: out.Seq, 3: uint64(out.Stream)}},
			{in, refMap{1: int(TypeInput), 2: in.Offset}},
		} {
			got, err := Encode(c.m)
			if err != nil {
				t.Fatal(err)
			}
			if want := append([]byte(refEncode(c.value)), data...); !bytes.Equal(got, want) {
				t.Fatalf("%T = %x, the reference has %x", c.m, got, want)
			}
			// The codec writes the map without its type, which Append puts in front.
			body, err := encMode.Marshal(c.m)
			if err != nil {
				t.Fatal(err)
			}
			pairs, rest, err := cutMapHead(body)
			if err != nil {
				t.Fatal(err)
			}
			want := appendUint(appendUint(appendHead(nil, majorMap, uint64(pairs+1)), 1), uint64(c.m.Type()))
			if want = append(append(want, rest...), data...); !bytes.Equal(got, want) {
				t.Fatalf("%T = %x, the codec has %x", c.m, got, want)
			}
			if m, err := Decode(got); err != nil || !cmp.Equal(m, c.m, sameMessage) {
				t.Fatalf("%+v came back as %+v, %v", c.m, m, err)
			}
		}
	})
}
