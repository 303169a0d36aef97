//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// floodMemory is by how much the memory that a relay uses may grow in this flood, whose 500 circuits send 64 MiB that nobody reads:
// twice that and the handshakes in flight, of which there are 256 at most, with the garbage that the collector lets be.
const floodMemory = 320 << 20

// flood is an attack on a relay by many at a time.
type flood struct {
	t     *testing.T
	r     *loadRelay
	to    *net.UDPAddr
	tried atomic.Int64
}

// from is a socket with an address of its own in 127.0.0.0/8.
func (f *flood) from(n int) *net.UDPConn {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n)|1)})
	if err != nil {
		f.t.Error(err)
		return nil
	}
	return socket
}

// forged sends first packets of connections, in each of which everything behind the header is noise.
func (f *flood) forged(packets int) {
	for n := range packets {
		const size, id = 1200, 8
		b := make([]byte, size)
		_, _ = rand.Read(b) // never fails
		b[0] = 0xc3         // Initial, packet number of 4 bytes
		binary.BigEndian.PutUint32(b[1:], 1)
		b[5], b[6+id], b[7+2*id] = id, id, 0 // two connection ids, no token
		binary.BigEndian.PutUint16(b[8+2*id:], 0x4000|uint16(size-8-2*id-2))
		if socket := f.from(n); socket != nil {
			_, _ = socket.WriteTo(b, f.to) // a full queue is the kernel's business
			_ = socket.Close()
			f.tried.Add(1)
		}
	}
}

// halfDone begins handshakes and leaves them where they are, a hundred at a time, until ctx ends.
func (f *flood) halfDone(ctx context.Context, handshakes int) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, 100)
	for n := range handshakes {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			socket := f.from(n)
			if socket == nil {
				return
			}
			defer socket.Close()
			f.tried.Add(1)
			dialling, cancel := context.WithTimeout(ctx, wire.HopTimeout)
			defer cancel()
			c, err := quicconn.DialPacket(dialling, socket, f.to, quicconn.Options{Role: wire.RoleExecutor})
			if err != nil {
				return // refused: that is what the limits are for
			}
			defer c.Close(wire.CodeShutdown, "")
			if s, err := c.OpenStream(dialling); err == nil {
				_, _ = s.Write([]byte{wire.Version, 4}) // and no more
			}
			select {
			case <-c.Context().Done(): // the relay has had enough
			case <-time.After(time.Second):
			}
		})
	}
}

// stalled opens streams on which a header does not end, and circuits that nobody reads.
func (f *flood) stalled(ctx context.Context, client *loadClient, executor keys.PublicKey, streams int) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := range streams {
		all.Go(func() {
			f.tried.Add(1)
			if n%2 == 0 {
				if s, err := client.hop.Transport.OpenStream(ctx); err == nil {
					_, _ = s.Write([]byte{0, 40, 0xa2})
					_, _ = io.Copy(io.Discard, s) // until the relay ends it
				}
				return
			}
			if s, err := client.dial(ctx, executor); err == nil {
				_ = s.SetWriteDeadline(time.Now().Add(5 * time.Second))
				_, _ = s.Write(make([]byte, 128<<10))
				<-ctx.Done()
				s.Reset(wire.CodeCancelled)
			}
		})
	}
}

// oversized says too much in the first frame of a stream, on one connection after the other.
func (f *flood) oversized(ctx context.Context, key *keys.PrivateKey) {
	for ctx.Err() == nil {
		client, err := newLoadPeer(key, f.r.url).client(ctx)
		if err != nil {
			continue
		}
		if s, err := client.hop.Transport.OpenStream(ctx); err == nil {
			_, _ = s.Write(append([]byte{0xff, 0xff}, make([]byte, 64<<10)...))
			f.tried.Add(1)
			_, _ = io.Copy(io.Discard, s)
		}
		if ctx.Err() == nil {
			<-client.hop.Transport.Context().Done() // the relay ends it
		}
		client.close()
	}
}

func TestFloodCostsLittleAndKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	r := startLoadRelay(t, "", "--log-level", "warn")
	valid, busy, hostile := newLoadKey(t, keys.Client), newLoadKey(t, keys.Client), newLoadKey(t, keys.Client)
	echo, deaf := newLoadKey(t, keys.Executor), newLoadKey(t, keys.Executor)
	r.admit("tenant acme", fmt.Sprintf("client %v valid", valid.Public()), fmt.Sprintf("exec %v echo", echo.Public()),
		"tenant evil", fmt.Sprintf("client %v busy", busy.Public()), fmt.Sprintf("client %v hostile", hostile.Public()), fmt.Sprintf("exec %v deaf", deaf.Public()))
	f := &flood{t: t, r: r, to: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(r.address))}
	ctx, cancel := context.WithCancel(t.Context())
	var peers sync.WaitGroup
	defer peers.Wait()
	defer cancel()
	silent := newLoadPeer(deaf, r.url)
	silent.serve = func(wire.Stream) { <-ctx.Done() }
	peers.Go(func() { _ = newLoadPeer(echo, r.url).stay(ctx) })
	peers.Go(func() { _ = silent.stay(ctx) })
	r.registered(2, false, patience)
	staller, err := newLoadPeer(busy, r.url).client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.collect()
	before, resident := memoryOf(r), r.rss()

	flooding, stop := context.WithCancel(ctx)
	var attack, rest sync.WaitGroup
	attack.Go(func() { f.forged(10_000) })
	attack.Go(func() { f.halfDone(flooding, 1000) })
	rest.Go(func() { f.stalled(flooding, staller, deaf.Public(), 1000) })
	rest.Go(func() { f.oversized(flooding, hostile) })
	over := make(chan struct{})
	go func() {
		attack.Wait()
		close(over)
	}()
	var most float64
	var slowest time.Duration
	mostResident, served, attempts := 0, 0, 0
	for going := true; going; {
		begun := time.Now()
		for tries := 1; ; tries++ { // those who try again get in
			err := f.visit(ctx, valid, echo.Public())
			if attempts++; err == nil {
				break
			}
			if tries == 30 {
				t.Fatalf("a valid client does not get in: %v", err)
			}
		}
		served++
		slowest = max(slowest, time.Since(begun))
		most, mostResident = max(most, memoryOf(r)), max(mostResident, r.rss())
		select {
		case <-over:
			going = false
		default:
		}
	}
	limits := r.series()
	stop()
	rest.Wait()
	staller.close()
	t.Logf("%d attempts of the flood; %d valid clients in %d attempts, the slowest took %v; memory %.0f MiB more, resident %.0f MiB more than %.0f",
		f.tried.Load(), served, attempts, slowest.Round(time.Millisecond), (most-before)/(1<<20), float64(mostResident-resident)/(1<<20), float64(resident)/(1<<20))
	for series, n := range limits {
		if n > 0 && (strings.Contains(series, "limited_total") || series == "postern_relay_buffer_bytes") {
			t.Logf("%s %.0f", series, n)
		}
	}
	if grown := most - before; grown > floodMemory {
		t.Errorf("%.0f MiB more are used, want at most %d", grown/(1<<20), floodMemory>>20)
	}
	if served < 3 {
		t.Errorf("%d valid clients while the flood lasted: this shows little", served)
	}
}

// visit connects, has one message echoed, and leaves.
func (f *flood) visit(ctx context.Context, key *keys.PrivateKey, executor keys.PublicKey) error {
	c, err := newLoadPeer(key, f.r.url).client(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	s, err := c.dial(ctx, executor)
	if err == nil {
		_, err = roundTrip(s, 64)
		s.Reset(wire.CodeCancelled)
	}
	return err
}

// memoryOf is the heap and the stacks in use, garbage included.
func memoryOf(r *loadRelay) float64 {
	s := r.series()
	return s["go_memstats_heap_inuse_bytes"] + s["go_memstats_stack_inuse_bytes"]
}
