package relay_test

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/accounting"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
)

// ledger keeps what a relay writes down.
type ledger struct {
	mu      sync.Mutex
	records []accounting.Record
}

func (l *ledger) write(r accounting.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

// byCircuit are the records of each circuit, which must be numbered from 1 with an end in the last one only.
func (l *ledger) byCircuit(t *testing.T) map[uint64][]accounting.Record {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[uint64][]accounting.Record)
	for _, r := range l.records {
		before := all[r.Circuit]
		if r.Seq != uint64(len(before)+1) {
			t.Errorf("record %d of circuit %d is numbered %d", len(before)+1, r.Circuit, r.Seq)
		}
		if len(before) > 0 && before[len(before)-1].End != "" {
			t.Errorf("circuit %d has a record after its end", r.Circuit)
		}
		all[r.Circuit] = append(before, r)
	}
	return all
}

func sums(records []accounting.Record) (up, down uint64) {
	for _, r := range records {
		up, down = up+r.ToExecutor, down+r.ToClient
	}
	return up, down
}

func withLedger(t *testing.T) (memory, *ledger) {
	t.Helper()
	l, listener := new(ledger), relaytest.NewListener()
	r := relaytest.ServeWith(t, listener, func(c *relay.Config) { c.Accounting = l.write })
	return memory{r, listener}, l
}

func TestRecordsOfALongCircuitComeEveryFiveMinutesAndAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := withLedger(t)
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		start := time.Now()
		c, e := circuit(t, client, executor)
		var up, down uint64
		for range 16 { // a minute and a half short of a quarter of an hour and the next record
			say(t, c, "twelve bytes")
			hear(t, e, "twelve bytes")
			say(t, e, "five.")
			hear(t, c, "five.")
			up, down = up+12, down+5
			time.Sleep(time.Minute)
		}
		_ = c.CloseWrite()
		_ = e.CloseWrite()
		synctest.Wait()
		all := l.byCircuit(t)
		if len(all) != 1 {
			t.Fatalf("records of %d circuits, want 1", len(all))
		}
		for _, records := range all {
			if len(records) != 4 {
				t.Fatalf("%d records, want three and the last", len(records))
			}
			for i, rec := range records {
				at, end := start.Add(time.Duration(i+1)*5*time.Minute), ""
				if i == 3 {
					at, end = start.Add(16*time.Minute), "ok"
				}
				if !rec.Time.Equal(at) || rec.End != end || !rec.Start.Equal(start) {
					t.Errorf("record %d: at %v, end %q, start %v, want %v, %q, %v", i+1, rec.Time, rec.End, rec.Start, at, end, start)
				}
				if rec.Relay != r.Key.Public().String() || rec.Tenant != relaytest.Tenant ||
					rec.Client != client.key.Public().String() || rec.Executor != executor.key.Public().String() {
					t.Errorf("record %d names others: %+v", i+1, rec)
				}
			}
			if gotUp, gotDown := sums(records); gotUp != up || gotDown != down {
				t.Errorf("sums %d and %d, want %d and %d", gotUp, gotDown, up, down)
			}
		}
	})
}

func TestNoRecordIsLostOverManyCircuits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := withLedger(t)
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		type want struct {
			up, down uint64
			end      string
		}
		wanted := make(map[uint64]want)
		for n := range 200 {
			s := client.ask(executor.key.Public())
			reply := client.reply(s)
			e, _ := executor.incoming()
			up, down := n%7*1000, n%5*1000
			say(t, s, string(make([]byte, up)))
			_, _ = io.ReadFull(e, make([]byte, up))
			say(t, e, string(make([]byte, down)))
			_, _ = io.ReadFull(s, make([]byte, down))
			w := want{uint64(up), uint64(down), "ok"}
			switch n % 3 {
			case 0:
				_, _ = s.CloseWrite(), e.CloseWrite()
			case 1:
				s.Reset(wire.CodeCancelled)
				w.end = wire.CodeCancelled.String()
			case 2:
				e.Reset(wire.CodeNoChannel)
				w.end = wire.CodeNoChannel.String()
			}
			wanted[reply.Circuit] = w
		}
		// Refused ones are none, and what goes on is there with the end of its connection.
		wantCode(t, "nobody", client.reply(client.ask(generate(t, keys.Executor).Public())).Code, wire.CodeUnreachable)
		s := client.ask(executor.key.Public())
		wanted[client.reply(s).Circuit] = want{end: wire.CodeCancelled.String()}
		executor.incoming()
		synctest.Wait()
		_ = client.Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		all := l.byCircuit(t)
		if len(all) != len(wanted) {
			t.Errorf("records of %d circuits, want %d", len(all), len(wanted))
		}
		for id, w := range wanted {
			records := all[id]
			if len(records) != 1 {
				t.Fatalf("circuit %d has %d records, want 1", id, len(records))
			}
			if up, down := sums(records); up != w.up || down != w.down || records[0].End != w.end {
				t.Errorf("circuit %d: %d and %d, end %q, want %+v", id, up, down, records[0].End, w)
			}
		}
	})
}

func TestRecordsAreKeptWhileTheRateHoldsTheirCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := withLedger(t)
		const perSecond = 1000
		r.Limit("acme", keys.TenantLimits{Bytes: perSecond})
		client, executor := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "acme", keys.Executor)
		c, e := circuit(t, client, executor)
		arrived := flow(c, e)
		time.Sleep(21 * time.Minute)
		c.Reset(wire.CodeCancelled)
		synctest.Wait()
		time.Sleep(time.Minute)
		for id, records := range l.byCircuit(t) {
			if len(records) != 5 || records[4].End != wire.CodeCancelled.String() {
				t.Errorf("circuit %d: records %+v, want four and the end", id, records)
			}
			up, _ := sums(records)
			if got := uint64(arrived()); up < got || up > got+2*32*kib { // what was read when it ended, and not delivered
				t.Errorf("sum %d, %d bytes arrived", up, got)
			}
			for _, rec := range records[1:4] {
				if rec.ToExecutor < 300*perSecond-33*kib || rec.ToExecutor > 300*perSecond+33*kib {
					t.Errorf("record %d has %d bytes, want what five minutes of the rate are", rec.Seq, rec.ToExecutor)
				}
			}
		}
		if n := value(t, r.Relay, "relayed_bytes_total", "to_executor"); n == 0 {
			t.Error("nothing counted")
		}
	})
}

func TestCircuitOfAClientThatLeavesInOrderIsNoLostPeer(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(client, executor wire.Transport)
		want  wire.Code
	}{
		"the client ends its connection":   {func(c, _ wire.Transport) { _ = c.Close(wire.CodeShutdown, "") }, wire.CodeCancelled},
		"the client finds a fault":         {func(c, _ wire.Transport) { _ = c.Close(wire.CodeProtocol, "") }, wire.CodeUnknown},
		"the executor ends its connection": {func(_, e wire.Transport) { _ = e.Close(wire.CodeShutdown, "") }, wire.CodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := withLedger(t)
				executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
				circuit(t, client, executor)
				test.leave(client, executor)
				synctest.Wait()
				if n := value(t, r.Relay, "circuit_ends_total", test.want.String()); n != 1 {
					t.Errorf("%v ends counted as %v, want 1", n, test.want)
				}
				for _, records := range l.byCircuit(t) {
					if end := records[len(records)-1].End; end != test.want.String() {
						t.Errorf("written down as %q, want %v", end, test.want)
					}
				}
			})
		})
	}
}
