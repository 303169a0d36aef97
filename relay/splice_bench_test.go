package relay

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// BenchmarkSplice is what joining two streams costs, without QUIC: over pipes in memory, beside the same through one pipe.
//
//	go test -run '^$' -bench Splice -benchtime 0.5s ./relay
func BenchmarkSplice(b *testing.B) {
	for name, join := range map[string]func(*testing.B) (client, executor wire.Stream){
		"pipe":   func(*testing.B) (client, executor wire.Stream) { return wiretest.Pipe() },
		"splice": splicedPipes,
	} {
		b.Run("Echo64/"+name, func(b *testing.B) {
			client, executor := join(b)
			b.ReportAllocs()
			buf := make([]byte, 64)
			for b.Loop() {
				carry(b, client, executor, buf)
				carry(b, executor, client, buf)
			}
		})
		b.Run("Bulk32KiB/"+name, func(b *testing.B) {
			client, executor := join(b)
			b.ReportAllocs()
			b.SetBytes(copyBuffer)
			sent, got := make([]byte, copyBuffer), make([]byte, copyBuffer)
			turns := make(chan struct{}, 8) // the sender is ahead by as much
			failed := make(chan error, 1)
			go func() {
				for range turns {
					if _, err := client.Write(sent); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
			for b.Loop() {
				turns <- struct{}{}
				if _, err := io.ReadFull(executor, got); err != nil {
					b.Fatal(err)
				}
			}
			close(turns)
			if err := <-failed; err != nil {
				b.Fatal(err)
			}
		})
	}
	b.Run("Circuit", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 64)
		for b.Loop() {
			near, client := wiretest.Pipe()
			far, executor := wiretest.Pipe()
			ended := make(chan wire.Code, 1)
			go func() { ended <- newSpliceOf(near, far).run(context.Background(), context.Background()) }()
			carry(b, client, executor, buf)
			carry(b, executor, client, buf)
			if client.CloseWrite() != nil || executor.CloseWrite() != nil {
				b.Fatal("a stream does not end")
			}
			if code := <-ended; code != 0 {
				b.Fatal(code)
			}
		}
	})
}

// splicedPipes are the outer ends of two pipes that a splice joins until the benchmark ends.
func splicedPipes(b *testing.B) (client, executor wire.Stream) {
	near, client := wiretest.Pipe()
	far, executor := wiretest.Pipe()
	ended := make(chan wire.Code, 1)
	go func() { ended <- newSpliceOf(near, far).run(context.Background(), context.Background()) }()
	b.Cleanup(func() {
		client.Reset(wire.CodeCancelled)
		executor.Reset(wire.CodeCancelled)
		<-ended
	})
	return client, executor
}

// newSpliceOf is one without rates.
func newSpliceOf(near, far wire.Stream) *splice {
	return &splice{
		client: near, executor: far, stall: time.Minute, backlogs: &budget{most: 1 << 20},
		countUp: func(int) {}, countDown: func(int) {},
	}
}

func carry(b *testing.B, from, to wire.Stream, buf []byte) {
	b.Helper()
	if _, err := from.Write(buf); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(to, buf); err != nil {
		b.Fatal(err)
	}
}
