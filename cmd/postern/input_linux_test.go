package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestInputFromAPipeComesWholeAndLeavesThePipeBlocking(t *testing.T) {
	t.Parallel()
	shared, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	fd := int(shared.Fd()) // from here on it is blocking, as what a shell gives
	in, done := pipe(shared)
	defer done()
	if in == io.Reader(shared) {
		t.Skip("this system gives no opening of its own")
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 3*readAhead/16)
	go func() {
		_, _ = w.Write(sent) // what is missing is found below
		w.Close()
	}()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came of %d, error %v", len(got), len(sent), err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("the shared opening has flags %#x, error %v", flags, err)
	}
}

func TestInputThatIsNoPipeIsReadAsItIs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, r := range []io.Reader{file, bytes.NewReader(nil)} {
		in, done := pipe(r)
		done()
		if in != r {
			t.Errorf("a %T is read by a %T", r, in)
		}
	}
}
