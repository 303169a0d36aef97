package executor

import (
	"context"

	"github.com/postern-relay/postern/wire"
)

// control answers a conversation that is about no handle, and ends it.
func (c *conversation) control(ctx context.Context, m *wire.Control) error {
	if m.Verb == wire.VerbList {
		return c.list(ctx)
	}
	if m.Verb > wire.VerbRemove {
		return c.refuse(wire.Errorf(wire.CodeUnsupported, "unknown question %d", m.Verb))
	}
	if err := c.backend.once(ctx, wire.ExecRef{ID: *m.ID, Owner: m.Owner}, *m.Instance, m.Request, m); err != nil {
		return c.refuse(err)
	}
	if err := c.conn.Send(&wire.Done{Request: m.Request}); err != nil {
		return err
	}
	return c.conn.CloseWrite()
}

// once does what m asks for, if this request of the client instance is new.
func (l *Local) once(ctx context.Context, ref wire.ExecRef, instance wire.ID, request uint64, m *wire.Control) error {
	if m.Verb == wire.VerbRemove { // a second time it is not there any more
		return l.Remove(ctx, ref)
	}
	return l.act(ref, func(x *execution) error {
		return x.request(instance, request, func() error {
			if m.Verb == wire.VerbSignal {
				return x.signal(m.Signal)
			}
			return x.act(func() error { return x.terminate(wire.CauseTerminated, m.Grace()) })
		})
	})
}

// listed is how many execs one List holds: far below what a message may have.
const listed = 500

func (c *conversation) list(ctx context.Context) error {
	infos, err := c.backend.List(ctx)
	if err != nil {
		return c.refuse(err)
	}
	for {
		n := min(len(infos), listed)
		list := &wire.List{More: n < len(infos)}
		for _, i := range infos[:n] {
			list.Execs = append(list.Execs, wire.NewListItem(i))
		}
		if err := c.conn.Send(list); err != nil {
			return err
		}
		if infos = infos[n:]; len(infos) == 0 {
			return c.conn.CloseWrite()
		}
	}
}
