package client

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// mute lets so many bytes through to the client, then ends the stream.
type mute struct {
	wire.Stream
	allow int64
	end   func(wire.Stream)
	with  error // what the client reads then
	ended atomic.Bool
}

func (m *mute) Read(p []byte) (int, error) {
	if m.allow <= 0 {
		if !m.ended.Swap(true) && m.end != nil {
			m.end(m.Stream)
		}
		if m.with != nil {
			return 0, m.with
		}
		return 0, io.EOF
	}
	n, err := m.Stream.Read(p[:min(int64(len(p)), m.allow)])
	m.allow -= int64(n)
	return n, err
}

// Whatever ends a circuit wherever it does, what the client gets is the whole result or an
// error. A clean end of the bytes is the case that a careless reader takes for success.
func TestCutAnywhereIsNeverASuccess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	const size = 100_000
	ends := map[string]error{
		"a clean end":        nil,
		"a reset":            &wire.Error{Code: wire.CodeCancelled},
		"a lost connection":  wire.ErrLost,
		"a half-read record": io.ErrUnexpectedEOF,
	}
	cuts := 0
	inWorld(t, func(t *testing.T, w *world) {
		w.impatient()
		for name, with := range ends {
			for range 40 {
				allow := int64(r.IntN(size + 3000))
				if r.IntN(2) == 0 {
					allow = int64(size) + int64(r.IntN(2000)) // around the end, where it is easiest to go wrong
				}
				w.set(func() {
					w.between = func(s wire.Stream) wire.Stream { return &mute{Stream: s, allow: allow, with: with} }
				})
				out, err := Environment{Backend: w.remote}.Command("flood", "100000").Output(t.Context())
				switch exact := string(out) == string(executortest.Pattern(size)); {
				case err == nil && !exact:
					t.Fatalf("%s after %d bytes: success with %d bytes of output", name, allow, len(out))
				case err != nil:
					cuts++
					if _, failed := errors.AsType[*ExitError](err); failed {
						t.Fatalf("%s after %d bytes: the command seems to have failed: %v", name, allow, err)
					}
					if len(out) > 0 {
						wantLost(t, name, err)
					}
				}
			}
		}
	})
	if cuts < 20 {
		t.Errorf("only %d runs were cut: this tested nothing", cuts)
	}
}

// twisted alters one byte on its way to the client, or from it.
type twisted struct {
	wire.Stream
	read, written int64 // count down to the byte; negative: never
}

func (s *twisted) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if s.read >= 0 && s.read < int64(n) {
		p[s.read] ^= 0x10
	}
	s.read -= int64(n)
	return n, err
}

func (s *twisted) Write(p []byte) (int, error) {
	if s.written >= 0 && s.written < int64(len(p)) {
		p = append([]byte(nil), p...)
		p[s.written] ^= 0x10
	}
	s.written -= int64(len(p))
	return s.Stream.Write(p)
}

func TestAlteredByteIsNeverASuccess(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 6))
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 60 {
			read, written := int64(r.IntN(20_000)), int64(-1)
			if i%2 == 0 {
				read, written = -1, int64(r.IntN(400))
			}
			if i%3 == 0 {
				w.remote.session = nil // cold: the handshake is altered too
			}
			altered := 0
			w.set(func() {
				w.between = func(s wire.Stream) wire.Stream {
					if altered++; altered > 1 {
						return s // the fresh handshake after a first refusal
					}
					return &twisted{Stream: s, read: read, written: written}
				}
			})
			out, err := Environment{Backend: w.remote}.Command("flood", "30000").Output(t.Context())
			if err == nil && string(out) != string(executortest.Pattern(30_000)) {
				t.Fatalf("byte %d read or %d written altered: success with other bytes", read, written)
			}
			if read >= 0 && err == nil && altered == 1 {
				t.Fatalf("byte %d on the way to the client was altered, and nobody noticed", read)
			}
		}
	})
}
