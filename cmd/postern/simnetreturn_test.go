package main

import (
	"testing"
	"time"
)

// What is needed to go on, beyond the timer that was under way when the link came back: QUIC one
// round trip to the relay, the hop two, and one whole trip for Attach and the first byte. The
// session is known still.
const returnTrips = 3*hopTrip + wholeTrip

// Both ends try again on timers of their own. A connection attempt repeats its first packet at
// intervals that double (RFC 9002 section 6.2), and is given up after 10 s; the client's pauses
// between two attempts double up to 5 s.
const longestTimer = 10*time.Second + 5*time.Second

func TestTimeFromTheReturnOfTheClientsLinkToTheFirstByte(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		s := p.beginStream(t, streamOptions{})
		s.through(t, func() {
			p.network.setDown(clientHost, true)
			<-time.After(20 * time.Second)
			returned := time.Now()
			knocked := p.network.nextFrom(clientHost)
			p.network.setDown(clientHost, false)
			first := <-knocked
			resumed := s.firstByte()
			timer, trips := first.Sub(returned), resumed.Sub(first)
			t.Logf("the first byte came %v after the link: a timer of %v, and %v, which is %.1f round trips to the relay and one to the executor",
				resumed.Sub(returned), timer, trips, float64(trips-wholeTrip)/float64(hopTrip))
			if timer > longestTimer {
				t.Errorf("the client tried again after %v, want at most %v", timer, longestTimer)
			}
			if trips > returnTrips+oneWay/2 {
				t.Errorf("from the first packet to the first byte it took %v, want %v", trips, returnTrips)
			}
		})
	})
}

func TestTimeFromARelayRestartToTheFirstByte(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		s := p.beginStream(t, streamOptions{})
		s.through(t, func() {
			<-time.After(time.Minute) // the executor's connection counts as a success: its waits begin at their lowest
			p.crashRelay()
			began := time.Now()
			p.restartRelay()
			registered := <-p.registered
			resumed := s.firstByte()
			waited, rest := registered.Sub(began), resumed.Sub(registered)
			t.Logf("the executor was back %v after the restart, the first byte came %v later", waited, rest)
			// It sends something every tick and gets a reset for it; then up to a second at random; then QUIC and hop.
			if most := tick + hopTrip + time.Second + 3*hopTrip; waited > most+oneWay/2 {
				t.Errorf("the executor was back after %v, want at most %v", waited, most)
			}
			// The client's pauses double from 50 ms: the one under way is no longer than all before together,
			// doubled because of their jitter, and the first.
			if most := 2*waited + 50*time.Millisecond + wholeTrip + hopTrip; rest > most {
				t.Errorf("the first byte came %v after the registration, want at most %v", rest, most)
			}
		})
	})
}

// firstByte is when the next byte of output comes.
func (s *stream) firstByte() time.Time {
	for before := s.out.size(); s.out.size() == before; {
		<-time.After(time.Millisecond)
	}
	return s.out.lastWrite()
}
