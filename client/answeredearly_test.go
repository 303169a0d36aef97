package client

import (
	"bytes"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// answeredEarly is a stream whose other end has answered as soon as it had the request, and takes its end no more.
type answeredEarly struct {
	wire.Stream
	answer bytes.Buffer
}

func (*answeredEarly) Write(p []byte) (int, error)      { return len(p), nil }
func (*answeredEarly) CloseWrite() error                { return &wire.Error{Code: wire.CodeCancelled} }
func (s *answeredEarly) Read(p []byte) (int, error)     { return s.answer.Read(p) }
func (*answeredEarly) SetReadDeadline(time.Time) error  { return nil }
func (*answeredEarly) SetWriteDeadline(time.Time) error { return nil }

func TestAnswerCountsThoughTheRelayTakesTheEndOfTheRequestNoMore(t *testing.T) {
	s := &answeredEarly{}
	if err := wire.WriteFrame(&s.answer, wire.NewReply(nil)); err != nil {
		t.Fatal(err)
	}
	q := question{does: "list executors", message: &wire.ListExecutors{}}
	if err := exchange(s, q, func(wire.Message) error { return nil }); err != nil {
		t.Errorf("exchange = %v, want the answer that is there", err)
	}
}
