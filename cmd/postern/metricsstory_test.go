//go:build linux

package main

import (
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// relayStory is what happens to a relay from its start to its drain.
type relayStory struct {
	*watchedRelay
	all map[string]string // families, when all of them are there

	client, executor, stranger *keys.PrivateKey
	narrow, narrowExecutor     *keys.PrivateKey // of a tenant with limits
	second                     *keys.PrivateKey // an executor too many there
	token                      *keys.JoinToken

	c, e, n, ne *relayHop
	near, far   wire.Stream
	again       wire.ID // the executor's instance
}

const narrowTenant = "tenant narrow conns=3 execs=1 circuits=1 bytes/s=64k handshakes/s=100"

func (s *relayStory) lists(more ...string) string {
	return rosterText(append([]string{
		"tenant acme", memberLine(s.client, "c"), memberLine(s.executor, "e"),
		narrowTenant, memberLine(s.narrow, "n"), memberLine(s.narrowExecutor, "ne"), memberLine(s.second, "second"),
	}, more...)...)
}

func (s *relayStory) admitAll() {
	s.t.Helper()
	s.client, s.executor, s.stranger = newKey(s.t, keys.Client), newKey(s.t, keys.Executor), newKey(s.t, keys.Client)
	s.narrow, s.narrowExecutor, s.second = newKey(s.t, keys.Client), newKey(s.t, keys.Executor), newKey(s.t, keys.Executor)
	s.admit(s.lists())
}

// refused tries to join, and wants a code.
func (s *relayStory) refused(key *keys.PrivateKey, hello *wire.HopHello, want wire.Code) {
	s.t.Helper()
	if _, err := s.tryJoin(s.url.Address(), s.url.Key, key, hello); wire.CodeOf(err) != want {
		s.t.Fatalf("refused with %v, want %v", err, want)
	}
}

// silent is a connection whose peer never says who it is.
func (s *relayStory) silent() *quicconn.Conn {
	s.t.Helper()
	c, err := relaytest.Dial(s.t.Context(), s.url.Address(), quicconn.Options{Role: wire.RoleClient})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close(wire.CodeShutdown, "over") })
	return c
}

func (s *relayStory) connecting() []movement {
	return []movement{
		{"somebody connects and says nothing", func() { s.silent() }, []string{"handshakes_in_flight", "connections_unadmitted"}},
		{"a client connects", func() { s.c = s.join(s.client) }, []string{
			`connections{role="client"}`, `handshakes_total{result="ok",role="client"}`, `handshake_duration_seconds_count{role="client"}`,
		}},
		{"an executor registers", func() {
			hello := helloOf(s.executor)
			s.again = hello.Instance
			var err error
			if s.e, err = s.tryJoin(s.url.Address(), s.url.Key, s.executor, hello); err != nil {
				s.t.Fatal(err)
			}
		}, []string{"executors_registered", `connections{role="executor"}`, `handshakes_total{result="ok",role="executor"}`}},
	}
}

