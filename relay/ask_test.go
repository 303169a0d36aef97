package relay_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
)

// logged is a relay in memory whose log, from Debug on, the test reads.
func logged(t *testing.T, limits relay.Limits) (memory, *logText) {
	t.Helper()
	text := new(logText)
	l := relaytest.NewListener()
	return memory{relaytest.ServeLogged(t, l, limits, slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelDebug}))), l}, text
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newPeerIn is newPeer in another tenant.
func (m memory) newPeerIn(t *testing.T, tenant string, kind keys.Kind) *peer {
	t.Helper()
	key := generate(t, kind)
	m.AllowIn(tenant, key.Public())
	return m.join(t, key, hello(key))
}

// request sends a request and returns the items of the answer and its end.
func (p *peer) request(m wire.Message) (items []wire.Message, end *wire.Reply) {
	p.t.Helper()
	s, err := p.OpenStream(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := wire.WriteFrame(s, m); err != nil {
		p.t.Fatal(err)
	}
	return p.answered(s)
}

// answered reads the answer to a request.
func (p *peer) answered(s wire.Stream) (items []wire.Message, end *wire.Reply) {
	p.t.Helper()
	for {
		m, err := wire.ReadFrame(s)
		if err != nil {
			p.t.Fatalf("answer after %d items: %v", len(items), err)
		}
		if end, ok := m.(*wire.Reply); ok {
			if b, err := io.ReadAll(s); err != nil || len(b) != 0 {
				p.t.Errorf("after the reply: %x, %v, want a clean end", b, err)
			}
			return items, end
		}
		items = append(items, m)
	}
}

// carriedOut wants a request to be carried out, and returns the items.
func (p *peer) carriedOut(m wire.Message) []wire.Message {
	p.t.Helper()
	items, end := p.request(m)
	if end.Err() != nil {
		p.t.Fatalf("%T: %v", m, end.Err())
	}
	return items
}

// token is a join token as its maker has it.
type token struct {
	id              keys.TokenID
	secret, pairing [32]byte
}

// newToken makes one by the request of a client.
func (p *peer) newToken(pattern string, uses int) token {
	p.t.Helper()
	var tok token
	for _, b := range [][]byte{tok.id[:], tok.secret[:], tok.pairing[:]} {
		_, _ = rand.Read(b) // never fails
	}
	p.carriedOut(&wire.AddToken{
		ID: wire.ID(tok.id), Hash: keys.HashJoinSecret(tok.id, tok.secret), Pattern: pattern,
		Uses: uint32(uses), TTLMillis: uint64(time.Hour / time.Millisecond),
	})
	return tok
}

// hello is what an executor with the token says.
func (tok token) hello(key *keys.PrivateKey, name string) *wire.HopHello {
	h := hello(key)
	h.Name = name
	h.Join = &wire.JoinProof{Token: wire.ID(tok.id), Secret: tok.secret, MAC: keys.AnnouncementMAC(tok.pairing, tok.id, key.Public(), name)}
	return h
}
