package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener and a dialer of connections in memory, so that time can be false.
type pipes struct {
	conns  chan net.Conn
	done   chan struct{}
	ending sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.ending.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// memoryProxy is a proxy in a bubble for which all names are at 127.0.0.1, and whose connections to there are connect's. dial
// connects to the proxy.
func memoryProxy(t *testing.T, rules string, connect func() net.Conn, decided func(Decision)) (p *Proxy, dial func() net.Conn) {
	t.Helper()
	p, err := New(Options{
		Rules: mustRules(t, rules), Permit: loopback, Decided: decided,
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return addrs("127.0.0.1"), nil },
		Dial:   func(context.Context, string, string) (net.Conn, error) { return connect(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	serve(t, p, l)
	return p, func() net.Conn {
		near, far := net.Pipe()
		l.conns <- far
		t.Cleanup(func() { near.Close() })
		return near
	}
}

// inMemory runs f in a bubble with a proxy that allows a.example. dial connects to the
// proxy; what the proxy dials arrives in hosts.
func inMemory(t *testing.T, f func(t *testing.T, dial func() net.Conn, hosts chan net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		hosts := make(chan net.Conn, 1)
		p, dial := memoryProxy(t, "a.example", func() net.Conn {
			near, far := net.Pipe()
			hosts <- far
			return near
		}, nil)
		f(t, dial, hosts)
		p.Close()
	})
}

// served runs f in a bubble with a proxy before an HTTP server, all in memory: net/http opens a connection more when the machine is
// held up between two requests, and here nothing is. seen are the decisions, and dials the number of connections to the server.
func served(t *testing.T, rules string, h http.HandlerFunc, f func(t *testing.T, dial func() net.Conn, seen *[]Decision, dials *int)) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen, dials := new([]Decision), new(int)
		hosts := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		var serving sync.WaitGroup
		server := &http.Server{Handler: h}
		serving.Go(func() { server.Serve(hosts) })
		p, dial := memoryProxy(t, rules, func() net.Conn {
			near, far := net.Pipe()
			hosts.conns <- far
			mu.Lock()
			defer mu.Unlock()
			*dials++
			return near
		}, func(d Decision) {
			mu.Lock()
			defer mu.Unlock()
			*seen = append(*seen, d)
		})
		f(t, dial, seen, dials)
		p.Close()
		server.Close()
		serving.Wait()
	})
}

// ends waits until the proxy closes a connection, and returns how long that took.
func ends(c net.Conn) time.Duration {
	start := time.Now()
	io.Copy(io.Discard, c)
	return time.Since(start)
}

func TestSlowHeadsAreBounded(t *testing.T) {
	for name, start := range map[string]string{
		"silent": "", "half a request": "GET http://a.example/ HT", "half a head": "CONNECT a.example:443 HTTP/1.1\r\nX: ",
		"SOCKS greeting": "\x05", "SOCKS methods": "\x05\x03\x01", "SOCKS request": "\x05\x01\x00\x05\x01\x00\x03\x10abc",
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, dial func() net.Conn, _ chan net.Conn) {
				c := dial()
				go io.WriteString(c, start)
				if took := ends(c); took > headerTimeout+lingerTimeout {
					t.Errorf("it was ended after %v", took)
				}
			})
		})
	}
}

// A byte now and then does not prolong the time for a head.
func TestSlowlorisIsBounded(t *testing.T) {
	for name, first := range map[string]string{"HTTP": "GET http://a.example/ HTTP/1.1\r\nX: ", "SOCKS": "\x05\xff"} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, dial func() net.Conn, _ chan net.Conn) {
				c := dial()
				var writing sync.WaitGroup
				defer writing.Wait()
				writing.Go(func() {
					_, err := io.WriteString(c, first)
					for err == nil {
						time.Sleep(time.Second) // false time
						_, err = c.Write([]byte{'x'})
					}
				})
				if took := ends(c); took > headerTimeout+time.Second {
					t.Errorf("it was ended after %v", took)
				}
			})
		})
	}
}

func tunnelInMemory(t *testing.T, dial func() net.Conn, hosts chan net.Conn) (client, host net.Conn) {
	t.Helper()
	client = dial()
	io.WriteString(client, "CONNECT a.example:443 HTTP/1.1\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(client), &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	return client, <-hosts
}

func TestIdleTunnelEndsAndQuietOneDoesNot(t *testing.T) {
	inMemory(t, func(t *testing.T, dial func() net.Conn, hosts chan net.Conn) {
		client, host := tunnelInMemory(t, dial, hosts)
		defer host.Close()
		b := make([]byte, 1)
		for range 10 { // only the host speaks, and seldom
			time.Sleep(idleTimeout - time.Second)
			go host.Write([]byte("x"))
			if _, err := io.ReadFull(client, b); err != nil {
				t.Fatal(err)
			}
		}
		if took := ends(client); took != idleTimeout {
			t.Errorf("an idle tunnel ended after %v, want %v", took, idleTimeout)
		}
	})
}

func TestPeerThatDoesNotReadIsBounded(t *testing.T) {
	inMemory(t, func(t *testing.T, dial func() net.Conn, hosts chan net.Conn) {
		_, host := tunnelInMemory(t, dial, hosts)
		start := time.Now()
		_, err := host.Write(make([]byte, 10*bufferSize)) // the client reads nothing of it
		if took := time.Since(start); err == nil || took > 2*idleTimeout {
			t.Errorf("Write = %v after %v", err, took)
		}
		host.Close()
	})
}

func TestSilentHTTPHostAndBodyAreBounded(t *testing.T) {
	for name, request := range map[string]string{
		"host": "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"body": "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100\r\n\r\nhalf of it",
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, dial func() net.Conn, hosts chan net.Conn) {
				c := dial()
				go io.WriteString(c, request)
				start := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode != 504 && resp.StatusCode != 502 {
					t.Errorf("%v, %v", resp, err)
				}
				if took := time.Since(start); took > idleTimeout+time.Minute {
					t.Errorf("it took %v", took)
				}
				(<-hosts).Close()
			})
		})
	}
}

func TestIdleKeptConnectionIsClosed(t *testing.T) {
	inMemory(t, func(t *testing.T, dial func() net.Conn, hosts chan net.Conn) {
		c := dial()
		go io.WriteString(c, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
		host := <-hosts
		if _, err := http.ReadRequest(bufio.NewReader(host)); err != nil {
			t.Fatal(err)
		}
		go io.WriteString(host, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if took := ends(c); took != keepAliveTimeout {
			t.Errorf("it was closed after %v, want %v", took, keepAliveTimeout)
		}
		host.Close()
	})
}
