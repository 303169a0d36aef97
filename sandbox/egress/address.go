package egress

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// never are the networks that no permission opens: this host, link-local (where clouds
// have their metadata services), multicast and broadcast, the metadata and machine
// services that clouds have elsewhere, and forms that hide an IPv4 address at a place
// which only the translator knows.
var never = prefixes(
	"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
	"100.100.100.200/32",              // Alibaba Cloud
	"168.63.129.16/32",                // Azure
	"192.0.0.192/32",                  // Oracle Cloud
	"::/128", "fe80::/10", "ff00::/8", //
	"fd00:ec2::/32", "fd20:ce::254/128", // AWS, Google Cloud
	"64:ff9b:1::/48", // RFC 8215
)

// reserved are the networks that are not the public Internet, after the registries of
// special-purpose addresses that RFC 6890 set up, and former ones. Of IPv6 only 2000::/3
// is public, so that this names the exceptions within.
var reserved = prefixes(
	"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23",     // Teredo (RFC 4380), ORCHID, benchmarks, protocol assignments
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4 (RFC 3056)
	"3fff::/20",     // documentation (RFC 9637)
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	sixToFour     = netip.MustParsePrefix("2002::/16")
	teredo        = netip.MustParsePrefix("2001::/32")
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	compatible    = netip.MustParsePrefix("::/96")        // RFC 4291 section 2.5.5.1
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParsePrefix(s)
	}
	return list
}

func inside(addr netip.Addr, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// reachable tells whether a command may reach an address: the public Internet, and what
// the owner permits in addition. own tells which addresses are this machine's; these are
// refused like private ones, since services of the machine may trust what comes from it.
func reachable(addr netip.Addr, permit []netip.Prefix, own func(netip.Addr) bool) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if inside(addr, never) {
		return false
	}
	hidden := embedded(addr)
	for _, v4 := range hidden {
		if inside(v4, never) {
			return false
		}
	}
	if inside(addr, permit) {
		return true
	}
	if nat64.Contains(addr) { // how a network without IPv4 reaches all of it
		return reachable(hidden[0], permit, own)
	}
	public := addr.Is4() || globalUnicast.Contains(addr)
	return public && !inside(addr, reserved) && !own(addr)
}

// embedded are the IPv4 addresses that an IPv6 address carries in itself, and to which a
// translator or tunnel of this machine may send what is sent to it.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	switch {
	case nat64.Contains(addr), compatible.Contains(addr) && !addr.IsLoopback():
		return []netip.Addr{netip.AddrFrom4([4]byte(b[12:]))}
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(addr): // the server, and the client with its bits turned over
		return []netip.Addr{
			netip.AddrFrom4([4]byte(b[4:8])),
			netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}),
		}
	}
	return nil
}

var noRoute = []error{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT,
	syscall.EACCES, syscall.EPERM,
}

// isOwn tells whether an address belongs to this machine. What is sent to an own address
// is sent from it; connecting a UDP socket tells the source and sends nothing.
func isOwn(addr netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
	if err != nil {
		// Without a route it is not own, and cannot be dialled either. Other errors, such
		// as too many open files, say nothing.
		return !slices.ContainsFunc(noRoute, func(e error) bool { return errors.Is(err, e) })
	}
	defer conn.Close()
	from, ok := conn.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap() == addr
}
