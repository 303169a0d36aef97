package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

func TestOnePrivateAddressAmongPublicOnesRefusesTheName(t *testing.T) {
	for _, private := range []string{
		"10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "0.0.0.0", "::1", "::ffff:10.0.0.1",
		"::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "fe80::1%eth0", "2002:a00:1::", "198.51.100.7",
	} {
		w := newWorld(t, "a.example", func(o *Options) { o.Permit = nil })
		w.names["a.example"] = addrs("8.8.8.8", private, "2606:4700:4700::1111")
		resp, body := w.raw(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n")
		if resp.StatusCode != 403 || !strings.HasPrefix(body, "blocked by the sandbox policy: a.example:443 leads to a private") ||
			resp.Header.Get("Proxy-Status") != "sandbox; error=destination_ip_prohibited" || strings.Contains(body, private) {
			t.Errorf("CONNECT with %s: %s %q", private, resp.Status, body)
		}
		w.wantLast(t, Decision{HTTPConnect, "a.example", 443, false, PrivateAddress, netip.AddrPortFrom(addrs(private)[0].Unmap(), 443)})
		if resp, body := w.raw(t, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"); resp.StatusCode != 403 || !strings.HasPrefix(body, "blocked by the sandbox policy") {
			t.Errorf("GET with %s: %s %q", private, resp.Status, body)
		}
		w.wantLast(t, Decision{PlainHTTP, "a.example", 80, false, PrivateAddress, netip.AddrPortFrom(addrs(private)[0].Unmap(), 80)})
		if code := socksConnectTo(t, w, "a.example", 443); code != socksNotAllowed {
			t.Errorf("SOCKS with %s: %d", private, code)
		}
		if len(w.dials) > 0 {
			t.Errorf("with %s: dialled %q", private, w.dials)
		}
	}
}

// A name server that gives a public address for the check and a private one afterwards
// gains nothing: there is no afterwards.
func TestNameIsResolvedOnceAndTheCheckedAddressDialled(t *testing.T) {
	server := echo(t)
	for _, request := range []string{"CONNECT a.example:443 HTTP/1.1\r\n\r\n", "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"} {
		var mu sync.Mutex
		lookups := 0
		w := newWorld(t, "a.example", func(o *Options) {
			o.Permit = nil
			o.Lookup = func(context.Context, string) ([]netip.Addr, error) {
				mu.Lock()
				defer mu.Unlock()
				if lookups++; lookups == 1 {
					return addrs("8.8.8.8"), nil
				}
				return addrs("169.254.169.254"), nil
			}
			dial := o.Dial
			o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr != "8.8.8.8:443" && addr != "8.8.8.8:80" {
					t.Errorf("dialled %s", addr)
				}
				return dial(ctx, network, addr)
			}
		})
		w.routes["8.8.8.8:443"], w.routes["8.8.8.8:80"] = server, server
		w.raw(t, request+"\r\n")
		if lookups != 1 || len(w.dials) != 1 {
			t.Errorf("%q: %d lookups, dialled %q", request, lookups, w.dials)
		}
		w.raw(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n") // the next request sees the second answer
		w.wantLast(t, Decision{HTTPConnect, "a.example", 443, false, PrivateAddress, addrPort("169.254.169.254:443")})
		if len(w.dials) != 1 {
			t.Errorf("dialled %q", w.dials)
		}
	}
}

func TestAddressesAreTriedUntilOneAnswers(t *testing.T) {
	server := echo(t)
	w := newWorld(t, "a.example")
	dead := listen(t)
	dead.Close()
	w.names["a.example"] = addrs("127.0.0.9", "127.0.0.9", "127.0.0.8", "::1")
	w.routes["127.0.0.9:443"], w.routes["127.0.0.8:443"] = dead.Addr().String(), server
	w.routes["[::1]:443"] = dead.Addr().String()
	if resp, _ := w.raw(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	w.wantLast(t, Decision{HTTPConnect, "a.example", 443, true, 0, addrPort("127.0.0.8:443")})
}

func TestAddressesAreTriedInTurnsOfTheirFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		var dials []string // one at a time: each fails before the next begins
		p, err := New(Options{Permit: loopback, Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
			if dials = append(dials, addr); len(dials) < 3 {
				return nil, syscall.ECONNREFUSED
			}
			return client, nil
		}, Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return addrs("127.0.0.9", "127.0.0.9", "127.0.0.8", "::1"), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if c, _, err := p.reach(t.Context(), "a.example", 443); err != nil || c != client {
			t.Errorf("reached %v, %v", c, err)
		}
		if want := []string{"127.0.0.9:443", "[::1]:443", "127.0.0.8:443"}; !slices.Equal(dials, want) {
			t.Errorf("dialled %q, want %q", dials, want)
		}
	})
}