func (s *relayStory) carrying() []movement {
	return []movement{
		{"a circuit is opened", func() { s.near, s.far = joinedCircuit(s.t, s.c, s.e, s.executor) }, []string{
			`dials_total{result="ok"}`, "dial_duration_seconds_count", "circuits", `tenant_dials_total{outcome="ok",tenant="acme"}`,
		}},
		{"it carries much", func() {
			go func() { _, _ = s.near.Write(make([]byte, 8<<20)) }() // the next event shows whether it arrives
			if _, err := io.CopyN(io.Discard, s.far, 8<<20); err != nil {
				s.t.Fatal(err)
			}
		}, []string{`relayed_bytes_total{direction="to_executor"}`, `tenant_relayed_bytes_total{direction="to_executor",tenant="acme"}`, "window_bytes"}},
		{"its client does not read", func() { go func() { _, _ = s.far.Write(make([]byte, 4<<20)) }() }, []string{
			`relayed_bytes_total{direction="to_client"}`, `tenant_relayed_bytes_total{direction="to_client",tenant="acme"}`, "buffer_bytes",
		}},
		{"its client gives up", func() { s.near.Reset(wire.CodeCancelled) }, []string{
			"circuits", "buffer_bytes", `circuit_ends_total{reason="cancelled"}`, "circuit_duration_seconds_count", `accounting_records_total{result="written"}`,
		}},
		{"somebody dials an executor that is not there", func() {
			if _, err := s.c.dial(s.second); wire.CodeOf(err) != wire.CodeUnreachable {
				s.t.Fatal(err)
			}
		}, []string{`dials_total{result="unreachable"}`, `refusals_total{code="unreachable"}`, `tenant_dials_total{outcome="failed",tenant="acme"}`}},
		{"a client asks for the executors", func() {
			c, err := client.New(client.Config{Key: s.client, Relay: s.url})
			if err != nil {
				s.t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Executors(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
		}, []string{`requests_total{request="list_executors",result="ok"}`}},
	}
}

func (s *relayStory) limiting() []movement {
	return []movement{
		{"a tenant has too many executors", func() {
			s.n, s.ne = s.join(s.narrow), s.join(s.narrowExecutor)
			s.refused(s.second, helloOf(s.second), wire.CodeBusy)
		}, []string{`limited_total{limit="tenant_executors"}`, `handshakes_total{result="limited",role="executor"}`}},
		{"a tenant has too many connections", func() {
			// The executor that was refused gives its place back when it has gone.
			if !eventually(func() bool {
				_, err := s.tryJoin(s.url.Address(), s.url.Key, s.narrow, helloOf(s.narrow))
				return err == nil
			}) {
				s.t.Fatal("the last connection that the tenant may have is refused")
			}
			s.refused(s.narrow, helloOf(s.narrow), wire.CodeBusy)
		}, []string{`limited_total{limit="tenant_connections"}`, `handshakes_total{result="limited",role="client"}`}},
		{"a tenant has too many circuits", func() {
			s.near, s.far = joinedCircuit(s.t, s.n, s.ne, s.narrowExecutor)
			if _, err := s.n.dial(s.narrowExecutor); wire.CodeOf(err) != wire.CodeBusy {
				s.t.Fatal(err)
			}
		}, []string{`limited_total{limit="tenant_circuits"}`, `dials_total{result="busy"}`, `tenant_dials_total{outcome="limited",tenant="narrow"}`}},
		{"a tenant sends faster than it may", func() { go func() { _, _ = s.near.Write(make([]byte, 1<<20)) }() }, []string{`limited_total{limit="tenant_bytes"}`}},
		{"it leaves", func() { s.n.leave() }, []string{`disconnects_total{reason="peer_closed",role="client"}`, `quic_rtt_seconds_count{role="client"}`}},
	}
}

func (s *relayStory) executors() []movement {
	return []movement{
		{"an executor connects once more", func() {
			hello := helloOf(s.executor)
			hello.Instance = s.again
			var err error
			if s.e, err = s.tryJoin(s.url.Address(), s.url.Key, s.executor, hello); err != nil {
				s.t.Fatal(err)
			}
		}, []string{`superseded_total{cause="same_instance"}`, `disconnects_total{reason="superseded",role="executor"}`}},
		{"another machine has its key", func() { s.refused(s.executor, helloOf(s.executor), wire.CodeDuplicate) }, []string{
			"duplicate_identity_total", `handshakes_total{result="duplicate",role="executor"}`, `refusals_total{code="duplicate"}`,
		}},
		{"another machine has the key of one that does not answer", func() {
			s.ne.leave()
			if !eventually(func() bool { return s.series()["postern_relay_executors_registered"] == 1 }) {
				s.t.Fatal("the executor is not gone")
			}
			c, err := relaytest.Dial(s.t.Context(), s.url.Address(), quicconn.Options{Role: wire.RoleExecutor})
			if err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { _ = c.Close(wire.CodeShutdown, "over") })
			if _, err := noiseconn.Join(s.t.Context(), c, s.narrowExecutor, s.url.Key, helloOf(s.narrowExecutor)); err != nil { // and nobody runs it
				s.t.Fatal(err)
			}
			s.ne = s.join(s.narrowExecutor)
		}, []string{`superseded_total{cause="dead_incumbent"}`}},
	}
}

func (s *relayStory) refusing() []movement {
	return []movement{
		{"a key comes that is not listed", func() { s.refused(s.stranger, helloOf(s.stranger), wire.CodeUnauthorized) }, []string{
			`handshakes_total{result="unknown_key",role="client"}`, `refusals_total{code="unauthorized"}`,
		}},
		{"a peer wants another version", func() {
			hello := helloOf(s.client)
			hello.Versions = wire.VersionRange{Min: wire.Version + 100, Max: wire.Version + 101}
			s.refused(s.client, hello, wire.CodeVersion)
		}, []string{`handshakes_total{result="version",role="client"}`}},
		{"a peer expects another relay", func() {
			if _, err := s.tryJoin(s.url.Address(), newKey(s.t, keys.Relay).Public(), s.client, helloOf(s.client)); err == nil {
				s.t.Fatal("it joins")
			}
		}, []string{`handshakes_total{result="bad_auth",role="unknown"}`}},
		{"a peer goes in the middle of the handshake", func() {
			const name = `postern_relay_handshakes_total{result="error",role="unknown"}`
			before := s.series()[name]
			eventually(func() bool { // one that goes before the relay has accepted it is none; the caller sees whether it worked
				_ = s.silent().Close(wire.CodeShutdown, "goes")
				return s.series()[name] > before
			})
		}, []string{`handshakes_total{result="error",role="unknown"}`}},
		{"a machine joins", func() {
			s.token = s.watchedRelay.token(s.client)
			if err := joinWith(s.t, s.token, newKey(s.t, keys.Executor), "joined"); err != nil {
				s.t.Fatal(err)
			}
		}, []string{`joins_total{result="ok"}`, `requests_total{request="add_token",result="ok"}`}},
		{"another machine joins with the same token", func() {
			if err := joinWith(s.t, s.token, newKey(s.t, keys.Executor), "thief"); wire.CodeOf(err) != wire.CodeToken {
				s.t.Fatalf("it is told %v", err)
			}
		}, []string{`joins_total{result="spent"}`, `handshakes_total{result="join",role="executor"}`}},
	}
}

func (s *relayStory) strangers() []movement {
	return []movement{
		{"an address fails again and again", func() {
			for range 6 { // three mistakes are free
				socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77)})
				if err != nil {
					s.t.Fatal(err)
				}
				s.failFrom(socket)
				socket.Close()
			}
		}, []string{`strangers_limited_total{limit="handshake_source"}`}},
		{"packets come faster than they are read", s.flood, []string{"udp_receive_drops_total"}},
	}
}

