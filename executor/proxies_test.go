//go:build linux

package executor

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/sandbox/egress"
)

// The command runs already when its proxy begins to serve, and asks at once: what is refused then is on record too.
func TestFirstRefusalIsOnRecord(t *testing.T) {
	rules, err := egress.ParseRules("a.example")
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		socket, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		var p proxies
		record, leave, err := p.use(socket, Network{Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if kept, _ := record.Refused(); len(kept) != 1 || kept[0].Host != "b.example" {
			t.Fatalf("on record is %+v, want the one refusal", kept)
		}
		leave()
		c.Close()
		if err := endAccepting(socket); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// endAccepting ends a listener as the sandbox does, whoever has a copy of it.
func endAccepting(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return errors.Join(err, failed, f.Close())
}
