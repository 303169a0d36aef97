package quicconn

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"github.com/postern-relay/postern/wire"
)

// What both sides set. Whatever is not set here is quic-go's default on purpose: packet
// size (path MTU discovery gains nothing from a larger start), congestion control (Reno,
// no choice), GSO (on where the kernel has it; QUIC_GO_DISABLE_GSO turns it off).
func commonConfig() *quic.Config {
	return &quic.Config{
		// Without a packet for 3 s, or not done after 6 s, a handshake is given up. The
		// Noise handshake that follows has its own deadline.
		HandshakeIdleTimeout: 3 * time.Second,
		// Nothing here is unidirectional; -1 refuses such streams, 0 would allow 100.
		MaxIncomingUniStreams: -1,
		// A command must never start from replayable data.
		Allow0RTT: false,
		// No use for them, and one parser less before authentication.
		EnableDatagrams: false,
	}
}

// Windows of the accepting side, in bytes. Before a peer has proven who it is it can make
// the relay hold 64 KiB, however many streams it opens; afterwards 4 MiB, of which one
// stream has at most 1 MiB (20 MB/s at a round trip of 50 ms). quic-go's own limit of
// 15 MiB for each of a thousand connections is what would end a relay.
const (
	listenStreamInitial = 32 << 10
	listenStreamMax     = 1 << 20
	listenConnInitial   = 64 << 10
	listenConnMax       = 4 << 20
	listenStreams       = 1100
)

func listenConfig(o ListenOptions) *quic.Config {
	c := commonConfig()
	c.MaxIdleTimeout = wire.ExecutorIdle // the smaller of both ends' counts: a client brings its own
	c.MaxIncomingStreams = listenStreams
	if o.MaxStreams > 0 {
		c.MaxIncomingStreams = o.MaxStreams
	}
	c.InitialStreamReceiveWindow = listenStreamInitial
	c.MaxStreamReceiveWindow = listenStreamMax
	c.InitialConnectionReceiveWindow = listenConnInitial
	c.MaxConnectionReceiveWindow = listenConnMax
	// It must not call back into the connection; its context is only a field.
	c.AllowConnectionWindowIncrease = func(q *quic.Conn, _ uint64) bool {
		return admission(q.Context()).Load()
	}
	// No keep-alive: the dialling side sends heartbeats, and one end is enough.
	c.DisablePathMTUDiscovery = o.DisablePathMTUDiscovery
	return c
}

// Handshakes from addresses that no token vouches for, a second and at once. Above it a
// newcomer must first show that it receives what is sent to its address (Retry), which
// costs it a round trip and a sender of forged packets everything.
const (
	unverifiedRate  = 200
	unverifiedBurst = 400
)

func listenTransport(socket net.PacketConn) *quic.Transport {
	unverified := rate.NewLimiter(unverifiedRate, unverifiedBurst)
	return &quic.Transport{
		Conn:                socket,
		ConnectionIDLength:  8, // 4, the default, collides too early with 10,000 executors
		VerifySourceAddress: func(net.Addr) bool { return !unverified.Allow() },
		ConnContext: func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
			return context.WithValue(ctx, admissionKey{}, new(atomic.Bool)), nil
		},
	}
}

// admissionKey finds whether a connection's peer was admitted.
type admissionKey struct{}

// admission is never nil: a connection without the mark is never admitted.
func admission(ctx context.Context) *atomic.Bool {
	if b, ok := ctx.Value(admissionKey{}).(*atomic.Bool); ok {
		return b
	}
	return new(atomic.Bool)
}

// dialConfig is the dialling side's. Heartbeats on the control stream come more often
// than the keep-alives set here: quic-go's own pings are too short to be answered with a
// stateless reset, so they only keep a NAT's mapping while the heartbeat is stuck.
func dialConfig(o Options) *quic.Config {
	c := commonConfig()
	switch o.Role {
	case wire.RoleExecutor:
		c.MaxIdleTimeout = wire.ExecutorIdle
		c.KeepAlivePeriod = 12 * time.Second
		// The relay opens one stream for each circuit here and must not be held up by
		// QUIC's default of 100; the executor bounds its clients itself.
		c.MaxIncomingStreams = 10_000
		c.MaxStreamReceiveWindow = 1 << 20 // input of commands; they are small
		c.MaxConnectionReceiveWindow = 16 << 20
	case wire.RoleClient:
		c.MaxIdleTimeout = wire.ClientIdle
		c.KeepAlivePeriod = 6 * time.Second
		c.MaxIncomingStreams = -1          // nobody opens a stream towards a client
		c.MaxStreamReceiveWindow = 6 << 20 // output of commands, over long paths
		c.MaxConnectionReceiveWindow = 16 << 20
	}
	if o.MaxStreams != 0 {
		c.MaxIncomingStreams = o.MaxStreams
	}
	c.DisablePathMTUDiscovery = o.DisablePathMTUDiscovery
	return c
}
