package executor

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"

	"github.com/postern-relay/postern/sandbox/egress"
)

// refusalsKept bounds what is remembered of one command's refused requests.
const refusalsKept = 16

// proxies serve the listeners of commands with an allow-list: one for each command, or for each network session, whose
// commands share it. A proxy ends with its listener, which is the sandbox's to close.
type proxies struct {
	permit []netip.Prefix                                      // networks of the machine's own that commands may reach too
	lookup func(context.Context, string) ([]netip.Addr, error) // nil: the system's

	mu     sync.Mutex
	shared map[*os.File]*records
	all    *egress.Room            // of all proxies
	rooms  map[string]*egress.Room // of those of one principal
}

// roomOf is that of a principal, who gets half of all at most, so that there is some for others. The caller holds mu.
func (p *proxies) roomOf(principal string) *egress.Room {
	if p.all == nil {
		p.all, p.rooms = egress.NewRoom(mostConns(openFiles()), nil), make(map[string]*egress.Room)
	}
	if p.rooms[principal] == nil {
		p.rooms[principal] = egress.NewRoom(mostConns(openFiles())/2, p.all)
	}
	return p.rooms[principal]
}

// records are those of the commands that use one proxy.
type records struct {
	mu  sync.Mutex
	all map[*egress.Record]struct{}
}

func (r *records) add(d egress.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.all {
		one.Add(d)
	}
}

// use begins to serve a listening socket, unless another command of its session has, and keeps account of what is refused
// until leave is called. Of a session nobody knows which command asked: each has what was refused while it ran.
func (p *proxies) use(socket *os.File, n Network) (record *egress.Record, leave func(), err error) {
	record = egress.NewRecord(refusalsKept)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.shared[socket]
	if r == nil {
		l, err := egress.FileListener(socket)
		if errors.Is(err, os.ErrClosed) { // the command has ended
			return record, func() {}, nil
		}
		if err != nil {
			return nil, nil, err
		}
		// Before it serves: the command runs already, and its first request may be all that is refused.
		r = &records{all: map[*egress.Record]struct{}{record: {}}}
		proxy, err := egress.New(egress.Options{
			Rules: n.Rules, Permit: p.permit, Lookup: p.lookup, Decided: r.add, Room: p.roomOf(n.owner),
		})
		if err != nil {
			l.Close()
			return nil, nil, err
		}
		if p.shared == nil {
			p.shared = make(map[*os.File]*records)
		}
		p.shared[socket] = r
		go func() {
			_ = proxy.Serve(l) // its end is the listener's
			proxy.Close()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.shared, socket)
		}()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[record] = struct{}{}
	return record, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, record)
	}, nil
}
