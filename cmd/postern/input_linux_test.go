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

func TestPipeGetsMoreRoomAndNeverLess(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	size := func() (n int) {
		onDescriptor(r, func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const large = 2 * readAhead
	before := size()
	widen(r)
	if n := size(); n < before || n != before && n != readAhead {
		t.Errorf("room for %d bytes, %d before", n, before)
	}
	onDescriptor(r, func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, large) })
	if err != nil {
		t.Skipf("no larger pipe to be had: %v", err)
	}
	if widen(r); size() != large {
		t.Errorf("a pipe with room for %d bytes has %d now", large, size())
	}
}

func TestInputThatCannotBeReadIsNotMadeReadable(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	in, done := pipe(w)
	defer done()
	if in != io.Reader(w) {
		t.Error("the end that is written to is read")
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
