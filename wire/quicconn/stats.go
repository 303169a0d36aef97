package quicconn

import (
	"sync"
	"time"
)

// Stats are the figures of one connection since it began, all of this side. Bytes and
// packets are QUIC's, without UDP and IP headers and with what was sent twice.
type Stats struct {
	RTT                          time.Duration // smoothed; zero before the first sample
	BytesSent, BytesReceived     uint64
	PacketsSent, PacketsReceived uint64
	// PacketsLost were declared lost. It does not go down when one arrives late after all.
	PacketsLost uint64
	// PathChanges is how often the peer had another address than at the call before: all
	// changes only if Stats is called often enough, as after a NAT has rebound.
	PathChanges uint64
}

// seen is what Stats compares with.
type seen struct {
	mu          sync.Mutex
	addr        string
	pathChanges uint64
	lost        uint64
}

// Stats may be called at any time, also after the end of the connection.
func (c *Conn) Stats() Stats {
	s := c.quic.ConnectionStats()
	addr := c.quic.RemoteAddr().String()
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	if addr != c.seen.addr {
		c.seen.addr = addr
		c.seen.pathChanges++
	}
	c.seen.lost = max(c.seen.lost, s.PacketsLost)
	return Stats{
		RTT:             s.SmoothedRTT,
		BytesSent:       s.BytesSent,
		BytesReceived:   s.BytesReceived,
		PacketsSent:     s.PacketsSent,
		PacketsReceived: s.PacketsReceived,
		PacketsLost:     c.seen.lost,
		PathChanges:     c.seen.pathChanges,
	}
}
