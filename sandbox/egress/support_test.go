package egress

import (
	"bufio"
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) { wiretest.RunWithoutLeaks(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// world is a proxy on loopback with its own names.
type world struct {
	proxy *Proxy
	addr  string // of the proxy

	mu        sync.Mutex
	names     map[string][]netip.Addr // all others do not exist
	routes    map[string]string       // address asked for, address really dialled
	lookups   []string
	dials     []string
	decisions []Decision
}

// newWorld starts a proxy in which the names of the rules lead to 127.0.0.1, which is
// permitted. change may alter the options.
func newWorld(t testing.TB, rules string, change ...func(*Options)) *world {
	t.Helper()
	w := &world{names: make(map[string][]netip.Addr), routes: make(map[string]string)}
	r := mustRules(t, rules)
	for _, rule := range r.rules {
		w.names[rule.host] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	}
	o := Options{Rules: r, Permit: loopback, Lookup: w.lookup, Dial: w.dial, Decided: func(d Decision) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.decisions = append(w.decisions, d)
	}}
	for _, f := range change {
		f(&o)
	}
	var err error
	if w.proxy, err = New(o); err != nil {
		t.Fatal(err)
	}
	w.addr = serve(t, w.proxy, nil)
	return w
}

// serve runs the proxy on a listener, loopback if nil, until the test ends.
func serve(t testing.TB, p *Proxy, l net.Listener) string {
	t.Helper()
	if l == nil {
		l = listen(t)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		p.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want nil after Close", err)
		}
	})
	return l.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustRules(t testing.TB, text string) Rules {
	t.Helper()
	r, err := ParseRules(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, host)
	if addrs, ok := w.names[host]; ok {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, addr)
	if to, ok := w.routes[addr]; ok {
		addr = to
	}
	w.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// last returns the newest decision, and the number of all.
func (w *world) last() (Decision, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.decisions) == 0 {
		return Decision{}, 0
	}
	return w.decisions[len(w.decisions)-1], len(w.decisions)
}

func (w *world) wantLast(t *testing.T, want Decision) {
	t.Helper()
	got, _ := w.last()
	if !want.Addr.IsValid() {
		got.Addr = netip.AddrPort{}
	}
	if got != want {
		t.Errorf("decision = %+v, want %+v", got, want)
	}
}

func (w *world) connect(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Minute)) // so that a failure is not a hang
	return c
}

// raw sends text to the proxy as it is, and reads one answer with its body.
func (w *world) raw(t *testing.T, text string) (*http.Response, string) {
	t.Helper()
	c := w.connect(t)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("answer to %.60q: %v", text, err)
	}
	defer resp.Body.Close()
	if method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		return resp, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// client is an HTTP client that goes through the proxy and trusts the server, if any.
func (w *world) client(t testing.TB, server *httptest.Server) *http.Client {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: w.addr}), DisableCompression: true}
	if server != nil && server.TLS != nil {
		transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		pool := x509.NewCertPool()
		pool.AddCert(server.Certificate())
		transport.TLSClientConfig.RootCAs = pool
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func newServer(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func newTLSServer(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return s
}

// port returns that of an address HOST:PORT.
func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func portNumber(t testing.TB, addr string) uint16 {
	t.Helper()
	n, ok := parsePort(port(addr))
	if !ok {
		t.Fatalf("no port in %q", addr)
	}
	return n
}

// echo is a server that sends back what it gets, and passes the end on.
func echo(t testing.TB) string {
	t.Helper()
	l := listen(t)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				io.Copy(c, c)
				c.(*net.TCPConn).CloseWrite()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// waitFor polls a condition that something else is about to make true.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it did not happen")
}
