package relay

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// sampleEvery is how often the links of all connections are looked at.
const sampleEvery = time.Minute

// linkMetrics are what QUIC knows of the way to the peers.
type linkMetrics struct {
	rtt   *prometheus.HistogramVec // seconds, by role
	lost  *prometheus.CounterVec   // packets, by role
	paths *prometheus.CounterVec   // changes of a peer's address, by role
}

func newLinkMetrics() *linkMetrics {
	l := &linkMetrics{
		rtt: prometheus.NewHistogramVec(histogramOpts(
			"quic_rtt_seconds", "Smoothed round trip time, of each connection every minute and at its end.", prometheus.ExponentialBuckets(0.0005, 2, 14)), []string{"role"}),
		lost:  counterVec("quic_lost_packets_total", "Packets that were declared lost.", "role"),
		paths: counterVec("path_changes_total", "Changes of a peer's address that its connection has survived.", "role"),
	}
	for _, role := range []string{roleName(wire.RoleExecutor), roleName(wire.RoleClient)} {
		l.rtt.WithLabelValues(role)
		l.lost.WithLabelValues(role)
		l.paths.WithLabelValues(role)
	}
	return l
}

func (l *linkMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{l.rtt, l.lost, l.paths}
}

// sampled is what was read of a connection last.
type sampled struct {
	mu   sync.Mutex
	last quicconn.Stats
}

// sample reads what a connection has gone through since the last time. A transport that is not QUIC has nothing to tell.
func (c *conn) sample() {
	source, ok := c.transport.(interface{ Stats() quicconn.Stats })
	if !ok {
		return
	}
	c.sampled.mu.Lock()
	defer c.sampled.mu.Unlock()
	now, role, m := source.Stats(), roleName(c.role), c.server.metrics.links
	if now.RTT > 0 {
		m.rtt.WithLabelValues(role).Observe(now.RTT.Seconds())
	}
	m.lost.WithLabelValues(role).Add(float64(now.PacketsLost - c.sampled.last.PacketsLost))
	m.paths.WithLabelValues(role).Add(float64(now.PathChanges - c.sampled.last.PathChanges))
	c.sampled.last = now
}

// sampleLinks samples all connections until ctx is done.
func (s *Server) sampleLinks(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, c := range s.admitted() {
				c.sample()
			}
		case <-ctx.Done():
			return
		}
	}
}
