//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/sandbox/egress"
)

// A server that a command asked sends more than its answer: nothing of that is in the executor's log.
func TestWhatAServerSendsUnaskedIsNotLogged(t *testing.T) {
	var said lockedBuffer
	before := stdlog.Writer()
	stdlog.SetOutput(quietUpstream{&said})
	defer stdlog.SetOutput(before)
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		conn, err := upstream.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		for range 50 { // until the proxy has noticed and closed
			if _, err := io.WriteString(conn, "SECRET"); err != nil {
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	}()
	port := upstream.Addr().(*net.TCPAddr).Port
	rules, err := egress.ParseRules(fmt.Sprintf("a.example:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := egress.New(egress.Options{
		Rules: rules, Permit: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = proxy.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET http://a.example:%d/ HTTP/1.1\r\nHost: a.example:%d\r\n\r\n", port, port); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	answer := make([]byte, 4096)
	if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), fmt.Sprint(http.StatusOK)) {
		t.Fatalf("answered %q, %v", answer[:n], err)
	}
	<-sent
	stdlog.Print("something else")
	if text := said.String(); strings.Contains(text, "SECRET") || !strings.Contains(text, "something else") {
		t.Errorf("the log says %q", text)
	}
}
