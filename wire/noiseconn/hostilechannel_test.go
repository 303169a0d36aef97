package noiseconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// opening is the header of channel n of v's session and its first record, as the
// reference makes them.
func (v *channelVector) opening(n uint64, rc []byte) []byte {
	b := append([]byte{2}, v.Session...)
	b = binary.BigEndian.AppendUint64(b, n)
	b = append(b, rc...)
	return append(b, (&refRecords{key: refChannelKey(v.Secret, 0, n, rc, nil)}).seal(kindLast, ping(n))...)
}

// arrive lets the product answer what stands on a stream, and returns its answer too.
func arrive(t testing.TB, s *Session, b []byte) (*Conn, []byte, error) {
	t.Helper()
	stream := newScript(b)
	in, err := AcceptAny(t.Context(), stream, ResponderConfig{}, func(id wire.ID) *Session {
		if s != nil && id == s.ID() {
			return s
		}
		return nil
	})
	if err != nil {
		return nil, stream.written.Bytes(), err
	}
	if in.Session != s || in.Pending != nil {
		t.Error("an open channel without its session, or with a handshake")
	}
	return in.Conn, stream.written.Bytes(), nil
}

func wantChannel(t testing.TB, what string, s *Session, b []byte) {
	t.Helper()
	c, answer, err := arrive(t, s, b)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if len(answer) != 33 || answer[0] != 2 {
		t.Errorf("%s: answer %x", what, answer)
	}
	if _, err := c.Recv(); err != nil {
		t.Errorf("%s: first message: %v", what, err)
	}
}

// noChannel is the one answer: a refusal with a code, and not a word more.
var noChannel = []byte{0, 0, 6, 0xa2, 1, 0x18, byte(wire.TypeRefused), 2, byte(wire.CodeNoChannel)}

func wantNoChannel(t testing.TB, what string, s *Session, b []byte) {
	t.Helper()
	c, answer, err := arrive(t, s, b)
	if c != nil || wire.CodeOf(err) != wire.CodeNoChannel {
		t.Errorf("%s: %v, want code no_channel", what, err)
	}
	if !bytes.Equal(answer, noChannel) {
		t.Errorf("%s: answered with %x, want %x", what, answer, noChannel)
	}
}

func TestEveryReasonForNoChannelLooksAlike(t *testing.T) {
	v := channelVectors()[0]
	rc := v.OpenerRandom
	s := v.product(t)
	wantChannel(t, "first use", s, v.opening(2000, rc))
	good := v.opening(7, rc)
	recordAt := 1 + channelHead

	otherSession := bytes.Clone(v.opening(1999, rc))
	otherSession[1] ^= 1
	forged := bytes.Clone(v.opening(1998, rc))
	forged[len(forged)-1] ^= 1
	otherNumber := bytes.Clone(v.opening(1997, rc))
	otherNumber[1+16+7] ^= 1 // the record belongs to another number
	otherRandom := bytes.Clone(v.opening(1996, rc))
	otherRandom[1+16+8] ^= 1
	backwards := append(bytes.Clone(v.opening(1995, rc)[:recordAt]), v.Reply.Record...)
	wantNoChannel(t, "no session at all", nil, good)
	for name, b := range map[string][]byte{
		"unknown session": otherSession, "used number": v.opening(2000, rc), "used number, new random": v.opening(2000, fixed("rc2", 32)),
		"number 0": v.opening(0, rc), "old number": v.opening(2000-wire.SessionWindow, rc), "number above the most": v.opening(wire.SessionChannels+1, rc),
		"highest number": v.opening(1<<64-1, rc), "forged record": forged, "other number": otherNumber, "other random": otherRandom,
		"record of the other direction": backwards,
		"empty record":                  append(bytes.Clone(good[:recordAt]), append([]byte{0, minRecord}, make([]byte, minRecord)...)...),
	} {
		wantNoChannel(t, name, s, b)
	}
	wantChannel(t, "a fresh number after all that", s, v.opening(1999, rc))
}

func TestReplayedOpeningIsNotServed(t *testing.T) {
	p := handshake(t)
	opening := newScript(nil)
	c, err := p.clientSession.OpenChannel(opening)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Send(&wire.Ping{Clock: 1}), c.Send(&wire.Ping{Clock: 2}), c.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	recorded := opening.written.Bytes()
	wantChannel(t, "the channel itself", p.serverSession, recorded)
	for range 3 {
		wantNoChannel(t, "its replay", p.serverSession, recorded)
	}
	// Another session of the same two keys, even under the same id, has another secret.
	q := handshake(t)
	wantNoChannel(t, "its replay into a new session", q.serverSession, recorded)
	if n := q.serverSession.Channels(); n != 0 {
		t.Errorf("the replay used up %d numbers of the new session", n)
	}
}

func TestForgedHeaderBurnsNothing(t *testing.T) {
	v := channelVectors()[0]
	s := v.product(t)
	for _, n := range []uint64{1, 5, 1024, wire.SessionChannels} {
		forged := v.opening(n, v.OpenerRandom)
		forged[len(forged)-1] ^= 1
		wantNoChannel(t, "forged", s, forged)
	}
	if n := s.Channels(); n != 0 {
		t.Errorf("forged headers moved the highest number to %d", n)
	}
	for _, n := range []uint64{5, 1, 1024} {
		wantChannel(t, "the true one", s, v.opening(n, v.OpenerRandom))
	}
}

