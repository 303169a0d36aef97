package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The keys of what a request has in its context.
type (
	connKey     struct{} // *clientConn
	exchangeKey struct{} // *exchange
)

func (p *Proxy) setUpHTTP() {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	quiet := log.New(io.Discard, "", 0) // it would tell what a command does
	p.server = &http.Server{
		Handler:                      http.HandlerFunc(p.serveHTTP),
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  keepAliveTimeout,
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     quiet,
		BaseContext:                  func(net.Listener) context.Context { return p.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		Protocols: &http1,
	}
	p.transport = &http.Transport{
		DialContext:            p.dialHTTP,
		DisableCompression:     true, // answers pass as they are
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    8,
		MaxConnsPerHost:        maxConns,
		IdleConnTimeout:        time.Minute,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              &http1,
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			d := r.In.Context().Value(exchangeKey{}).(*exchange).decision
			r.Out.URL.Host = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
			r.Out.URL.RawQuery = r.In.URL.RawQuery // not cleaned
			r.Out.Trailer = r.In.Trailer           // filled in at the end of the body
			r.Out.Host = r.Out.URL.Host
			if d.Port == webPorts[0] {
				r.Out.Host = d.Host
			}
		},
		Transport:     p.transport,
		FlushInterval: -1, // who streams wants no waiting
		BufferPool:    &buffers,
		ErrorLog:      quiet,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			r.Context().Value(exchangeKey{}).(*exchange).fail(w, err)
		},
	}
}

func (p *Proxy) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.begin() {
		panic(http.ErrAbortHandler)
	}
	defer p.working.Done()
	if r.Method == http.MethodConnect {
		p.serveConnect(w, r)
		return
	}
	p.serveForward(w, r)
}

// serveConnect opens a tunnel (RFC 9110 section 9.3.6).
func (p *Proxy) serveConnect(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*clientConn)
	d := Decision{Protocol: HTTPConnect}
	d.Host, d.Port, d.Reason = parseAuthority(r.RequestURI, 0)
	switch {
	case d.Reason == 0 && (r.ContentLength != 0 || len(r.TransferEncoding) > 0):
		d.Reason = Malformed // a body here is smuggling: some would take it for the tunnel's
	case d.Reason == 0 || c.turnedAway:
		d.Reason = p.check(c, d.Host, d.Port)
	}
	upstream, err := p.open(&d)
	if err != nil {
		p.refuse(w, r, d, err)
		return
	}
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		upstream.Close()
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		upstream.Close()
		return
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	join(p.ctx, c.Conn, upstream, early)
}

// open connects a request for a tunnel and tells what was decided. d holds what is known
// of it, and with a reason it is refused.
func (p *Proxy) open(d *Decision) (net.Conn, error) {
	defer func() { p.decided(*d) }()
	if d.Reason != 0 {
		return nil, &failure{reason: d.Reason}
	}
	conn, addr, err := p.reach(p.ctx, d.Host, d.Port)
	settle(d, err)
	if err == nil {
		d.Addr = addr
	}
	return conn, err
}

// settle puts down how reaching the host of a decision ended.
func settle(d *Decision, err error) {
	d.Allowed = true
	var f *failure
	switch {
	case err == nil:
	case errors.As(err, &f):
		d.Reason, d.Addr, d.Allowed = f.reason, f.addr, f.reason != PrivateAddress
	default:
		d.Reason = DialFailed
	}
}

// refuse answers a request before anything of its body was read, and ends the connection.
// It writes the answer itself, because many clients show only the status line.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, d Decision, cause error) {
	a := p.explain(d, cause)
	if r.ProtoMajor != 1 {
		a.status = http.StatusHTTPVersionNotSupported
	}
	_, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	c := r.Context().Value(connKey{}).(*clientConn)
	body := a.line + "\n"
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nProxy-Status: %s\r\n\r\n",
		a.status, a.line, len(body), a.proxyStatus())
	if r.Method != http.MethodHead {
		b.WriteString(body)
	}
	io.WriteString(c, b.String())
	linger(c)
}

func (a answer) proxyStatus() string { return "sandbox; error=" + a.token }

