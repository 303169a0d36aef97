package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// fuse ends a stream, for both sides, after so many bytes in one direction.
type fuse struct {
	wire.Stream
	read, written int64 // what is left; negative: any number
	code          wire.Code
}

func (f *fuse) Read(p []byte) (int, error) {
	if f.read == 0 {
		f.Reset(f.code)
	} else if f.read > 0 {
		p = p[:min(int64(len(p)), f.read)]
	}
	n, err := f.Stream.Read(p)
	if f.read > 0 {
		f.read -= int64(n)
	}
	return n, err
}

func (f *fuse) Write(p []byte) (int, error) {
	if f.written < 0 || f.written >= int64(len(p)) {
		if f.written > 0 {
			f.written -= int64(len(p))
		}
		return f.Stream.Write(p)
	}
	n := 0
	if f.written > 0 {
		n, _ = f.Stream.Write(p[:f.written]) // half a record
	}
	f.Reset(f.code)
	return n, &wire.Error{Code: f.code}
}

// fused makes every circuit end after a number of bytes that next says, read or written.
func (w *world) fused(next func() (read, written int64)) {
	w.set(func() {
		w.between = func(s wire.Stream) wire.Stream {
			read, written := next()
			return &fuse{Stream: s, read: read, written: written, code: wire.CodeShutdown}
		}
	})
}

// exchange runs a command with a counted stream in both directions and checks every byte.
func (w *world) exchange(what string, size int) {
	w.t.Helper()
	before := w.runner.Starts()
	input := executortest.PatternAt(7, size)
	var stdout, stderr bytes.Buffer
	cmd := Environment{Backend: w.remote}.Command("exchange", fmt.Sprint(size), "4000")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	err := cmd.Run(w.t.Context())
	switch {
	case err != nil:
		w.t.Fatalf("%s: %v", what, err)
	case !bytes.Equal(stdout.Bytes(), executortest.Pattern(size)):
		w.t.Fatalf("%s: %d bytes of output that are not the %d printed", what, stdout.Len(), size)
	case stderr.String() != executortest.Sum(input):
		w.t.Fatalf("%s: the command read %q, want %q", what, stderr.String(), executortest.Sum(input))
	case w.runner.Starts() != before+1:
		w.t.Fatalf("%s: it was started %d times", what, w.runner.Starts()-before)
	}
}

// The circuit is cut once at each place of a whole conversation: before Started, within every
// message in both directions, just before and just after Exit.
func TestExecSurvivesACutAtEveryPlace(t *testing.T) {
	const size = 9000
	for _, warm := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			w.output("echo")
			most := int64(size + 4500) // a little more than goes either way
			for at, step := int64(0), int64(1); at < most; at += step {
				if step = 97; at < 2200 || at > size-500 && at < size+1500 {
					step = 13 // messages are small at the beginning and at the end
				}
				for _, reading := range []bool{true, false} {
					if !warm {
						w.remote.set(nil)
					}
					circuits := 0
					w.fused(func() (int64, int64) {
						if circuits++; circuits > 1 {
							return -1, -1
						}
						if reading {
							return at, -1
						}
						return -1, at
					})
					if !warm && at < 1160+3*300 && w.unsent(reading, at) {
						continue // nothing was sent: see TestErrorBeforeAnythingWasSentIsNotALoss
					}
					w.exchange(fmt.Sprintf("warm %v, cut when reading %v after %d bytes", warm, reading, at), size)
				}
			}
		})
	}
}

// unsent reports whether a cut there ends the handshake, before the request was on its way.
func (w *world) unsent(reading bool, at int64) bool {
	if reading {
		return at < 1+2+1152
	}
	return at < 1900
}

func (r *Remote) set(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = s
}

func TestExecSurvivesManyCuts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inWorld(t, func(t *testing.T, w *world) {
		r := rand.New(rand.NewPCG(seed, 8))
		w.output("echo")
		var circuits atomic.Int64
		for range 10 {
			w.fused(func() (int64, int64) {
				circuits.Add(1)
				at := int64(r.IntN(60_000))
				if r.IntN(3) == 0 {
					at = int64(r.IntN(600)) // before Started, or soon after
				}
				if r.IntN(2) == 0 {
					return at, -1
				}
				return -1, at
			})
			w.exchange("many cuts", 600_000)
		}
		if n := circuits.Load(); n < 40 {
			t.Errorf("only %d circuits: this tested nothing", n)
		}
	})
}

// half takes no more bytes after some, while what comes still arrives.
type half struct {
	wire.Stream
	written int
}

func (h *half) Write(p []byte) (int, error) {
	if h.written -= len(p); h.written < 0 {
		return 0, wire.ErrLost
	}
	return h.Stream.Write(p)
}

func TestExecSurvivesACircuitOnWhichNothingCanBeSentAnyMore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo")
		for at := 600; at < 60_000; at += 4999 {
			first := true
			w.set(func() {
				w.between = func(s wire.Stream) wire.Stream {
					if !first {
						return s
					}
					first = false
					return &half{Stream: s, written: at}
				}
			})
			w.exchange(fmt.Sprintf("nothing sent after %d bytes", at), 30_000)
		}
	})
}
