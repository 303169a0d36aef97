package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func socksRequest(name string, port uint16) []byte {
	b := append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(name))}, name...)
	return append(b, byte(port>>8), byte(port))
}

// socks sends greeting and request at once, and returns the code of the reply.
func socks(t *testing.T, w *world, request []byte) (net.Conn, byte) {
	t.Helper()
	c := w.connect(t)
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	var reply [12]byte
	if _, err := io.ReadFull(c, reply[:]); err != nil {
		t.Fatalf("SOCKS %q: %v", request, err)
	}
	if !bytes.Equal(reply[:3], []byte{5, 0, 5}) || !bytes.Equal(reply[4:], []byte{0, 1, 0, 0, 0, 0, 0, 0}) {
		t.Fatalf("SOCKS %q: reply %v", request, reply)
	}
	return c, reply[3]
}

func socksConnectTo(t *testing.T, w *world, name string, port uint16) byte {
	t.Helper()
	c, code := socks(t, w, socksRequest(name, port))
	c.Close()
	return code
}

func TestSOCKSReachesAllowedNamesOnly(t *testing.T) {
	server := echo(t)
	n := portNumber(t, server)
	w := newWorld(t, "a.example:"+port(server))
	c, code := socks(t, w, append(socksRequest("A.Example.", n), "early"...))
	if code != socksGranted {
		t.Fatalf("code = %d", code)
	}
	w.wantLast(t, Decision{SOCKS5, "a.example", n, true, 0, addrPort(server)})
	io.WriteString(c, " and late")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "early and late" || err != nil {
		t.Errorf("echo = %q, %v", got, err)
	}
	for _, tt := range []struct {
		request []byte
		code    byte
		want    Decision
	}{
		{socksRequest("b.example", n), 2, Decision{Host: "b.example", Port: n, Reason: NoRule}},
		{socksRequest("a.example", 1), 2, Decision{Host: "a.example", Port: 1, Reason: PortNotAllowed}},
		{socksRequest("a.example", 0), 1, Decision{Host: "a.example", Reason: Malformed}},
		{socksRequest("", n), 2, Decision{Port: n, Reason: NotAName}},
		{socksRequest("127.0.0.1", n), 2, Decision{Host: "127.0.0.1", Port: n, Reason: NotAName}},
		{socksRequest("a.example\x00", n), 2, Decision{Port: n, Reason: NotAName}},
		{socksRequest(strings.Repeat("a", 255), n), 2, Decision{Port: n, Reason: NotAName}},
		{[]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80}, 2, Decision{Host: "127.0.0.1", Port: 80, Reason: NotAName}},
		{append([]byte{5, 1, 0, 5, 1, 0, 4, 15: 0}, 0, 0, 0, 0, 0, 0, 1, 0, 80), 2, Decision{Host: "::1", Port: 80, Reason: NotAName}},
		{[]byte{5, 1, 0, 5, 2, 0, 3, 1, 'a', 0, 80}, 7, Decision{Host: "a", Port: 80, Reason: Malformed}},    // BIND
		{[]byte{5, 2, 1, 0, 5, 3, 0, 3, 1, 'a', 0, 80}, 7, Decision{Host: "a", Port: 80, Reason: Malformed}}, // UDP
		{[]byte{5, 1, 0, 5, 1, 0, 9}, 8, Decision{Reason: Malformed}},                                        // no such type of address
	} {
		c, code := socks(t, w, tt.request)
		if code != tt.code {
			t.Errorf("%q: code %d, want %d", tt.request, code, tt.code)
		}
		if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
			t.Errorf("%q: after the reply %q, %v", tt.request, rest, err)
		}
		tt.want.Protocol = SOCKS5
		w.wantLast(t, tt.want)
	}
}

func TestSOCKSToldWhyTheHostIsNotReached(t *testing.T) {
	w := newWorld(t, "refused.example,nowhere.example,private.example,broken.example", func(o *Options) {
		o.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
			if addr == "127.0.0.2:80" {
				return nil, errors.New("broken")
			}
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
	})
	delete(w.names, "nowhere.example")
	w.names["private.example"] = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	w.names["broken.example"] = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	for name, want := range map[string]byte{
		"refused.example": socksRefused, "nowhere.example": socksHostUnreachable,
		"private.example": socksNotAllowed, "broken.example": socksHostUnreachable,
	} {
		if code := socksConnectTo(t, w, name, 80); code != want {
			t.Errorf("%s: %d, want %d", name, code, want)
		}
	}
}

func TestOtherSOCKSIsAnsweredAndClosed(t *testing.T) {
	w := newWorld(t, "a.example")
	for request, want := range map[string]string{
		"\x05\x01\x02":     "\x05\xff", // only with a password
		"\x05\x00":         "\x05\xff",
		"\x04\x01\x00\x50": "\x00\x5b\x00\x00\x00\x00\x00\x00",
		"\x05\x01\x00\x04": "\x05\x00", // then another version
	} {
		c := w.connect(t)
		io.WriteString(c, request)
		c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); string(got) != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", request, got, err, want)
		}
	}
}

func TestSOCKSCutAtAnyByteOpensNothing(t *testing.T) {
	w := newWorld(t, "a.example")
	request := socksRequest("a.example", 80)
	for n := range request {
		c := w.connect(t)
		c.Write(request[:n])
		c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); len(got) > 2 || err != nil {
			t.Errorf("after %d bytes: %q, %v", n, got, err)
		}
	}
	if _, n := w.last(); n != 0 || len(w.lookups) > 0 {
		t.Errorf("%d decisions, looked up %q", n, w.lookups)
	}
}

func FuzzSOCKS(f *testing.F) {
	f.Add(socksRequest("a.example", 443)[1:])
	f.Add([]byte{1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80})
	f.Add([]byte{1, 0, 5, 1, 0, 4, 21: 1})
	f.Add([]byte{255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		if ok, err := readSOCKSGreeting(r); !ok || err != nil {
			return
		}
		d, code, err := readSOCKSRequest(r)
		if err != nil {
			return
		}
		if read := len(b) - r.Len(); read > 520 {
			t.Fatalf("%d bytes read", read)
		}
		if d.Allowed || d.Protocol != SOCKS5 || (code != 0 && d.Reason != Malformed) {
			t.Fatalf("%+v, code %d", d, code)
		}
		if d.Reason == 0 {
			if name, ok := canonicalHost(d.Host); !ok || name != d.Host || d.Port == 0 {
				t.Fatalf("%+v passes", d)
			}
		}
	})
}
