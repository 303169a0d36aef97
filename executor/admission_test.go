package executor_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestNobodyIsAuthorizedByAnEmptyOrMissingList(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		client := newKey(t, keys.Client)
		empty, err := keys.ParseAuthorizedClients("clients", strings.NewReader("# nobody\n"))
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range map[string]func() *keys.AuthorizedClients{
			"no function":  nil,
			"a nil list":   func() *keys.AuthorizedClients { return nil },
			"zero value":   func() *keys.AuthorizedClients { return new(keys.AuthorizedClients) },
			"an empty one": func() *keys.AuthorizedClients { return empty },
		} {
			e, err := executor.New(executor.Config{Key: m.key, Clients: list, Backend: m.backend, Clock: m.clock})
			if err != nil {
				t.Fatal(err)
			}
			s, theirs := wiretest.Pipe()
			m.circuits.Go(func() { e.ServeCircuit(m.ctx, theirs, client.Public().Raw()) })
			_, err = m.greet(client, s)
			wantCode(t, name, err, wire.CodeUnauthorized)
			s.Reset(wire.CodeCancelled)
		}
	})
}

func TestHintOfTheRelayAuthorizesNobody(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		friend, stranger := newKey(t, keys.Client), newKey(t, keys.Client)
		m.admit(friend)
		_, err := m.greet(stranger, m.circuit(friend.Public().Raw()))
		wantCode(t, "a stranger under a friend's hint", err, wire.CodeUnauthorized)
		for _, hint := range [][32]byte{stranger.Public().Raw(), {}, m.key.Public().Raw()} {
			g, err := m.greet(friend, m.circuit(hint))
			if err != nil {
				t.Errorf("a friend under a wrong hint: %v", err)
				continue
			}
			// What it runs is its own, whatever the relay says.
			p := command("sleep", "1h")
			want[*wire.Started](t, g.openOn(m.circuit(hint), g.start(p)))
			if infos, _ := m.backend.As(executor.Caller{Principal: stranger.Public().String()}).List(t.Context()); len(infos) != 0 {
				t.Error("the hint became the principal")
			}
		}
		if mine, _ := m.backend.As(executor.Caller{Principal: friend.Public().String()}).List(t.Context()); len(mine) != 3 {
			t.Errorf("%d commands are the friend's, want 3", len(mine))
		}
	})
}

func TestKeyThatWasRemovedOpensNoChannelAndRunsNothingMore(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("stubborn", "1h")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		want[*wire.Output](t, c)
		idle := g.open(&wire.Control{Deadline: g.deadline(), Verb: wire.VerbList})
		want[*wire.List](t, idle)
		viewer, err := m.backend.As(executor.Caller{Principal: g.key.Public().String()}).Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.admit() // nobody
		refused := g.open(g.start(command("echo", "between")))
		wantRefusal(t, refused, wire.CodeUnauthorized) // also before anybody rechecks
		began := time.Now()
		m.Recheck()
		var code wire.Code
		for code == 0 {
			switch msg := next(t, c).(type) {
			case *wire.Refused:
				code = msg.Code
			case *wire.Output: // what the command says to TERM may come first
			default:
				t.Fatalf("got %+v", msg)
			}
		}
		if code != wire.CodeRevoked || time.Since(began) > time.Second {
			t.Errorf("the conversation was told %v after %v, want revoked within a second", code, time.Since(began))
		}
		if got := await(t, viewer); got.exit.Cause != wire.CauseRevoked || got.exit.Signal != "KILL" || got.after != wire.DefaultKillAfter {
			t.Errorf("the command ended %+v after %v, want revoked, by KILL after %v", got.exit, got.after, wire.DefaultKillAfter)
		}
		_, err = g.open(g.attach(p.ID, 0, true)).Recv()
		wantCode(t, "a channel of the old session", err, wire.CodeNoChannel)
		_, err = m.greet(g.key, m.circuit(g.key.Public().Raw()))
		wantCode(t, "a fresh handshake", err, wire.CodeUnauthorized)
		if m.runner.Starts() != 1 {
			t.Errorf("%d commands ran, want 1", m.runner.Starts())
		}
	})
}

func TestRecheckLeavesOtherClientsAlone(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		gone := newKey(t, keys.Client)
		m.admit(g.key, gone)
		if _, err := m.greet(gone, m.circuit([32]byte{})); err != nil {
			t.Fatal(err)
		}
		c := g.open(g.start(command("sleep", "10s")))
		want[*wire.Started](t, c)
		m.admit(g.key)
		m.Recheck()
		if exit := want[*wire.Exit](t, c); !exit.Status.Success() {
			t.Errorf("the command of another client ended %+v", exit.Status)
		}
	})
}

// A flood from one client takes the places of one client; the rest is for the others.
func TestFloodOfHandshakesLeavesRoomForOthers(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		const perClient = 128 // and 256 in all
		client := newKey(t, keys.Client)
		m.admit(client)
		flood := func(hint byte) {
			for range perClient {
				m.circuit([32]byte{hint}) // and says nothing
			}
		}
		refused := func(hint byte) error {
			s := m.circuit([32]byte{hint})
			s.SetReadDeadline(time.Now().Add(time.Second))
			_, err := s.Read(make([]byte, 1))
			return err
		}
		flood(1)
		synctest.Wait()
		wantCode(t, "one more of the flooder", refused(1), wire.CodeBusy)
		if _, err := m.greet(client, m.circuit([32]byte{2})); err != nil {
			t.Errorf("another client during the flood: %v", err)
		}
		synctest.Wait() // it has its answer before the executor has given its place back
		flood(3)
		synctest.Wait()
		wantCode(t, "anybody, with all places taken", refused(4), wire.CodeBusy)
		<-time.After(wire.HandshakeTimeout)
		synctest.Wait()
		for _, hint := range []byte{1, 3, 4} {
			if _, err := m.greet(client, m.circuit([32]byte{hint})); err != nil {
				t.Errorf("after the flood has timed out: %v", err)
			}
		}
	})
}

