package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// header is a stream whose reading side is given; it records how much was asked for.
type header struct {
	io.Reader
	largest int
}

func (h *header) Read(p []byte) (int, error) {
	h.largest = max(h.largest, len(p))
	return h.Reader.Read(p)
}

func (*header) Write(p []byte) (int, error)      { return len(p), nil }
func (*header) CloseWrite() error                { return nil }
func (*header) Reset(wire.Code)                  {}
func (*header) SetReadDeadline(time.Time) error  { return nil }
func (*header) SetWriteDeadline(time.Time) error { return nil }

// FuzzStreamHeader: whatever a client sends, the relay takes a buffer of at most 1 KiB for
// it, reads not a byte past the frame, and either has a message or an error that tells how to
// go on.
func FuzzStreamHeader(f *testing.F) {
	var dial bytes.Buffer
	if err := wire.WriteFrame(&dial, &wire.Dial{Executor: [32]byte{1, 2, 3}}); err != nil {
		f.Fatal(err)
	}
	f.Add(dial.Bytes())
	f.Add(append(dial.Bytes(), "and more"...))
	f.Add(dial.Bytes()[:dial.Len()-1])
	for _, m := range []wire.Message{&wire.ListExecutors{}, &wire.AddToken{ID: wire.ID{1}, Hash: [32]byte{1}, Pattern: "*", Uses: 1, TTLMillis: 1}, &wire.Follow{Executor: [32]byte{1}}} {
		var request bytes.Buffer
		if err := wire.WriteFrame(&request, m); err != nil {
			f.Fatal(err)
		}
		f.Add(request.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xa0})
	f.Add([]byte{0x04, 0x00, 0xa1, 0x01, 0x18, 0xff})
	f.Add([]byte{0x00, 0x04, 0xa1, 0x01, 0x18, 0xfe})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		rest := bytes.NewReader(data)
		h := &header{Reader: rest}
		m, err := readHeader(h)
		if h.largest > wire.MaxHeader {
			t.Fatalf("asked for %d bytes at once", h.largest)
		}
		used := len(data) - rest.Len()
		if len(data) >= 2 {
			if n := int(binary.BigEndian.Uint16(data)); used > 2+n || n > wire.MaxHeader && used > 2 {
				t.Fatalf("read %d bytes of a frame of %d", used, n)
			}
		}
		if err == nil {
			if m == nil {
				t.Fatal("neither a message nor an error")
			}
			if dial, ok := m.(*wire.Dial); ok && dial.Executor == [32]byte{} {
				t.Fatal("a dial to nobody was accepted")
			}
			return
		}
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code != wire.CodeProtocol && e.Code != wire.CodeUnsupported {
			t.Fatalf("%v has code %v: neither the peer's clock nor its words are at fault here", err, e.Code)
		}
	})
}

func TestHeaderThatAnnouncesTooMuchCostsNothing(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xa0}
	const runs = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		if _, err := readHeader(&header{Reader: bytes.NewReader(huge)}); wire.CodeOf(err) != wire.CodeProtocol {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / runs; each > wire.MaxHeader {
		t.Errorf("header that announces 64 KiB costs %d bytes, want less than %d", each, wire.MaxHeader)
	}
}
