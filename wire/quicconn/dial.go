package quicconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

// Options are the settings of the dialling side. Role must be set.
type Options struct {
	// Role decides timeouts, windows and how many streams the relay may open.
	Role wire.Role
	// MaxStreams is how many streams the relay may have open here at a time; zero is
	// 10,000 for an executor and none for a client, a negative number none.
	MaxStreams int64
	// DisablePathMTUDiscovery keeps packets at 1280 bytes. Simulated networks need it.
	DisablePathMTUDiscovery bool
}

// ErrNoAnswer is in the error of [Dial] when nothing came back over UDP.
var ErrNoAnswer = errors.New("no answer over UDP: is the relay running there, and does a firewall block UDP?")

// attemptDelay is how long an address has before the next one is tried beside it.
const attemptDelay = 250 * time.Millisecond

// Dial connects to a relay at "host:port". It resolves the name each time, tries all its
// addresses, IPv6 and IPv4, a quarter of a second apart and keeps the first connection
// that stands. The context bounds the call, not the connection. A relay that is at its
// limit or does not speak this version is a *wire.Error; an unknown name is a
// *net.DNSError; [ErrNoAnswer] is silence.
func Dial(ctx context.Context, address string, o Options) (*Conn, error) {
	targets, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	return raceDial(ctx, targets, func(ctx context.Context, target netip.AddrPort) (*Conn, error) {
		return dialAddr(ctx, target, o)
	})
}

func resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("relay address %q: want host:port: %w", address, err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 || host == "" {
		return nil, fmt.Errorf("relay address %q: want host:port with a port from 1 to 65535", address)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("relay name %s does not resolve: %w", host, err)
	}
	targets := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		targets[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return targets, nil
}

// raceDial starts a dial to each target, the next one when the one before failed or has
// taken attemptDelay. It returns after all of them have.
func raceDial(ctx context.Context, targets []netip.AddrPort, dial func(context.Context, netip.AddrPort) (*Conn, error)) (*Conn, error) {
	type result struct {
		conn *Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	var won *Conn
	var failure error
	next, running := 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	start := timer.C
	for running > 0 || next < len(targets) && won == nil {
		select {
		case <-start:
			target := targets[next]
			go func() {
				conn, err := dial(ctx, target)
				results <- result{conn, err}
			}()
			next, running = next+1, running+1
			if next == len(targets) {
				start = nil
			}
			timer.Reset(attemptDelay)
		case r := <-results:
			running--
			switch {
			case r.err != nil && won == nil:
				failure = worse(failure, r.err)
				timer.Reset(0)
			case r.err == nil && won == nil:
				won, start = r.conn, nil
				cancel()
			case r.err == nil:
				_ = r.conn.Close(wire.CodeCancelled, "another address answered first")
			}
		}
	}
	if won != nil {
		return won, nil
	}
	return nil, failure
}

// worse is the error that says more: an answer before silence, silence before the rest.
func worse(a, b error) error {
	rank := func(err error) int {
		if _, ok := errors.AsType[*wire.Error](err); ok {
			return 2
		}
		if errors.Is(err, ErrNoAnswer) {
			return 1
		}
		return 0
	}
	if a == nil || rank(b) > rank(a) {
		return b
	}
	return a
}

func dialAddr(ctx context.Context, target netip.AddrPort, o Options) (*Conn, error) {
	network := "udp6"
	if target.Addr().Is4() {
		network = "udp4"
	}
	local := &net.UDPAddr{}
	if target.Addr().IsLoopback() {
		local.IP = target.Addr().AsSlice() // no need to listen to the world
	}
	socket, err := openSocket(network, local)
	if err != nil {
		return nil, fmt.Errorf("socket for %s: %w", target, err)
	}
	c, err := dialPacket(ctx, socket, net.UDPAddrFromAddrPort(target), o, func() { _ = socket.Close() })
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return c, nil
}

// DialPacket is Dial to one address over a socket that the caller made and closes, after
// the connection. Nobody else may use it meanwhile; once Close of the connection has
// returned, it may carry the next one.
func DialPacket(ctx context.Context, socket net.PacketConn, target net.Addr, o Options) (*Conn, error) {
	return dialPacket(ctx, socket, target, o, func() {})
}

func dialPacket(ctx context.Context, socket net.PacketConn, target net.Addr, o Options, closed func()) (*Conn, error) {
	if o.Role != wire.RoleExecutor && o.Role != wire.RoleClient {
		return nil, fmt.Errorf("dial %s: options without a role", target)
	}
	silenceBufferWarning()
	conn, plain := coalesced(socket)
	t := &quic.Transport{Conn: conn, ConnectionIDLength: 8}
	q, err := t.Dial(ctx, target, dialTLS(), dialConfig(o))
	if err != nil {
		err = errors.Join(dialError(target, err), t.Close())
		plain()
		return nil, err
	}
	c, err := newConn(q, func() {
		_ = t.Close() // it has no connection left and fails only if the socket is gone
		plain()
		closed()
	})
	if err != nil {
		_ = q.CloseWithError(quic.ApplicationErrorCode(wire.CodeInternal), "no channel binding")
		err = errors.Join(err, t.Close())
		plain()
		return nil, err
	}
	return c, nil
}

// noApplicationProtocol is the TLS alert 120 as a QUIC error (RFC 9001 section 4.8).
const noApplicationProtocol = 0x100 + 120

// dialError says what a failed handshake means to whoever must mend it.
func dialError(target net.Addr, err error) error {
	if _, ok := errors.AsType[*quic.VersionNegotiationError](err); ok {
		return versionError(target)
	}
	if e, ok := errors.AsType[*quic.TransportError](err); ok {
		switch e.ErrorCode {
		case quic.ConnectionRefused:
			return wire.Errorf(wire.CodeBusy, "%s refuses new connections at the moment", target)
		case noApplicationProtocol:
			return versionError(target)
		case quic.InternalError:
			if !e.Remote { // the socket's own error: no route, a firewall of this machine's
				return fmt.Errorf("dial %s: this machine cannot send there over UDP: %s", target, e.ErrorMessage)
			}
		}
	}
	if e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && e.Timeout() { // quic-go's two timeouts, and the context's
		return fmt.Errorf("dial %s: %w (%w)", target, ErrNoAnswer, err)
	}
	return fmt.Errorf("dial %s: %w", target, err)
}

func versionError(target net.Addr) error {
	return wire.Errorf(wire.CodeVersion, "%s does not speak %s: is it a relay, and of this version?", target, wire.ALPN)
}