// serveForward passes a plain HTTP request on (RFC 9112 section 3.2.2).
func (p *Proxy) serveForward(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*clientConn)
	d := Decision{Protocol: PlainHTTP}
	d.Host, d.Port, d.Reason = forwardTarget(r)
	if d.Reason == 0 || c.turnedAway {
		d.Reason = p.check(c, d.Host, d.Port)
	}
	if d.Reason != 0 {
		p.decided(d)
		p.refuse(w, r, d, nil)
		return
	}
	x := &exchange{proxy: p, decision: d}
	ctx := context.WithValue(r.Context(), exchangeKey{}, x)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: x.got})
	r = r.WithContext(ctx)
	if r.ContentLength != 0 {
		conn := http.NewResponseController(w)
		conn.EnableFullDuplex() // an answer need not wait for the end of the body
		r.Body = &timedBody{ReadCloser: r.Body, conn: conn}
	}
	// A protocol that is not known here would pass unread (h2c is one).
	if upgrade := r.Header.Values("Upgrade"); len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") {
		w = upgradeWriter{w}
	} else {
		r.Header.Del("Upgrade")
	}
	p.reverse.ServeHTTP(w, r)
}

// forwardTarget reads the destination of a plain request from what the client wrote,
// and makes sure that net/http has understood the same. The Host field does not count.
func forwardTarget(r *http.Request) (host string, port uint16, reason Reason) {
	const scheme = "http://"
	uri := r.RequestURI
	if r.ProtoMajor != 1 || len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", 0, Malformed
	}
	authority := uri[len(scheme):]
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	host, port, reason = parseAuthority(authority, webPorts[0])
	if reason == 0 && (r.URL.Host != authority || r.URL.User != nil || r.URL.Opaque != "") {
		return host, port, Malformed
	}
	return host, port, reason
}

// exchange is one plain request on its way.
type exchange struct {
	proxy    *Proxy
	telling  sync.Once
	decision Decision
}

// got is told that the request has a connection, new or used before.
func (x *exchange) got(info httptrace.GotConnInfo) {
	x.telling.Do(func() {
		settle(&x.decision, nil)
		if c, ok := info.Conn.(*idleConn); ok {
			x.decision.Addr = c.addr
		}
		x.proxy.decided(x.decision)
	})
}

// fail answers a request that got no connection or no answer.
func (x *exchange) fail(w http.ResponseWriter, err error) {
	x.telling.Do(func() {
		settle(&x.decision, err)
		x.proxy.decided(x.decision)
	})
	a := x.proxy.explain(x.decision, err)
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Proxy-Status", a.proxyStatus())
	w.WriteHeader(a.status)
	io.WriteString(w, a.line+"\n")
}

// dialHTTP connects for the transport, which asks for HOST:PORT as Rewrite has put it.
func (p *Proxy) dialHTTP(ctx context.Context, _, hostport string) (net.Conn, error) {
	host, port, reason := parseAuthority(hostport, 0)
	if reason == 0 {
		reason = p.rules.verdict(host, port)
	}
	if reason != 0 {
		return nil, &failure{reason: reason}
	}
	// The transport's context has the values of the request, and not its end: another
	// request may take the connection over.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	conn, addr, err := p.reach(ctx, host, port)
	if err != nil {
		return nil, err
	}
	return &idleConn{conn, addr}, nil
}

// idleConn ends when no byte has moved in either direction for idleTimeout.
type idleConn struct {
	net.Conn
	addr netip.AddrPort
}

func (c *idleConn) Read(b []byte) (int, error) {
	c.SetDeadline(time.Now().Add(idleTimeout))
	return c.Conn.Read(b)
}

func (c *idleConn) Write(b []byte) (int, error) {
	c.SetDeadline(time.Now().Add(idleTimeout))
	return c.Conn.Write(b)
}

// timedBody bounds the time that a client may be silent within a body. net/http reads on
// after Close, to be ready for the next request, and would wait without end.
type timedBody struct {
	io.ReadCloser
	conn *http.ResponseController

	mu     sync.Mutex // it may be read and closed at once
	ended  bool
	closed bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	b.conn.SetReadDeadline(time.Now().Add(idleTimeout))
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = true
		b.conn.SetReadDeadline(time.Time{}) // the answer may take longer
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.mu.Lock()
	b.closed = true
	if !b.ended {
		b.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	}
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

// upgradeWriter gives out a connection that ends when it is idle.
type upgradeWriter struct{ http.ResponseWriter }

func (w upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &idleConn{Conn: conn}, buffered, nil
}
