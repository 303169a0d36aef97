package executor

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// sessionMaker founds sessions on a clock that the test sets.
type sessionMaker struct {
	t     *testing.T
	now   time.Duration
	conn  *noiseconn.Conn
	hello *wire.Hello
}

func newSessionMaker(t *testing.T) *sessionMaker {
	t.Helper()
	m := &sessionMaker{t: t, hello: &wire.Hello{Versions: wire.Versions}}
	rand.Read(m.hello.Random[:])
	me, it := generate(t, keys.Client), generate(t, keys.Executor)
	ours, theirs := wiretest.Pipe()
	accepted := make(chan *noiseconn.Conn, 1)
	go func() {
		defer close(accepted)
		cfg := noiseconn.ResponderConfig{Static: it, Prologue: noiseconn.EndToEndPrologue(), Clock: func() time.Duration { return m.now }}
		p, err := noiseconn.Accept(t.Context(), theirs, cfg)
		if err != nil {
			t.Error(err)
			return
		}
		c, err := p.Accept(m.welcome())
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- c
	}()
	i, err := noiseconn.Dial(t.Context(), ours, noiseconn.InitiatorConfig{Static: me, Peer: it.Public().Raw(), Prologue: noiseconn.EndToEndPrologue()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Finish(m.hello); err != nil {
		t.Fatal(err)
	}
	if m.conn = <-accepted; m.conn == nil {
		t.Fatal("no handshake")
	}
	return m
}

func generate(t *testing.T, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	k, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (m *sessionMaker) welcome() *wire.Welcome {
	w := &wire.Welcome{
		Versions: wire.Versions, Session: wire.ID(wire.NewExecID()),
		Limits: wire.SessionLimits{Message: wire.MaxMessage, Window: wire.OutputWindow, Sandbox: 1},
	}
	rand.Read(w.Random[:])
	return w
}

// found is a session of client whose time starts with the test's.
func (m *sessionMaker) found(client keys.PublicKey) *session {
	m.t.Helper()
	ns, err := noiseconn.NewSession(m.conn, m.hello, m.welcome())
	if err != nil {
		m.t.Fatal(err)
	}
	return &session{Session: ns, client: client, used: ns.Clock()}
}

func TestSessionTakesNoChannelWhenItsTimeIsUp(t *testing.T) {
	m := newSessionMaker(t)
	client := generate(t, keys.Client).Public()
	for _, c := range []struct {
		name  string
		wait  time.Duration
		open  bool
		knows bool
	}{
		{"idle for ten minutes", wire.SessionIdle, false, true},
		{"idle for longer", wire.SessionIdle + time.Second, false, false},
		{"in use for an hour", wire.SessionAge, true, true},
		{"in use for longer", wire.SessionAge + time.Second, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.now = 0
			all, s := newSessions(), m.found(client)
			if err := all.add(s, nil); err != nil {
				t.Fatal(err)
			}
			conversation := &conversation{}
			if c.open {
				all.enter(s, conversation)
			}
			m.now = c.wait
			if knows := all.lookup(s.ID()) != nil; knows != c.knows {
				t.Errorf("after %v: known %v, want %v", c.wait, knows, c.knows)
			}
			if c.open {
				all.leave(s, conversation)
			}
			if !c.knows && (len(all.byID) != 0 || len(all.byKey) != 0) {
				t.Error("a session whose time is up is still kept")
			}
		})
	}
}

func TestSecretOfASessionGoesWhenItsClientComesAgain(t *testing.T) {
	m := newSessionMaker(t)
	client := generate(t, keys.Client).Public()
	all := newSessions()
	for range 5 {
		if err := all.add(m.found(client), nil); err != nil {
			t.Fatal(err)
		}
	}
	m.now += wire.SessionIdle + time.Second
	if err := all.add(m.found(client), nil); err != nil {
		t.Fatal(err)
	}
	if len(all.byID) != 1 || len(all.byKey[client]) != 1 {
		t.Errorf("%d sessions are kept, want the new one only", len(all.byID))
	}
}

func TestSessionThatWasReplacedGoesOnForHalfAMinute(t *testing.T) {
	m := newSessionMaker(t)
	client, other := generate(t, keys.Client).Public(), generate(t, keys.Client).Public()
	all, old, foreign := newSessions(), m.found(client), m.found(other)
	m.now = time.Second
	for _, s := range []*session{old, foreign} {
		if err := all.add(s, nil); err != nil {
			t.Fatal(err)
		}
	}
	id, foreignID, unknown := old.ID(), foreign.ID(), wire.ID{9}
	for _, replaces := range []*wire.ID{&id, &foreignID, &unknown} {
		if err := all.add(m.found(client), replaces); err != nil {
			t.Fatal(err)
		}
	}
	m.now += wire.SessionOverlap
	if all.lookup(old.ID()) == nil {
		t.Error("the old session is gone before the overlap has passed")
	}
	m.now += time.Second
	if all.lookup(old.ID()) != nil {
		t.Error("the old session takes channels after the overlap")
	}
	if all.lookup(foreign.ID()) == nil {
		t.Error("a client replaced somebody else's session")
	}
}

func TestSessionsOfOneKeyAreLimitedAndTheIdlestGoes(t *testing.T) {
	m := newSessionMaker(t)
	client, other := generate(t, keys.Client).Public(), generate(t, keys.Client).Public()
	all := newSessions()
	var mine []*session
	for i := range wire.SessionsPerKey {
		m.now = time.Duration(i) * time.Millisecond
		s := m.found(client)
		s.used = m.now
		mine = append(mine, s)
		if err := all.add(s, nil); err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	all.enter(mine[0], &conversation{}) // the first is in use, so the second is the idlest
	if err := all.add(m.found(client), nil); err != nil {
		t.Fatal(err)
	}
	if all.lookup(mine[0].ID()) == nil || all.lookup(mine[1].ID()) != nil || all.lookup(mine[2].ID()) == nil {
		t.Error("another than the idlest session made room")
	}
	for _, s := range all.byKey[client] {
		if s.open == 0 {
			all.enter(s, &conversation{})
		}
	}
	err := all.add(m.found(client), nil)
	if wire.CodeOf(err) != wire.CodeBusy || err.(*wire.Error).RetryAfter <= 0 {
		t.Errorf("one session too many: %v, want busy with retry-after", err)
	}
	if err := all.add(m.found(other), nil); err != nil {
		t.Errorf("another client's session: %v", err)
	}
}

func TestRevokeDropsTheSessionsOfOneKeyOnly(t *testing.T) {
	m := newSessionMaker(t)
	gone, stays := generate(t, keys.Client).Public(), generate(t, keys.Client).Public()
	all := newSessions()
	a, b, c := m.found(gone), m.found(gone), m.found(stays)
	for _, s := range []*session{a, b, c} {
		if err := all.add(s, nil); err != nil {
			t.Fatal(err)
		}
	}
	talk := &conversation{}
	all.enter(a, talk)
	all.enter(c, &conversation{})
	ended, clients := all.revoke(func(k keys.PublicKey) bool { return k == stays })
	if len(ended) != 1 || ended[0] != talk || len(clients) != 1 || clients[0] != gone {
		t.Errorf("%d conversations of %d clients end, want the one of the one", len(ended), len(clients))
	}
	if all.lookup(a.ID()) != nil || all.lookup(b.ID()) != nil || all.lookup(c.ID()) == nil {
		t.Error("the wrong sessions are gone")
	}
	all.leave(a, talk) // its conversation ends later; nothing may come back
	if len(all.byKey[gone]) != 0 || all.lookup(a.ID()) != nil {
		t.Error("a session came back when its conversation ended")
	}
}
