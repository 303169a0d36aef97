package executor

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// session is what the executor keeps of one end-to-end handshake.
type session struct {
	*noiseconn.Session
	client keys.PublicKey

	// Below sessions.mu.
	open       int           // conversations
	used       time.Duration // on the session clock
	replacedAt time.Duration // zero: not replaced
}

// sessions is the table of them. Sessions that may open no channel any more are dropped when
// somebody looks, and with them their secrets.
type sessions struct {
	mu    sync.Mutex
	byID  map[wire.ID]*session
	byKey map[keys.PublicKey][]*session
	// channels are the open conversations of each client: a session may be dropped before them.
	channels map[keys.PublicKey]map[*conversation]struct{}
	open     int           // conversations of all, dropped sessions included
	idle     chan struct{} // closed when open gets to zero; nil when nobody waits
}

func newSessions() *sessions {
	return &sessions{byID: make(map[wire.ID]*session), byKey: make(map[keys.PublicKey][]*session), channels: make(map[keys.PublicKey]map[*conversation]struct{})}
}

// add takes in a new session. Over the limit of its key the one that was idle longest makes
// room; when none is idle the client has to come back later.
func (t *sessions) add(s *session, replaces *wire.ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.byKey[s.client]
	for _, old := range mine {
		if replaces != nil && old.ID() == *replaces && old.replacedAt == 0 {
			old.replacedAt = old.Clock()
		}
		if old.expired() {
			t.drop(old)
		}
	}
	if len(t.byKey[s.client]) >= wire.SessionsPerKey {
		idlest := idlest(t.byKey[s.client])
		if idlest == nil {
			return &wire.Error{Code: wire.CodeBusy, Text: "too many sessions of this client", RetryAfter: time.Second}
		}
		t.drop(idlest)
	}
	t.byID[s.ID()] = s
	t.byKey[s.client] = append(t.byKey[s.client], s)
	return nil
}

func idlest(all []*session) (found *session) {
	var longest time.Duration = -1
	for _, s := range all {
		if idle := s.Clock() - s.used; s.open == 0 && idle > longest {
			found, longest = s, idle
		}
	}
	return found
}

// expired: no channel may be opened any more.
func (s *session) expired() bool {
	now := s.Clock()
	return now > wire.SessionAge ||
		s.open == 0 && now-s.used > wire.SessionIdle ||
		s.replacedAt > 0 && now-s.replacedAt > wire.SessionOverlap ||
		s.Channels() >= wire.SessionChannels
}

// drop forgets a session; its open conversations go on. Callers hold mu.
func (t *sessions) drop(s *session) {
	delete(t.byID, s.ID())
	mine := t.byKey[s.client]
	kept := make([]*session, 0, len(mine))
	for _, other := range mine {
		if other != s {
			kept = append(kept, other)
		}
	}
	if len(kept) == 0 {
		delete(t.byKey, s.client)
	} else {
		t.byKey[s.client] = kept
	}
}

// remove takes back a session that its client was never told of.
func (t *sessions) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s)
}

// lookup is for noiseconn.AcceptAny: nil where no channel may be opened.
func (t *sessions) lookup(id wire.ID) *noiseconn.Session {
	if s := t.find(id); s != nil {
		return s.Session
	}
	return nil
}

func (t *sessions) find(id wire.ID) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s != nil && s.expired() {
		t.drop(s)
		return nil
	}
	return s
}

// enter counts a conversation of s, leave uncounts it.
func (t *sessions) enter(s *session, c *conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	s.open++
	s.used = s.Clock()
	if t.channels[s.client] == nil {
		t.channels[s.client] = make(map[*conversation]struct{})
	}
	t.channels[s.client][c] = struct{}{}
}

func (t *sessions) leave(s *session, c *conversation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open--; t.open == 0 {
		wakeAll(&t.idle)
	}
	s.open--
	s.used = s.Clock()
	if delete(t.channels[s.client], c); len(t.channels[s.client]) == 0 {
		delete(t.channels, s.client)
	}
	if s.expired() {
		t.drop(s)
	}
}

// settled is closed when no conversation is open.
func (t *sessions) settled() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == 0 {
		return closedChan
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	return t.idle
}

// revoke drops the sessions of every client that is not allowed any more, and returns
// their conversations and principals.
func (t *sessions) revoke(allowed func(keys.PublicKey) bool) (ended []*conversation, clients []keys.PublicKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for client, mine := range t.byKey {
		if allowed(client) {
			continue
		}
		clients = append(clients, client)
		for _, s := range mine {
			delete(t.byID, s.ID())
		}
		delete(t.byKey, client)
	}
	for client, channels := range t.channels {
		if allowed(client) {
			continue
		}
		if !slices.Contains(clients, client) {
			clients = append(clients, client)
		}
		ended = slices.AppendSeq(ended, maps.Keys(channels))
	}
	return ended, clients
}
