package egress

import (
	"errors"
	"net"
	"os"
	"testing"
)

func TestFileListenerIsACopyOfASocketAndKnowsAClosedOne(t *testing.T) {
	own := listen(t)
	f, err := own.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	l, err := FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f.Close()
	if _, err := FileListener(f); !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed file: %v, want %v", err, os.ErrClosed)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if l, err := FileListener(null); err == nil || errors.Is(err, os.ErrClosed) {
		t.Errorf("of what is no socket: %v, %v", l, err)
	}
}
