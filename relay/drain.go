package relay

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/postern-relay/postern/wire"
)

// handshakesPerSecond is what a relay can answer without hurry when all its peers come back after a restart.
const handshakesPerSecond = 150

// spread is over how long so many peers should come back.
func spread(peers int) time.Duration {
	return time.Duration(peers) * time.Second / handshakesPerSecond
}

// Drain prepares the end of Serve: no new connections and no new circuits, and every peer is told that the relay goes
// away and when, after that, to come back, each at a time of its own, so that they do not come all at once. It
// returns when the last circuit has ended, or when ctx is done. Whoever drains ends Serve afterwards. Listeners that
// have a method Drain() error refuse newcomers at once, others when they have shown who they are.
func (s *Server) Drain(ctx context.Context) {
	if s.draining.Swap(true) {
		return
	}
	s.metrics.ready.Set(0)
	s.metrics.draining.Set(1)
	s.stopAccepting()
	peers := s.admitted()
	over := spread(len(peers))
	s.log.Info("draining", "peers", len(peers), "circuits", s.open.Load(), "spread", over.Round(time.Millisecond))
	for _, c := range peers {
		c.goaway(over)
	}
	if len(peers) > 0 { // closing a connection drops what is on its way
		select {
		case <-time.After(tellTime):
		case <-ctx.Done():
		}
	}
	if s.open.Load() == 0 {
		return
	}
	select {
	case <-s.drained:
	case <-ctx.Done():
		s.log.Warn("the drain is over before its circuits", "circuits", s.open.Load())
	}
}

func (s *Server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		if d, ok := l.(interface{ Drain() error }); ok {
			if err := d.Drain(); err != nil {
				s.log.Warn("newcomers are not refused at once", "err", err)
			}
		}
	}
}

// tellTime is how long peers have to hear that the relay goes away, where nothing else holds up its end.
const tellTime = 250 * time.Millisecond

// Draining reports whether the relay takes no new work.
func (s *Server) Draining() bool { return s.draining.Load() }

// goaway tells the peer, once, that the connection is going to end, and to wait then for a part of the time over which
// all peers should come back.
func (c *conn) goaway(over time.Duration) {
	if c.leaving.Swap(true) {
		return
	}
	wait := time.Duration(0)
	if over > 0 {
		wait = rand.N(over)
	}
	c.server.metrics.goaways.WithLabelValues(roleName(c.role)).Inc()
	c.say(&wire.HopGoaway{Code: wire.CodeShutdown, Text: "the relay is shutting down", WaitMillis: uint64(wait / time.Millisecond)})
}

func (s *Server) circuitBegins() {
	s.open.Add(1)
	s.metrics.circuits.Inc()
}

func (s *Server) circuitEnds() {
	s.metrics.circuits.Dec()
	if s.open.Add(-1) == 0 && s.draining.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case <-s.drained:
		default:
			close(s.drained)
		}
	}
}