// failFrom connects from a socket and does not know the relay's key.
func (s *relayStory) failFrom(socket *net.UDPConn) {
	s.t.Helper()
	target, err := net.ResolveUDPAddr("udp", s.url.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := quicconn.DialPacket(s.t.Context(), socket, target, quicconn.Options{Role: wire.RoleClient})
	if err != nil {
		return // refused for what came before
	}
	defer c.Close(wire.CodeShutdown, "goes")
	if _, err := noiseconn.Join(s.t.Context(), c, s.client, newKey(s.t, keys.Relay).Public(), helloOf(s.client)); err == nil {
		s.t.Fatal("it joins without the relay's key")
	}
}

// flood fills the relay's socket while the relay stands still.
func (s *relayStory) flood() {
	s.t.Helper()
	socket, err := net.Dial("udp", s.url.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	defer socket.Close()
	signal := func(sig syscall.Signal) {
		if err := s.relay.cmd.Process.Signal(sig); err != nil {
			s.t.Fatal(err)
		}
	}
	room := s.series()["postern_relay_udp_receive_buffer_bytes"]
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	packet := []byte("too short for QUIC")
	const least = 512 // bytes that the smallest packet takes up in the kernel
	for range int(room)/least + 1000 {
		_, _ = socket.Write(packet) // the relay's counter says what became of it
	}
}

func (s *relayStory) operating() []movement {
	var moving *relayHop
	through := newForwarder(s.t, s.url.Address())
	return []movement{
		{"a list is bad", func() {
			s.write("relay/tenants", "nonsense\n")
			s.hangUp()
		}, []string{"config_reload_success"}},
		{"it is good again", func() { s.admit(s.lists(memberLine(s.stranger, "s"))) }, []string{"config_reload_success", "config_reload_success_timestamp_seconds"}},
		{"a peer's address changes", func() {
			var err error
			if moving, err = s.tryJoin(through.address(), s.url.Key, s.stranger, helloOf(s.stranger)); err != nil {
				s.t.Fatal(err)
			}
			through.rebind()
			if _, err := moving.dial(s.second); wire.CodeOf(err) != wire.CodeUnreachable {
				s.t.Fatal(err)
			}
			moving.leave()
		}, []string{`path_changes_total{role="client"}`}},
		{"a key is removed", func() {
			s.join(s.stranger)
			s.admit(strings.Replace(s.lists(), narrowTenant, "tenant narrow", 1))
		}, []string{`disconnects_total{reason="revoked",role="client"}`}},
		{"the one that says nothing has had its time", nil, []string{`handshakes_total{result="timeout",role="unknown"}`, `refusals_total{code="timeout"}`}},
	}
}