func TestCutOpeningIsAnErrorAndBurnsNothing(t *testing.T) {
	v := channelVectors()[0]
	s := v.product(t)
	whole := v.opening(3, v.OpenerRandom)
	for i := range whole {
		if c, _, err := arrive(t, s, whole[:i]); c != nil || err == nil || err == io.EOF {
			t.Errorf("cut at %d: %v, want an error that is not io.EOF", i, err)
		}
	}
	wantChannel(t, "whole", s, whole)
}

func TestFlippedOpeningIsNotServed(t *testing.T) {
	v := channelVectors()[0]
	s := v.product(t)
	whole := v.opening(3, v.OpenerRandom)
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x80
		if c, _, err := arrive(t, s, b); c != nil || err == nil || err == io.EOF {
			t.Errorf("flip at %d: %v, want an error that is not io.EOF", i, err)
		}
	}
	wantChannel(t, "unchanged", s, whole)
}

func TestFlippedOrCutAnswerIsAnErrorForTheOpener(t *testing.T) {
	v := channelVectors()[0]
	s := v.product(t)
	answer := append(bytes.Clone(v.Answer), v.Reply.Record...)
	hear := func(b []byte) error {
		c, err := s.openChannel(newScript(b), v.Number, [32]byte(v.OpenerRandom))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(&wire.Ping{}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Recv()
		if _, again := c.Recv(); err != nil && !errors.Is(again, err) {
			t.Errorf("a second Recv says %v, the first said %v", again, err)
		}
		return err
	}
	if err := hear(answer); err != nil {
		t.Fatalf("unchanged: %v", err)
	}
	for i := range answer {
		b := bytes.Clone(answer)
		b[i] ^= 0x80
		if err := hear(b); err == nil || err == io.EOF {
			t.Errorf("flip at %d: %v, want an error that is not io.EOF", i, err)
		}
		if err := hear(answer[:i]); err == nil || err == io.EOF {
			t.Errorf("cut at %d: %v, want an error that is not io.EOF", i, err)
		}
	}
	if err := hear(noChannel); wire.CodeOf(err) != wire.CodeNoChannel {
		t.Errorf("no_channel: %v", err)
	}
	if err := hear(v.opening(1, v.OpenerRandom)); err == nil || err == io.EOF {
		t.Errorf("the opening reflected: %v", err)
	}
}

func TestDerivedChannelFoundsNoSession(t *testing.T) {
	p := handshake(t)
	_, server := p.channel(t, &wire.Ping{})
	if _, err := NewSession(server, &wire.Hello{}, &wire.Welcome{}); err == nil {
		t.Error("a session was founded")
	}
}

func TestChannelNumbersEnd(t *testing.T) {
	v := channelVectors()[0]
	s := v.product(t)
	s.next = wire.SessionChannels - 1
	if n, err := s.take(); err != nil || n != wire.SessionChannels {
		t.Fatalf("last number: %d, %v", n, err)
	}
	if _, err := s.OpenChannel(newScript(nil)); wire.CodeOf(err) != wire.CodeNoChannel {
		t.Errorf("one more: %v, want code no_channel", err)
	}
}

// naiveWindow remembers everything.
type naiveWindow struct {
	used    map[uint64]bool
	highest uint64
}

func (w *naiveWindow) mark(n uint64) bool {
	if n == 0 || n > 65536 || w.used[n] || w.highest >= 1024 && n <= w.highest-1024 {
		return false
	}
	w.used[n] = true
	w.highest = max(w.highest, n)
	return true
}

func TestNumbersAreTakenOnceWithinTheWindow(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, want := &Session{}, &naiveWindow{used: map[uint64]bool{}}
		for range 5000 {
			var n uint64
			switch r.IntN(4) {
			case 0:
				n = want.highest + 1
			case 1:
				n = want.highest + uint64(r.IntN(1500))
			case 2:
				n = want.highest - min(want.highest, uint64(r.IntN(1100)))
			default:
				n = uint64(r.IntN(70000))
				if seed%2 == 0 {
					n %= 3000
				}
			}
			if got, want := s.mark(n), want.mark(n); got != want {
				t.Fatalf("seed %d: mark(%d) = %t, want %t", seed, n, got, want)
			}
		}
	}
	s := &Session{}
	for _, c := range []struct {
		n    uint64
		want bool
	}{{2000, true}, {2000 - 1024, false}, {2000 - 1023, true}, {2000 - 1023, false}, {1999, true}, {2001, true}, {2001 - 1024, false}} {
		if got := s.mark(c.n); got != c.want {
			t.Errorf("mark(%d) = %t, want %t", c.n, got, c.want)
		}
	}
}

func TestOneOfManyConcurrentOpeningsIsServed(t *testing.T) {
	v := channelVectors()[0]
	s := v.product(t)
	const numbers, racers = 40, 4
	var served [numbers + 1]atomic.Int32
	var group sync.WaitGroup
	for range racers {
		group.Go(func() {
			for n := uint64(1); n <= numbers; n++ {
				if c, _, err := arrive(t, s, v.opening(n, v.OpenerRandom)); err == nil && c != nil {
					served[n].Add(1)
				}
			}
		})
	}
	group.Wait()
	for n := 1; n <= numbers; n++ {
		if got := served[n].Load(); got != 1 {
			t.Errorf("channel %d was served %d times, want once", n, got)
		}
	}
}

func TestAnswererBringsItsOwnRandomness(t *testing.T) {
	// A restored snapshot of the executor has forgotten that the number was used.
	v := channelVectors()[0]
	opening := v.opening(1, v.OpenerRandom)
	_, first, err := arrive(t, v.product(t), opening)
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := arrive(t, v.product(t), opening)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first, second) {
		t.Error("the answer to one opening is twice the same: its key would be, too")
	}
}
