//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsDelayedArrivesInOrderAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		pieces := make(chan parcel, 10)
		for i := range 10 {
			pieces <- parcel{begun.Add(time.Second + time.Duration(i/2)*time.Millisecond), train{data: []byte{byte(i)}}}
		}
		close(pieces)
		i := 0
		err := handOn(t.Context(), byTimer(t.Context()), pieces, func(got train) error {
			if want := time.Second + time.Duration(i/2)*time.Millisecond; int(got.data[0]) != i || time.Since(begun) != want {
				t.Errorf("%d arrives after %v, want %d after %v", got.data[0], time.Since(begun), i, want)
			}
			i++
			return nil
		})
		if err != nil || i != 10 {
			t.Errorf("%d arrived, error %v", i, err)
		}
	})
}

func TestDeliveryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		pieces := make(chan parcel, 1)
		pieces <- parcel{time.Now().Add(time.Hour), train{}}
		if err := handOn(ctx, byTimer(ctx), pieces, func(train) error { t.Error("it arrived"); return nil }); err == nil {
			t.Error("no error")
		}
	})
}

func TestAlarmIsNotEarlyAndEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a, err := newAlarm(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, wait := range []time.Duration{-time.Second, 0, time.Microsecond, 3 * time.Millisecond, time.Millisecond} {
		due := time.Now().Add(wait)
		if err := a.until(due); err != nil || time.Now().Before(due) {
			t.Errorf("waited for %v: %v early, error %v", wait, time.Until(due), err)
		}
	}
	ended := make(chan error)
	go func() { ended <- a.until(time.Now().Add(time.Hour)) }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("no error when the context ends")
	}
}

// echoUDP sends back what comes, and says from how many sources it came.
func echoUDP(t *testing.T) (address string, sources func() int) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seen, ended := make(map[string]bool), make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			seen[from.String()] = true
			if _, err := c.WriteTo(buf[:n], from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-ended })
	return c.LocalAddr().String(), func() int { c.Close(); <-ended; return len(seen) }
}

func dialUDP(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// exchange sends until the same comes back: datagrams may be lost.
func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	buf := make([]byte, 2048)
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(buf)
	if err != nil || string(buf[:n]) != text {
		t.Fatalf("%q came back as %q, %v", text, buf[:n], err)
	}
}

func TestDatagramsGoThereAndBackNoSoonerThanTheDelay(t *testing.T) {
	target, sources := echoUDP(t)
	const delay = 30 * time.Millisecond
	d, err := newUDPDelay(target, delay)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	one, two := dialUDP(t, d.address()), dialUDP(t, d.address())
	begun := time.Now()
	exchange(t, one, "one")
	if took := time.Since(begun); took < delay {
		t.Errorf("back after %v", took)
	}
	exchange(t, two, "two")
	exchange(t, one, "again")
	if began := d.latest(); began.Before(begun) {
		t.Errorf("the flow that was answered last began %v early", begun.Sub(began))
	}
	if n := sources(); n != 2 {
		t.Errorf("the target sees %d sources, want 2", n)
	}
}

// What the kernel puts together on the way arrives as what was sent, whether it came in one call or in several.
func TestATrainOfDatagramsArrivesAsTheyWere(t *testing.T) {
	target, _ := echoUDP(t)
	d, err := newUDPDelay(target, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	c := dialUDP(t, d.address()).(*net.UDPConn)
	const segment, last = 1000, 300
	want := make([]byte, 9*segment+last)
	for i := range want {
		want[i] = byte(i / segment)
	}
	if err := (train{want, segment}).send(c, netip.AddrPort{}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for n := range 10 {
		buf := make([]byte, 2048)
		size, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if size != segment && n < 9 || size != last && n == 9 {
			t.Errorf("datagram %d has %d bytes", n, size)
		}
		got = append(got, buf[:size]...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the datagrams came back as others")
	}
	if n := d.read.Load(); n != 10 {
		t.Errorf("%d datagrams were counted, want 10", n)
	}
}

func TestNothingPassesAShutForwarder(t *testing.T) {
	target, _ := echoUDP(t)
	d, err := newUDPDelay(target, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	c := dialUDP(t, d.address())
	exchange(t, c, "open")
	d.block(true)
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	if err := await(t.Context(), "the forwarder reads", 20*time.Second, func() bool { return d.read.Load() >= 2 }); err != nil {
		t.Fatal(err)
	}
	d.block(false)
	exchange(t, c, "open again")
}

func echoTCP(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // what is missing the other end sees
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String()
}

func TestBytesOfAConnectionArriveWholeAndItsEndToo(t *testing.T) {
	const delay = 10 * time.Millisecond
	d, err := newTCPDelay(echoTCP(t), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	begun := time.Now()
	c, err := net.Dial("tcp", d.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := make([]byte, 3<<20+17)
	chaos := rand.NewChaCha8([32]byte{1})
	_, _ = chaos.Read(sent) // never fails
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	// One round trip for the handshake, one for the bytes.
	if took := time.Since(begun); took < 2*delay {
		t.Errorf("back after %v", took)
	}
}

func TestAForwarderThatIsClosedEndsItsConnections(t *testing.T) {
	d, err := newTCPDelay(echoTCP(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", d.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	d.close()
	if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
		t.Error("it is still open")
	}
}
