package egress

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"time"
)

// SOCKS 5 as in RFC 1928, for the command CONNECT without authentication. It is a reading
// of at most 520 bytes whose lengths are all known in advance.
const (
	socks4Version, socks5Version = 4, 5

	socksNoAuth, socksNoMethod = 0x00, 0xff
	socksConnect               = 1

	socksIPv4, socksName, socksIPv6 = 1, 3, 4

	socksGranted            = 0
	socksFailure            = 1
	socksNotAllowed         = 2
	socksHostUnreachable    = 4
	socksRefused            = 5
	socksUnsupportedCommand = 7
	socksUnsupportedAddress = 8
)

// serveSOCKS serves a connection whose version byte has been read, and closes it.
func (p *Proxy) serveSOCKS(c *clientConn) {
	ok, err := readSOCKSGreeting(c)
	if err != nil {
		c.Close()
		return
	}
	if !ok {
		p.decided(Decision{Protocol: SOCKS5, Reason: Malformed})
		c.Write([]byte{socks5Version, socksNoMethod})
		linger(c)
		return
	}
	if _, err := c.Write([]byte{socks5Version, socksNoAuth}); err != nil {
		c.Close()
		return
	}
	d, code, err := readSOCKSRequest(c)
	if err != nil {
		c.Close()
		return
	}
	if d.Reason == 0 {
		d.Reason = p.check(c, d.Host, d.Port)
	} else if c.turnedAway {
		d.Reason, code = TooMany, 0
	}
	c.SetDeadline(time.Time{})
	upstream, err := p.open(&d)
	if err != nil {
		if code == 0 {
			code = p.explain(d, err).socks
		}
		c.Write(socksReply(code))
		linger(c)
		return
	}
	if _, err := c.Write(socksReply(socksGranted)); err != nil {
		upstream.Close()
		c.Close()
		return
	}
	join(p.ctx, c.Conn, upstream, nil)
	c.Close()
}

// readSOCKSGreeting reads the methods that a client knows, and tells whether "no
// authentication" is one.
func readSOCKSGreeting(r io.Reader) (bool, error) {
	var b [256]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return false, err
	}
	methods := b[1 : 1+int(b[0])]
	_, err := io.ReadFull(r, methods)
	return bytes.IndexByte(methods, socksNoAuth) >= 0, err
}

// readSOCKSRequest reads where a client wants to go. If the reason of the decision is not
// zero, the request is answered with the code, or, if that is zero, for the reason.
func readSOCKSRequest(r io.Reader) (d Decision, code byte, err error) {
	d.Protocol = SOCKS5
	var head [4]byte // version, command, reserved, type of address
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return d, 0, err
	}
	if head[0] != socks5Version {
		return d, 0, errors.New("not SOCKS 5")
	}
	var b [256 + 2]byte
	size := 0
	switch head[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		if _, err := io.ReadFull(r, b[:1]); err != nil {
			return d, 0, err
		}
		size = int(b[0])
	default:
		d.Reason = Malformed
		return d, socksUnsupportedAddress, nil
	}
	if _, err := io.ReadFull(r, b[:size+2]); err != nil {
		return d, 0, err
	}
	host := string(b[:size])
	d.Port = uint16(b[size])<<8 | uint16(b[size+1])
	if head[3] != socksName {
		addr, _ := netip.AddrFromSlice(b[:size])
		host = addr.String()
	}
	name, ok := canonicalHost(host)
	switch {
	case head[1] != socksConnect:
		d.Host, d.Reason, code = showable(host), Malformed, socksUnsupportedCommand
	case !ok:
		d.Host, d.Reason = showable(host), NotAName
	case d.Port == 0:
		d.Host, d.Reason = name, Malformed
	default:
		d.Host = name
	}
	return d, code, nil
}

// socksReply has an address that says nothing: which one is used outside is nobody's
// business inside.
func socksReply(code byte) []byte {
	return []byte{socks5Version, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}
}
