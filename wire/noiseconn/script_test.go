package noiseconn

import (
	"bytes"
	"time"

	"github.com/postern-relay/postern/wire"
)

// script is a stream whose peer says what was recorded, whatever it hears, and then ends
// its direction cleanly.
type script struct {
	*bytes.Reader
	written bytes.Buffer
	reset   bool
}

var _ wire.Stream = (*script)(nil)

func newScript(peer []byte) *script { return &script{Reader: bytes.NewReader(peer)} }

func (s *script) Write(p []byte) (int, error)      { return s.written.Write(p) }
func (s *script) CloseWrite() error                { return nil }
func (s *script) Reset(wire.Code)                  { s.reset = true }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
