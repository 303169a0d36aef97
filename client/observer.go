package client

import (
	"time"

	"github.com/postern-relay/postern/wire"
)

// Observer is told what a client does, for metrics: package clientprom has one for Prometheus. Its methods are
// called from several goroutines at once and while things wait for them: they count and return.
type Observer interface {
	// Connected: an attempt to connect to the relay has ended; nil is success.
	Connected(err error)
	// Founded: a circuit and a handshake with an executor have ended, after so long. Further commands use
	// what it founded, so there are fewer of them than of commands.
	Founded(took time.Duration, err error)
	// Lost: an exec's link is lost for a reason, and is going to be tried again.
	Lost(reason error)
	// Resumed: that has ended; nil is success.
	Resumed(err error)
	// Ended: a command that was started here has ended, or err says why there is no exit status: it was
	// refused, or its outcome is not known (wire.ErrLost, wire.CodeUnknown). A handle that is closed before the end
	// of its command is not told.
	Ended(status *wire.ExitStatus, err error)
}

// unobserved is the Observer of who has none.
type unobserved struct{}

func (unobserved) Connected(error)               {}
func (unobserved) Founded(time.Duration, error)  {}
func (unobserved) Lost(error)                    {}
func (unobserved) Resumed(error)                 {}
func (unobserved) Ended(*wire.ExitStatus, error) {}

func orUnobserved(o Observer) Observer {
	if o == nil {
		return unobserved{}
	}
	return o
}
