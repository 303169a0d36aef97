//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// parcel is something under way, and when it arrives.
type parcel struct {
	due time.Time
	train
}

// deliver hands on what comes, each at its time. All are late by the same time, so their order stays.
func deliver(ctx context.Context, from <-chan parcel, to func(train) error) error {
	clock, err := newAlarm(ctx)
	if err != nil { // no descriptors are left: better late than never
		return handOn(ctx, byTimer(ctx), from, to)
	}
	defer clock.close()
	return handOn(ctx, clock.until, from, to)
}

func handOn(ctx context.Context, wait waiter, from <-chan parcel, to func(train) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p, ok := <-from:
			if !ok {
				return nil
			}
			if err := wait(p.due); err != nil {
				return err
			}
			if err := to(p.train); err != nil {
				return err
			}
		}
	}
}

// udpDelay forwards datagrams to an address and back, and adds half of a round trip each way. What comes from one
// source leaves from one socket, so the target sees as many peers as there are. It drops what it has no room for.
type udpDelay struct {
	socket  *net.UDPConn
	target  *net.UDPAddr
	oneWay  time.Duration
	blocked atomic.Bool  // nothing passes
	read    atomic.Int64 // datagrams that came from the sources
	cancel  context.CancelFunc
	all     sync.WaitGroup

	mu    sync.Mutex
	flows map[netip.AddrPort]*udpFlow
}

type udpFlow struct {
	socket *net.UDPConn
	out    chan parcel
	first  time.Time // when the first datagram that passed came
	back   time.Time // when the last one came from the target
}

// underWay is how many datagrams, or trains of them, a direction holds: at 100 MB/s more than 100 ms.
const underWay = 16_384

func newUDPDelay(target string, roundTrip time.Duration) (*udpDelay, error) {
	to, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &udpDelay{socket: socket, target: to, oneWay: roundTrip / 2, cancel: cancel, flows: make(map[netip.AddrPort]*udpFlow)}
	widen(socket)
	coalesce(socket)
	d.all.Go(func() { d.forward(ctx) })
	return d, nil
}

func (d *udpDelay) address() string { return d.socket.LocalAddr().String() }

// widen asks for room for bursts: as much as an administrator gets, else as much as everybody.
func widen(c *net.UDPConn) {
	const room = 4 << 20
	raw, err := c.SyscallConn()
	if err != nil {
		return // the default has to do
	}
	_ = raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, room)
		}
	})
}

func (d *udpDelay) forward(ctx context.Context) {
	r := &trainReader{socket: d.socket}
	for {
		t, from, err := r.next()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of a datagram that was sent before
		}
		shut := d.blocked.Load()
		d.read.Add(t.datagrams())
		if shut {
			continue
		}
		flow, err := d.flow(ctx, from)
		if err != nil {
			continue
		}
		select {
		case flow.out <- parcel{time.Now().Add(d.oneWay), t}:
		default:
		}
	}
}

// flow is the one of a source, new where that is.
func (d *udpDelay) flow(ctx context.Context, from netip.AddrPort) (*udpFlow, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flows[from]; f != nil {
		return f, nil
	}
	socket, err := net.DialUDP("udp", nil, d.target)
	if err != nil {
		return nil, err
	}
	widen(socket)
	coalesce(socket)
	f := &udpFlow{socket: socket, out: make(chan parcel, underWay), first: time.Now()}
	d.flows[from] = f
	back := make(chan parcel, underWay)
	d.all.Go(func() {
		// A refusal is of a target that is not there at the moment, and of that datagram only.
		_ = deliver(ctx, f.out, func(t train) error { _ = t.send(socket, netip.AddrPort{}); return nil })
	})
	d.all.Go(func() {
		_ = deliver(ctx, back, func(t train) error { return t.send(d.socket, from) })
	})
	d.all.Go(func() {
		defer close(back)
		r := &trainReader{socket: socket}
		for {
			t, _, err := r.next()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil || d.blocked.Load() {
				continue
			}
			d.mu.Lock()
			f.back = time.Now()
			d.mu.Unlock()
			select {
			case back <- parcel{time.Now().Add(d.oneWay), t}:
			default:
			}
		}
	})
	return f, nil
}

// latest tells when the flow began that was answered last.
func (d *udpDelay) latest() (began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var answered time.Time
	for _, f := range d.flows {
		if f.back.After(answered) {
			answered, began = f.back, f.first
		}
	}
	return began
}

// block lets nothing pass any more, or again; forgets the flows that there were, so that those after it are new.
func (d *udpDelay) block(yes bool) {
	d.blocked.Store(yes)
	if !yes {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for from, f := range d.flows {
		f.socket.Close()
		delete(d.flows, from)
	}
}

func (d *udpDelay) close() {
	d.cancel()
	d.socket.Close()
	d.mu.Lock()
	for _, f := range d.flows {
		f.socket.Close()
	}
	d.mu.Unlock()
	d.all.Wait()
}

// tcpDelay forwards connections to an address, and adds half of a round trip each way to all bytes. The handshake
// with it takes no time, so the round trip that one takes on a real link is added before anything else passes. Slow
// start and congestion are not there: over it ssh has the better of a real link.
type tcpDelay struct {
	listener net.Listener
	target   string
	oneWay   time.Duration
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

func newTCPDelay(target string, roundTrip time.Duration) (*tcpDelay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &tcpDelay{listener: listener, target: target, oneWay: roundTrip / 2, cancel: cancel}
	d.all.Go(func() {
		for {
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				d.all.Go(func() { d.carry(ctx, c) })
			}
		}
	})
	return d, nil
}

func (d *tcpDelay) address() string { return d.listener.Addr().String() }

// carry joins one connection to the target. Until the client hears of the other end a round trip passes, and until
// the other end hears from the client, another half.
func (d *tcpDelay) carry(ctx context.Context, near net.Conn) {
	defer near.Close()
	open := time.Now().Add(2 * d.oneWay)
	if pause(ctx, 3*d.oneWay) != nil {
		return
	}
	far, err := new(net.Dialer).DialContext(ctx, "tcp", d.target)
	if err != nil {
		return
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { d.copy(ctx, far, near, open) })
	both.Go(func() { d.copy(ctx, near, far, open) })
	both.Wait()
}

// copy carries one direction to its end, which it passes on too. 16 MiB may be under way.
func (d *tcpDelay) copy(ctx context.Context, to, from net.Conn, open time.Time) {
	pieces := make(chan parcel, 256)
	var sender sync.WaitGroup
	sender.Go(func() {
		err := deliver(ctx, pieces, func(t train) error { _, err := to.Write(t.data); return err })
		if err != nil {
			from.Close() // nobody takes it any more
			for range pieces {
			}
			return
		}
		if c, ok := to.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	})
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			now := time.Now()
			if now.Before(open) {
				now = open
			}
			pieces <- parcel{now.Add(d.oneWay), train{data: b[:n]}}
		}
		if err != nil {
			close(pieces)
			sender.Wait()
			if !errors.Is(err, io.EOF) {
				to.Close()
			}
			return
		}
	}
}

func (d *tcpDelay) close() {
	d.cancel()
	d.listener.Close()
	d.all.Wait()
}
