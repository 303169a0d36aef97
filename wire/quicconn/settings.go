package quicconn

import (
	"context"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

// What both sides set. Whatever is not set here is quic-go's default on purpose: packet
// size (path MTU discovery gains nothing from a larger start), congestion control (Reno,
// no choice), GSO (on where the kernel has it; QUIC_GO_DISABLE_GSO turns it off). Its
// counterpart GRO, which quic-go lacks, is in gro_linux.go.
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
	c.AllowConnectionWindowIncrease = func(q *quic.Conn, delta uint64) bool {
		return visitOf(q.Context()).grow(delta)
	}
	// No keep-alive: the dialling side sends heartbeats, and one end is enough.
	c.DisablePathMTUDiscovery = o.DisablePathMTUDiscovery
	return c
}

// When a newcomer must first show that it receives what is sent to its address (Retry),
// which costs it a round trip and a sender of forged packets everything: above this many
// handshakes a second, or at once, from addresses that no token vouches for; and while 25
// of those are half open. A forged one stays for the 3 s of the handshake's idle timeout,
// so that the rate alone would let a forger keep 600 in flight and have everybody refused
// by the early drop below. Half of where that begins leaves the rest to those who are there.
const (
	unverifiedRate  = 200
	unverifiedBurst = 400
	halfOpenMost    = dropBegin / 2
)

// tokenAge makes worthless all tokens but those of a Retry, which are good for 6 s. No
// dialler of ours keeps another, and one from yesterday shows who was at an address
// yesterday, while the limits for one source go by who is there now.
const tokenAge = time.Nanosecond

// Random early drop of handshakes in flight, as the 50:30:256 of OpenSSH's MaxStartups.
// Below 50 nobody is refused: one core does about 200 a second, which over two round trips
// of 100 ms are 40 in flight, so 50 are a queue. From there 30 in 100 are refused, rising evenly to all of
// them at 256, where the handshakes hold about 18 MiB. Chance hits a flood in proportion
// to its share, so that those who try again get in; a plain limit would hit them all.
const (
	dropBegin = 50
	dropFirst = 0.3
	dropAll   = 256
)

// Handshakes from one source that have not led to an admitted peer: 20 a second, and 100
// at once, which is a busy site after its router has come back. Those that are admitted
// are taken off again, so this is about guessing and noise only.
const (
	sourceInterval = time.Second / 20
	sourceBurst    = 100
)

// Penalties, as OpenSSH's PerSourcePenalties: a failed authentication weighs 5 s, and more
// than 15 s at a time bar the source. So three mistakes are free, and whoever fails on and
// on gets one try in 5 s. At most 10 min are held against anybody, because the next one
// with that address may be another.
const (
	penaltyStep      = 5 * time.Second
	penaltyThreshold = 15 * time.Second
	penaltyMost      = 10 * time.Minute
)

// Sources that are remembered: 65,536, which is 5 MiB. When there are more, the newest are
// not kept account of and nobody is refused for it: the limits for all hold still, and
// refusing would hand a switch for everybody to whoever owns one /48. Each new entry looks
// at two old ones whether they can go, at 64 if there is no room.
const (
	sourcesMost = 1 << 16
	sweepAlways = 2
	sweepFull   = 64
)

// All windows together may grow by a quarter of the memory, so that the rest of a relay,
// about 70 KiB for each idle executor, and the garbage collector's headroom fit beside
// them. 64 MiB, the least, are 16 connections at full speed.
const (
	budgetShare = 4
	budgetLeast = 64 << 20
)

// listenTransport asks the guard about each newcomer. Both decisions come before any
// cryptography, and ConnContext alone counts, since its context ends whatever happens.
func listenTransport(l *Listener) *quic.Transport {
	return &quic.Transport{
		ConnectionIDLength: 8, // 4, the default, collides too early with 10,000 executors
		MaxTokenAge:        tokenAge,
		VerifySourceAddress: func(a net.Addr) bool {
			return !l.draining.Load() && l.guard.needsProof(addrOf(a))
		},
		ConnContext: func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
			if l.draining.Load() {
				return nil, errDraining
			}
			v, err := l.guard.enter(addrOf(info.RemoteAddr), info.AddrVerified)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, v.end)
			return context.WithValue(ctx, visitKey{}, v), nil
		},
	}
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
		c.MaxStreamReceiveWindow = 1 << 20 // input of commands: as listenStreamMax
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
