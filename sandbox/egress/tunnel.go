package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// tunnel joins two connections until both directions have ended. The end of one direction
// is passed on as such while the other goes on; an error is passed on as a reset, never as
// a clean end.
type tunnel struct {
	client, upstream net.Conn
	moved            atomic.Int64 // when the last bytes moved in either direction, in ns since start
	start            time.Time
}

// join runs a tunnel and closes both connections. early are bytes of the client that have
// been read already.
func join(ctx context.Context, client, upstream net.Conn, early []byte) {
	t := &tunnel{client: client, upstream: upstream, start: time.Now()}
	stop := context.AfterFunc(ctx, t.abort)
	defer stop()
	var up sync.WaitGroup
	up.Go(func() {
		err := t.write(upstream, early)
		if err == nil {
			err = t.copy(upstream, client)
		}
		t.end(upstream, err)
	})
	t.end(client, t.copy(client, upstream))
	up.Wait()
	client.Close()
	upstream.Close()
}

// copy moves bytes until src has ended.
func (t *tunnel) copy(dst, src net.Conn) error {
	buf := buffers.Get()
	defer buffers.Put(buf)
	for {
		src.SetReadDeadline(t.start.Add(time.Duration(t.moved.Load()) + idleTimeout))
		n, err := src.Read(buf)
		if n > 0 {
			if err := t.write(dst, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && !t.idle():
			// The other direction was busy.
		case err != nil:
			return err
		}
	}
}

func (t *tunnel) write(dst net.Conn, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	t.touch()
	dst.SetWriteDeadline(time.Now().Add(idleTimeout))
	_, err := dst.Write(b)
	t.touch()
	return err
}

func (t *tunnel) touch() { t.moved.Store(int64(time.Since(t.start))) }

func (t *tunnel) idle() bool {
	return time.Since(t.start)-time.Duration(t.moved.Load()) >= idleTimeout
}

// end passes the end of a direction on to its receiver.
func (t *tunnel) end(dst net.Conn, err error) {
	if err != nil {
		t.abort()
		return
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	dst.Close() // it has no other way to be told
}

// abort closes both connections so that neither end takes it for a clean one.
func (t *tunnel) abort() {
	for _, conn := range []net.Conn{t.client, t.upstream} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
}

// linger closes a connection after an answer to a request that was not read to its end.
// Closing it at once would throw away what the client has not read yet.
func linger(c *clientConn) {
	defer c.Close()
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.SetReadDeadline(time.Now().Add(lingerTimeout))
	io.CopyN(io.Discard, c, lingerBytes)
}

// bufferPool lends buffers for copying.
type bufferPool struct{ pool sync.Pool }

const bufferSize = 64 << 10

var buffers bufferPool

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferSize]byte)(b)) }
