package relay

import (
	"time"

	"github.com/postern-relay/postern/wire"
)

// Status is what a relay does at the moment, for people and scripts. It names nobody.
type Status struct {
	Started   time.Time `json:"started"`
	Executors int       `json:"executors"` // registered
	Clients   int       `json:"clients"`   // connected
	Circuits  int       `json:"circuits"`
	Tenants   int       `json:"tenants"`
	Members   int       `json:"members"` // clients and executors that are admitted
	Tokens    int       `json:"tokens"`  // that can still be used
	// Disconnects are the latest ends of connections, the newest last.
	Disconnects []Disconnect `json:"disconnects"`
}

// Disconnect is the end of a connection.
type Disconnect struct {
	At     time.Time `json:"at"`
	Role   string    `json:"role"`
	Reason string    `json:"reason"`
}

// keptDisconnects is how many a Status has.
const keptDisconnects = 100

// Status says what the relay does now.
func (s *Server) Status() Status {
	current := s.roster.Current()
	status := Status{Started: s.started, Circuits: int(s.open.Load()), Disconnects: []Disconnect{}}
	for _, t := range current.All() {
		status.Tenants++
		status.Members += len(current.Members(t.Name))
		for _, j := range current.Joins(t.Name) {
			if j.Used < j.Uses && time.Now().Before(j.Expires) {
				status.Tokens++
			}
		}
	}
	status.Executors = s.registry.count()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.role == wire.RoleClient {
			status.Clients++
		}
	}
	status.Disconnects = append(status.Disconnects, s.disconnects...)
	return status
}

// disconnected notes the end of a connection. Callers hold mu.
func (s *Server) disconnected(d Disconnect) {
	if len(s.disconnects) == keptDisconnects {
		s.disconnects = append(s.disconnects[:0], s.disconnects[1:]...)
	}
	s.disconnects = append(s.disconnects, d)
}

// count is how many executors are registered.
func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey)
}
