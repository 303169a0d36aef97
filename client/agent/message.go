package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// maxFrame bounds a request or an answer, both far smaller.
const maxFrame = 16 << 10

// What a request asks for.
const (
	askBorrow  = "borrow"
	askCircuit = "circuit"
)

// request is the first frame of a connection.
type request struct {
	Ask      string  `cbor:"1,keyasint"`
	Software string  `cbor:"2,keyasint"` // of the program: another build may mean something else by all this
	Key      string  `cbor:"3,keyasint"` // the client's, public
	Relay    string  `cbor:"4,keyasint"`
	Executor string  `cbor:"5,keyasint"`
	Not      wire.ID `cbor:"6,keyasint"` // of a session that the executor does not know any more
}

// answer is the first frame back.
type answer struct {
	Error string       `cbor:"1,keyasint,omitempty"`
	Loan  *client.Loan `cbor:"2,keyasint,omitempty"`
}

var errFrame = errors.New("the other end of the socket does not speak as an agent does")

func writeMessage(w io.Writer, v any) error {
	b, err := cbor.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("%d bytes: at most %d are allowed", len(b), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// readMessage reads one frame and not a byte more.
func readMessage(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return errFrame
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if cbor.Unmarshal(b, v) != nil {
		return errFrame
	}
	return nil
}
