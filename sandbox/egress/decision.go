package egress

import (
	"net"
	"net/netip"
	"strconv"
)

// Protocol is how a request reached the proxy.
type Protocol uint8

const (
	_ Protocol = iota
	// HTTPConnect is a tunnel asked for with the method CONNECT, as for https.
	HTTPConnect
	// PlainHTTP is a request with an absolute http:// URL.
	PlainHTTP
	// SOCKS5 is the command CONNECT of RFC 1928.
	SOCKS5
)

// String returns a short lower-case name, "unknown" for the zero value.
func (p Protocol) String() string {
	return name(int(p), []string{"unknown", "connect", "http", "socks5"})
}

// Reason is why a request failed; zero means that it did not.
type Reason uint8

const (
	_ Reason = iota
	// NoRule: the rules do not have the host.
	NoRule
	// PortNotAllowed: the rules have the host, with other ports.
	PortNotAllowed
	// NotAName: the destination is an address or no host name at all.
	NotAName
	// PrivateAddress: an address of the host is private, reserved or the machine's own.
	PrivateAddress
	// NotResolved: the name server knows no address of the host, or did not answer.
	NotResolved
	// DialFailed: none of the addresses of the host took the connection.
	DialFailed
	// TooMany: too many connections were open at once.
	TooMany
	// Malformed: the request could not be understood, or asked for what the proxy does
	// not do.
	Malformed
)

// String returns a short lower-case text, "none" for zero.
func (r Reason) String() string {
	return name(int(r), []string{
		"none", "no rule", "port not allowed", "not a host name", "private address",
		"name does not resolve", "dial failed", "too many connections", "malformed request",
	})
}

func name(i int, names []string) string {
	if i >= len(names) {
		return names[0]
	}
	return names[i]
}

// Decision is what became of one request. It holds nothing of what the request carried.
type Decision struct {
	Protocol Protocol
	// Host is the destination's name in canonical form, or what was given instead if that
	// consists of letters, digits, '-' and '.' or is an address; else empty.
	Host string
	// Port is zero where the request had none that could be read.
	Port uint16
	// Allowed tells that the policy let the request pass. It may have failed
	// nevertheless, with Reason NotResolved or DialFailed.
	Allowed bool
	Reason  Reason
	// Addr is the address of the connection, or with PrivateAddress the one that was
	// refused; else not valid.
	Addr netip.AddrPort
}

// Destination returns Host:Port for a person to read.
func (d Decision) Destination() string {
	host := d.Host
	if host == "" {
		host = "(no host name)"
	}
	if d.Port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(d.Port)))
}
