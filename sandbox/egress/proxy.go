package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Options are what a Proxy is made of. The zero value is a proxy that refuses everything.
type Options struct {
	// Rules are the names and ports that may be reached.
	Rules Rules
	// Permit are networks that the names may lead to besides the public Internet, such as
	// that of an internal registry. They allow nothing that Rules do not name. Link-local
	// addresses, multicast and metadata services are never reached, also if these networks
	// contain them.
	Permit []netip.Prefix
	// Lookup gives the addresses of a host name, which has no final dot. Nil means the
	// system's; the search list of resolv.conf then counts for names of one label only.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects to an address, which is never a name. Nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Room bounds the connections of this and other proxies together; nil: each has its own bound only.
	Room *Room
	// Decided, if not nil, is told of every request that could be read as one, once, when
	// its connection stands or has failed. Calls come from many goroutines and should
	// return soon; the request waits for them.
	Decided func(Decision)
}

// Proxy is the way out of one sandbox. Its methods are safe for concurrent use.
type Proxy struct {
	rules     Rules
	permit    []netip.Prefix
	room      *Room
	own       func(netip.Addr) bool
	lookup    func(context.Context, string) ([]netip.Addr, error)
	dial      func(context.Context, string, string) (net.Conn, error)
	decided   func(Decision)
	server    *http.Server
	transport *http.Transport
	reverse   *httputil.ReverseProxy
	requests  *connQueue // connections that speak HTTP, for server

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	working  sync.WaitGroup // everything that runs; Add only through begin
	starting sync.Once

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*clientConn]struct{}
	admitted  int // those of conns that were not turned away
}

// New makes a proxy. Its policy cannot be changed afterwards. An error names the network
// in Permit that can never be permitted. Close must be called if Serve was.
func New(o Options) (*Proxy, error) {
	p := &Proxy{
		rules:     o.Rules,
		room:      o.Room,
		own:       isOwn,
		lookup:    o.Lookup,
		dial:      o.Dial,
		decided:   o.Decided,
		requests:  newConnQueue(),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*clientConn]struct{}),
	}
	for _, net := range o.Permit {
		if !net.IsValid() || net.Addr().Is4In6() || slices.ContainsFunc(never, func(n netip.Prefix) bool {
			return n.Bits() <= net.Bits() && n.Contains(net.Addr())
		}) {
			return nil, fmt.Errorf("network %v cannot be permitted: it must be valid, and not within a link-local, multicast or metadata network", net)
		}
		p.permit = append(p.permit, net.Masked())
	}
	if p.lookup == nil {
		p.lookup = systemLookup
	}
	if p.dial == nil {
		p.dial = new(net.Dialer).DialContext
	}
	if p.decided == nil {
		p.decided = func(Decision) {}
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.setUpHTTP()
	return p, nil
}

// Serve accepts connections until Close, and then returns nil, or until the listener
// fails, and then returns its error; connections made by then go on. It closes the
// listener. Several listeners can be served at once.
func (p *Proxy) Serve(l net.Listener) error {
	defer l.Close()
	if !p.begin() {
		return nil
	}
	defer p.working.Done()
	p.starting.Do(func() {
		p.working.Go(func() { p.server.Serve(p.requests) })
	})
	if !p.hold(l) {
		return nil
	}
	defer p.drop(l)
	for delay := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			delay = 0
			p.admit(conn)
		case p.ctx.Err() != nil:
			return nil
		case !passing(err):
			return fmt.Errorf("accept: %w", err)
		default:
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(delay):
			case <-p.ctx.Done():
			}
		}
	}
}

// passing tells whether accepting may work again in a moment.
func passing(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
	}, func(e error) bool { return errors.Is(err, e) })
}

// Close ends the listeners and all connections, waits until nothing of the proxy runs any
// more, and returns nil. A Lookup or Dial that does not mind its context delays it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for l := range p.listeners {
		l.Close()
	}
	var conns []*clientConn
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	p.requests.Close()
	p.server.Close()
	p.working.Wait()
	p.transport.CloseIdleConnections()
	return nil
}

// begin notes that something runs that Close has to wait for, which calls working.Done at
// its end. After Close it is false, and nothing may begin.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.working.Add(1)
	}
	return !p.closed
}

func (p *Proxy) hold(l net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.listeners[l] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) drop(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, l)
}

// admit takes a connection in, or closes it if there are too many even to tell.
func (p *Proxy) admit(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		conn.Close()
		return
	}
	c := &clientConn{Conn: conn, proxy: p, turnedAway: p.admitted >= maxConns || !p.room.take()}
	if c.turnedAway && len(p.conns)-p.admitted >= maxTurnedAway {
		conn.Close()
		return
	}
	p.conns[c] = struct{}{}
	if !c.turnedAway {
		p.admitted++
	}
	p.working.Go(func() { p.sniff(c) })
}

// sniff finds out from its first byte what a connection speaks, and hands it on.
func (p *Proxy) sniff(c *clientConn) {
	c.SetReadDeadline(time.Now().Add(headerTimeout))
	if _, err := io.ReadFull(c.Conn, c.first[:]); err != nil {
		c.Close()
		return
	}
	switch c.first[0] {
	case socks5Version:
		p.serveSOCKS(c)
	case socks4Version:
		p.decided(Decision{Protocol: SOCKS5, Reason: Malformed})
		c.Write([]byte{0, 91, 0, 0, 0, 0, 0, 0}) // request rejected, as SOCKS 4 says it
		linger(c)
	default:
		c.unread = true
		p.requests.push(c)
	}
}

// clientConn is a connection from the sandbox.
type clientConn struct {
	net.Conn
	proxy      *Proxy
	turnedAway bool
	closing    sync.Once
	first      [1]byte
	unread     bool // first is still to be read
}

func (c *clientConn) Read(b []byte) (int, error) {
	if c.unread && len(b) > 0 {
		c.unread = false
		return copy(b, c.first[:]), nil
	}
	return c.Conn.Read(b)
}

// Write bounds the time that a client may take to read on.
func (c *clientConn) Write(b []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(idleTimeout))
	return c.Conn.Write(b)
}

func (c *clientConn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		err = c.Conn.Close()
		p := c.proxy
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		if !c.turnedAway {
			p.admitted--
			p.room.leave()
		}
	})
	return err
}

// connQueue is a listener for connections that another one has accepted.
type connQueue struct {
	conns  chan net.Conn
	done   chan struct{}
	ending sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (q *connQueue) push(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.done:
		c.Close()
	}
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) Close() error {
	q.ending.Do(func() { close(q.done) })
	return nil
}

func (q *connQueue) Addr() net.Addr { return &net.TCPAddr{} }