func TestSilentAddressDelaysTheNextOneOnlyALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		ended := make(chan error, 1)
		late := make(chan struct{})
		p, err := New(Options{Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			switch addr {
			case "8.8.8.8:443": // never answers
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			case "8.8.4.4:443": // answers although it has lost
				<-ctx.Done()
				a, b := net.Pipe()
				b.Close()
				go func() {
					defer close(late)
					if _, err := b.Read(make([]byte, 1)); err == nil {
						t.Error("a connection that lost is open")
					}
				}()
				return a, nil
			}
			return client, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		conn, addr, err := p.dialAny(t.Context(), addrs("8.8.8.8", "8.8.4.4", "1.1.1.1"), 443)
		if conn != client || addr != addrPort("1.1.1.1:443") || err != nil {
			t.Errorf("%v, %v", addr, err)
		}
		if got := time.Since(start); got != 2*attemptDelay {
			t.Errorf("it took %v, want %v", got, 2*attemptDelay)
		}
		<-ended
		<-late
	})
}

func TestLookupAndDialAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context) error { <-ctx.Done(); return errors.New("in its own words") }
		p, err := New(Options{
			Rules: mustRules(t, "a.example"),
			Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
				return nil, silent(ctx)
			},
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, os.ErrDeadlineExceeded
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, _, err = p.reach(t.Context(), "a.example", 443)
		var f *failure
		if !errors.As(err, &f) || f.reason != NotResolved || !f.timeout() || time.Since(start) != lookupTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if a := p.explain(Decision{Reason: NotResolved}, err); a.status != 504 || a.token != "dns_timeout" {
			t.Errorf("%+v", a)
		}
		many := addrs("8.8.8.8")
		for len(many) < 100 {
			many = append(many, many[len(many)-1].Next())
		}
		start = time.Now()
		_, _, err = p.dialAny(t.Context(), many, 443)
		if time.Since(start) != dialTimeout {
			t.Errorf("dialling took %v, want %v", time.Since(start), dialTimeout)
		}
		if a := p.explain(Decision{Reason: DialFailed}, err); a.status != 504 || a.token != "connection_timeout" {
			t.Errorf("%+v", a)
		}
	})
}

func TestAnswerWithoutAddressesDoesNotResolve(t *testing.T) {
	w := newWorld(t, "a.example")
	w.names["a.example"] = nil
	if resp, _ := w.raw(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"); resp.StatusCode != 502 {
		t.Error(resp.Status)
	}
	w.wantLast(t, Decision{Protocol: HTTPConnect, Host: "a.example", Port: 443, Allowed: true, Reason: NotResolved})
}

// The parts that production uses are the default.
func TestSystemResolverAndDialerAreTheDefault(t *testing.T) {
	server := echo(t)
	p, err := New(Options{Rules: mustRules(t, "localhost:"+port(server)), Permit: loopback})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{proxy: p, addr: serve(t, p, nil)}
	if _, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "localhost"); err != nil {
		t.Skipf("this machine does not know localhost: %v", err)
	}
	if code := socksConnectTo(t, w, "localhost", portNumber(t, server)); code != socksGranted {
		t.Errorf("code %d", code)
	}
	p2, err := New(Options{Rules: mustRules(t, "localhost:"+port(server))})
	if err != nil {
		t.Fatal(err)
	}
	w = &world{proxy: p2, addr: serve(t, p2, nil)}
	if code := socksConnectTo(t, w, "localhost", portNumber(t, server)); code != socksNotAllowed {
		t.Errorf("without permission: code %d", code)
	}
}