func TestCircuitOnWhichNothingBeginsTimesOut(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		for name, begin := range map[string][]byte{"nothing": nil, "half a handshake": {1, 4}, "half a channel": {2, 0, 0}} {
			s := m.circuit([32]byte{})
			if _, err := s.Write(begin); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if n, err := s.Read(make([]byte, 100)); n != 0 || err != io.EOF {
				t.Errorf("%s: got %d bytes and %v, want nothing and the end", name, n, err)
			}
			var err error
			for err == nil { // it is patient for a moment, for somebody who still writes
				<-time.After(time.Second)
				_, err = s.Write([]byte{0})
			}
			wantCode(t, name, err, wire.CodeTimeout)
			if took := time.Since(began); took < wire.HandshakeTimeout || took > wire.HandshakeTimeout+wire.HeaderTimeout+time.Second {
				t.Errorf("%s: it took %v, want %v and a little patience", name, took, wire.HandshakeTimeout)
			}
		}
		// A channel that opens and says nothing, too.
		c := g.first
		_, err := c.Recv()
		for err == nil {
			_, err = c.Recv()
		}
		wantCode(t, "a channel without a first message", err, wire.CodeTimeout)
	})
}

// What a client sent on a circuit is sent again, as a relay could: nothing may run twice.
func TestCircuitThatIsPlayedAgainRunsNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		running bool // while the first run goes on
	}{{"during the run", true}, {"afterwards", false}} {
		t.Run(c.name, func(t *testing.T) {
			onMachine(t, func(t *testing.T, m *machine) {
				client := newKey(t, keys.Client)
				m.admit(client)
				zero := &taped{Stream: m.circuit(client.Public().Raw())}
				g, err := m.greet(client, zero)
				if err != nil {
					t.Fatal(err)
				}
				first := g.start(command("sleep", "10s"))
				if err := g.first.Send(first); err != nil {
					t.Fatal(err)
				}
				want[*wire.Started](t, g.first)
				nth := &taped{Stream: m.circuit(client.Public().Raw())}
				conn := g.openOn(nth, g.start(command("sleep", "10s")))
				want[*wire.Started](t, conn)
				if !c.running {
					for _, c := range []*noiseconn.Conn{g.first, conn} {
						want[*wire.Exit](t, c)
						c.CloseWrite()
					}
				}
				synctest.Wait()
				for name, tape := range map[string][]byte{"a handshake": zero.bytes(), "a channel": nth.bytes()} {
					for range 3 {
						s := m.circuit(client.Public().Raw())
						if _, err := s.Write(tape); err != nil {
							continue // reset before all was played
						}
						s.CloseWrite()
						answer, _ := io.ReadAll(s)
						if name == "a channel" && (len(answer) == 0 || answer[0] != 0) {
							t.Errorf("%s that was played again got the answer %x", name, answer)
						}
					}
				}
				if m.runner.Starts() != 2 {
					t.Errorf("%d commands ran, want 2", m.runner.Starts())
				}
			})
		})
	}
}

func TestStartThatIsRepeatedOnAnotherChannelGivesTheSameExec(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		s := g.start(command("echo", "once"))
		for range 3 {
			c := g.open(s)
			started := want[*wire.Started](t, c)
			out := want[*wire.Output](t, c)
			exit := want[*wire.Exit](t, c)
			if started.ID != s.ID || string(out.Data) != "once\n" || exit.Seq != 2 {
				t.Errorf("got %+v, %q, %+v", started, out.Data, exit)
			}
			c.CloseWrite()
			g.attempt++
			s.Attempt = g.attempt
		}
		if m.runner.Starts() != 1 {
			t.Errorf("%d commands ran, want 1", m.runner.Starts())
		}
	})
}

func TestClientOfAnotherVersionIsRefused(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		client := newKey(t, keys.Client)
		m.admit(client)
		i, err := noiseconn.Dial(t.Context(), m.circuit([32]byte{}), noiseconn.InitiatorConfig{
			Static: client, Peer: m.key.Public().Raw(), Prologue: noiseconn.EndToEndPrologue(), Clock: m.clock,
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := i.Finish(&wire.Hello{Versions: wire.VersionRange{Min: 7, Max: 9}, Random: wire.Bytes32{1}})
		if err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, c, wire.CodeVersion)
	})
}

func TestNewRefusesAnIncompleteConfiguration(t *testing.T) {
	backend, err := executor.NewLocal(executor.LocalConfig{Runner: new(executortest.Runner)})
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]executor.Config{
		"no key":         {Backend: backend},
		"a client's key": {Key: newKey(t, keys.Client), Backend: backend},
		"no backend":     {Key: newKey(t, keys.Executor)},
	} {
		if _, err := executor.New(cfg); err == nil {
			t.Errorf("%s: an executor was made", name)
		}
	}
	e, err := executor.New(executor.Config{Key: newKey(t, keys.Executor), Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil {
		t.Error("an executor without a relay ran")
	}
}
