package noiseconn

import (
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// Measured with
//
//	go test -run '^$' -bench . -benchtime 0.5s ./wire/noiseconn
//
// on two shared Xeon cores under other load (trust the ratios):
//
//	Record32KiB/Seal          14 us   2.3 GB/s    16 B    1 alloc
//	Record32KiB/SealAndOpen   35 us   0.9 GB/s    32 B    2 allocs
//	Handshake               1840 us              76 KB  478 allocs   both sides
//	Channel                   19 us             8.7 KB   56 allocs   both sides
//	Send                      22 us   1.5 GB/s    17 B    1 alloc    seal, encode, copy
//	SendRecv                 130 us   0.25 GB/s  101 KB    8 allocs  60 KB of it the pipe's
//
// BenchmarkRecord32KiB seals and opens in place, as Conn does.
func BenchmarkRecord32KiB(b *testing.B) {
	const size = 2 + recordHead + wire.MaxChunk
	b.Run("Seal", func(b *testing.B) {
		c := newRecordCipher([32]byte{1})
		buf := make([]byte, size, size+tagSize)
		b.ReportAllocs()
		b.SetBytes(wire.MaxChunk)
		for b.Loop() {
			if _, err := c.seal(frameRecord(buf, kindLast)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("SealAndOpen", func(b *testing.B) {
		send, receive := newRecordCipher([32]byte{1}), newRecordCipher([32]byte{1})
		buf := make([]byte, size, size+tagSize)
		b.ReportAllocs()
		b.SetBytes(wire.MaxChunk)
		for b.Loop() {
			rec, err := send.seal(frameRecord(buf, kindLast))
			if err != nil {
				b.Fatal(err)
			}
			plain, err := receive.open(rec[2:])
			if err != nil {
				b.Fatal(err)
			}
			if _, _, err := parsePlaintext(plain); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHandshake is both sides, without a stream.
func BenchmarkHandshake(b *testing.B) {
	client, executor := newKey(b, keys.Client), newKey(b, keys.Executor)
	hello, err := wire.Encode(&wire.Hello{Versions: wire.Versions, Random: [32]byte{1}})
	if err != nil {
		b.Fatal(err)
	}
	prologue := EndToEndPrologue()
	b.ReportAllocs()
	for b.Loop() {
		sent, m1, err := startInitiator(client, executor.Public().Raw(), prologue, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		answered, m2, err := answerM1(m1, executor, prologue, wire.ID{}, nil, encapsulate)
		if err != nil {
			b.Fatal(err)
		}
		got, err := sent.readM2(m2)
		if err != nil {
			b.Fatal(err)
		}
		m3, _, err := got.writeM3(hello)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := answered.readM3(m3); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChannel is opening and answering a derived channel, without a stream.
func BenchmarkChannel(b *testing.B) {
	v := channelVectors()[0]
	s := v.product(b)
	b.ReportAllocs()
	for b.Loop() {
		var rc, re [channelRandom]byte
		for range 2 { // either side derives both keys
			for _, d := range []byte{toAnswerer, toOpener} {
				key, err := s.channelKey(d, 1, rc[:], re[:])
				if err != nil {
					b.Fatal(err)
				}
				newRecordCipher(key)
			}
		}
	}
}

// discard is a stream that takes everything and keeps nothing.
type discard struct{ *script }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkSend is a full chunk of output into a stream that costs nothing.
func BenchmarkSend(b *testing.B) {
	c := newConn(discard{newScript(nil)}, nil, newRecordCipher([32]byte{1}), nil)
	m := &wire.Output{Seq: 1, Stream: wire.Stdout, Data: make([]byte, wire.MaxChunk)}
	b.ReportAllocs()
	b.SetBytes(wire.MaxChunk)
	for b.Loop() {
		if err := c.Send(m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSendRecv moves full chunks of output through a pipe in memory, one goroutine at
// each end: what a stream would cost is left out, copying through the pipe is not.
func BenchmarkSendRecv(b *testing.B) {
	x, y := wiretest.Pipe()
	key := [32]byte{1}
	from, to := newConn(x, nil, newRecordCipher(key), nil), newConn(y, nil, nil, newRecordCipher(key))
	m := &wire.Output{Seq: 1, Stream: wire.Stdout, Data: make([]byte, wire.MaxChunk)}
	b.ReportAllocs()
	b.SetBytes(wire.MaxChunk)
	failed := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				failed <- from.CloseWrite()
				return
			default:
			}
			if err := from.Send(m); err != nil {
				failed <- err
				return
			}
		}
	}()
	for b.Loop() {
		if _, err := to.Recv(); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	for { // let the sender reach its end
		if _, err := to.Recv(); err != nil {
			break
		}
	}
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
}
