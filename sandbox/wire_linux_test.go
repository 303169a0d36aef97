package sandbox

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLastWordsOfAnInitAreReadThoughItDidNotListen(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	if err := sendMessage(pair[0], 0, msgRun, []byte("never read")); err != nil {
		t.Fatal(err)
	}
	if err := sendMessage(pair[1], 0, msgError, []byte("why")); err != nil {
		t.Fatal(err)
	}
	unix.Close(pair[1])
	if kind, body, _, err := recvMessage(pair[0], 0); kind != msgError || string(body) != "why" || err != nil {
		t.Errorf("%c %q, %v; want the last words", kind, body, err)
	}
	if _, _, _, err := recvMessage(pair[0], 0); err != io.EOF {
		t.Errorf("then %v, want the end", err)
	}
}
