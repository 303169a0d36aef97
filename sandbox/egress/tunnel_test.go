package egress

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// open makes a tunnel to the server through the proxy, which allows a.example at its port.
func openTunnel(t testing.TB, w *world, server string) *net.TCPConn {
	t.Helper()
	c := w.connect(t)
	fmt.Fprintf(c, "CONNECT a.example:%s HTTP/1.1\r\n\r\n", port(server))
	want := "HTTP/1.1 200 Connection established\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("CONNECT: %q, %v", got, err)
	}
	return c.(*net.TCPConn)
}

func TestHalfCloseIsPassedOn(t *testing.T) {
	server := echo(t)
	w := newWorld(t, "a.example:"+port(server))
	c := openTunnel(t, w, server)
	sent := make([]byte, 3<<20+17)
	rand.Read(sent)
	go func() {
		c.Write(sent)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c) // ends only if the server saw the end, and the end came back
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes back of %d, %v", len(got), len(sent), err)
	}
}

func TestBytesSentWithTheRequestReachTheHost(t *testing.T) {
	server := echo(t)
	w := newWorld(t, "a.example:"+port(server))
	c := w.connect(t)
	fmt.Fprintf(c, "CONNECT a.example:%s HTTP/1.1\r\n\r\nearly", port(server))
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "HTTP/1.1 200 Connection established\r\n\r\nearly" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestResetIsNoCleanEnd(t *testing.T) {
	l := listen(t)
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c.(*net.TCPConn)
		}
	}()
	w := newWorld(t, "a.example:"+port(l.Addr().String()))
	c := openTunnel(t, w, l.Addr().String())
	s := <-accepted
	s.SetLinger(0)
	s.Close()
	if n, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("Read = %d, %v, want a reset", n, err)
	}
}

func TestCloseEndsEverythingAndLeavesNothingBehind(t *testing.T) {
	server := echo(t)
	w := newWorld(t, "a.example:"+port(server))
	tunnel := openTunnel(t, w, server)
	socksTunnel, code := socks(t, w, socksRequest("a.example", portNumber(t, server)))
	if code != 0 {
		t.Fatal(code)
	}
	silent, half := w.connect(t), w.connect(t)
	io.WriteString(half, "GET http://a.exa")
	hanging := w.connect(t)
	fmt.Fprintf(hanging, "POST http://a.example:%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", port(server))
	if err := w.proxy.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	for i, c := range []net.Conn{tunnel, socksTunnel, silent, half, hanging} {
		if _, err := io.Copy(io.Discard, c); errIsTimeout(err) {
			t.Errorf("connection %d is open after Close", i)
		}
		c.Close()
	}
	if _, err := net.Dial("tcp", w.addr); err == nil {
		t.Error("the listener is open after Close")
	}
	if err := w.proxy.Serve(listen(t)); err != nil {
		t.Errorf("Serve after Close = %v", err)
	}
	w.proxy.Close() // twice is allowed
	if len(w.proxy.conns) != 0 || w.proxy.admitted != 0 {
		t.Errorf("%d connections are left", len(w.proxy.conns))
	}
}

func errIsTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

func TestServeReturnsTheErrorOfItsListener(t *testing.T) {
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l := listen(t)
	l.Close()
	if err := p.Serve(l); err == nil {
		t.Error("Serve on a closed listener = nil")
	}
}

func TestTooManyConnectionsAreToldSo(t *testing.T) {
	server := echo(t)
	w := newWorld(t, "a.example:"+port(server))
	var conns []net.Conn
	for range maxConns {
		conns = append(conns, openTunnel(t, w, server))
	}
	resp, body := w.raw(t, "CONNECT a.example:"+port(server)+" HTTP/1.1\r\n\r\n")
	if resp.StatusCode != 503 || body != "sandbox proxy: too many connections at once: close some and try again\n" {
		t.Errorf("%s %q", resp.Status, body)
	}
	w.wantLast(t, Decision{Protocol: HTTPConnect, Host: "a.example", Port: portNumber(t, server), Reason: TooMany})
	if resp, _ := w.raw(t, "GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 503 {
		t.Error(resp.Status)
	}
	if code := socksConnectTo(t, w, "a.example", portNumber(t, server)); code != socksFailure {
		t.Errorf("SOCKS: %d", code)
	}
	// One that says nothing takes a place among those turned away, and no more.
	turnedAway := func(want int) {
		t.Helper()
		waitFor(t, func() bool {
			w.proxy.mu.Lock()
			defer w.proxy.mu.Unlock()
			return len(w.proxy.conns)-w.proxy.admitted == want
		})
	}
	turnedAway(0) // those above linger
	for range maxTurnedAway {
		w.connect(t)
	}
	turnedAway(maxTurnedAway)
	c := w.connect(t)
	io.WriteString(c, "CONNECT a.example:443 HTTP/1.1\r\n\r\n")
	if got, _ := io.ReadAll(c); len(got) > 0 {
		t.Errorf("beyond all: %q", got)
	}
	// A place that gets free can be taken.
	conns[0].Close()
	waitFor(t, func() bool {
		w.proxy.mu.Lock()
		defer w.proxy.mu.Unlock()
		return w.proxy.admitted < maxConns
	})
}

func TestManyTunnelsAtOnceKeepTheirBytesApart(t *testing.T) {
	server := echo(t)
	w := newWorld(t, "a.example:"+port(server))
	var running sync.WaitGroup
	for i := range 50 {
		c := openTunnel(t, w, server)
		running.Go(func() {
			sent := bytes.Repeat([]byte{byte(i)}, 100<<10)
			go func() {
				c.Write(sent)
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("tunnel %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	running.Wait()
}
