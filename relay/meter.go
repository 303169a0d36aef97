package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/relay/accounting"
)

// meter counts what one circuit carries, for the accounting. It writes a record each accounting.Interval, and one at
// the end.
type meter struct {
	up, down atomic.Uint64 // bytes to the executor, to the client

	write func(accounting.Record) // nil: nothing is written
	begun time.Time

	mu     sync.Mutex
	record accounting.Record // the last one
	told   [2]uint64         // of up and down, by the records so far
	timer  *time.Timer
	ended  bool
}

// newMeter begins to count for a circuit between two members of a tenant.
func (s *Server) newMeter(circuit uint64, client, executor *conn) *meter {
	m := &meter{write: s.accounting, begun: time.Now()}
	if m.write == nil {
		return m
	}
	m.record = accounting.Record{
		Relay: s.relayName(), Tenant: client.tenant, Client: client.key.String(), Executor: executor.key.String(),
		Circuit: circuit, Start: m.begun.UTC(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer = time.AfterFunc(accounting.Interval, m.tick)
	return m
}

// relayName is what the accounting calls this relay.
func (s *Server) relayName() string {
	current, _ := s.keys()
	return current.Public().String()
}

// tick writes a record of a circuit that goes on.
func (m *meter) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.tell("")
		m.timer.Reset(accounting.Interval)
	}
}

// end writes the last record.
func (m *meter) end(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended = true; m.write != nil {
		m.timer.Stop()
		m.tell(reason)
	}
}

// tell writes what was carried since the last record. Callers hold mu.
func (m *meter) tell(end string) {
	up, down := m.up.Load(), m.down.Load()
	m.record.Time, m.record.End = time.Now().UTC(), end
	m.record.Seq++
	m.record.ToExecutor, m.record.ToClient = up-m.told[0], down-m.told[1]
	m.told = [2]uint64{up, down}
	m.write(m.record)
}
