package main

import (
	"context"
	"errors"
	"io"

	"github.com/postern-relay/postern/wire"
)

// readAhead is how much input is read at a time: several messages, which then go to the relay in one go.
const readAhead = 8 * wire.MaxChunk

// muchInput is from where on it is worth to ask for more room in a pipe.
const muchInput = 4 * readAhead

// feed passes on what r has, as the command's input from an offset on. What the command does not
// read is of no interest. It returns what it ended for: nil after the end of r, errLeft, or the error
// of a Write.
func feed(ctx context.Context, p wire.ExecProcess, r io.Reader, offset uint64) error {
	r, done := pipe(r)
	defer done()
	buf := make([]byte, readAhead)
	for carried := 0; ; {
		n, err := r.Read(buf)
		if n > 0 {
			if err := p.Write(ctx, offset, buf[:n]); err != nil {
				return err
			}
			offset += uint64(n)
			if carried < muchInput && carried+n >= muchInput {
				widen(r)
			}
			carried += n
		}
		if errors.Is(err, errLeft) { // the input goes on when somebody comes back
			return err
		}
		if err != nil {
			return p.CloseStdin(ctx) // an unreadable input ends as a finished one does
		}
	}
}
