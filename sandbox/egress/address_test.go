package egress

import (
	"net"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func notOwn(netip.Addr) bool { return false }

func TestOnlyThePublicInternetIsReachable(t *testing.T) {
	for addr, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "93.184.215.14": true, "::ffff:8.8.8.8": true,
		"2606:4700:4700::1111": true, "2a00:1450:4001:800::200e": true,
		"64:ff9b::8.8.8.8": true, // NAT64 of a public address

		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "100.64.0.1": false, "100.127.255.255": false,
		"127.0.0.1": false, "127.255.255.254": false, "169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false,
		"192.0.0.1": false, "192.0.2.1": false, "192.88.99.1": false, "192.168.1.1": false, "198.18.0.1": false,
		"198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.1.1.1": false, "240.0.0.1": false,
		"255.255.255.255": false, "100.100.100.200": false, "168.63.129.16": false,

		"::": false, "::1": false, "::2": false, "::127.0.0.1": false, "::8.8.8.8": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:0:8.8.8.8": false,
		"64:ff9b::10.0.0.1": false, "64:ff9b::127.0.0.1": false, "64:ff9b::169.254.169.254": false, "64:ff9b:1::8.8.8.8": false,
		"100::1": false, "2001::1": false, "2001:0:808:808::": false, "2001:db8::1": false, "2001:20::1": false,
		"2002:808:808::1": false, "2002:7f00:1::1": false, "3fff::1": false, "5f00::1": false, "4000::1": false,
		"fc00::1": false, "fd00::1": false, "fd00:ec2::254": false, "fd20:ce::254": false, "fe80::1": false, "fe80::1%eth0": false,
		"fec0::1": false, "ff02::1": false, "ff0e::1": false, "2606:4700:4700::1111%eth0": false,
	} {
		if got := reachable(netip.MustParseAddr(addr), nil, notOwn); got != want {
			t.Errorf("reachable(%s) = %v, want %v", addr, got, want)
		}
	}
	if reachable(netip.Addr{}, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, notOwn) {
		t.Error("the zero address is reachable")
	}
}

func TestPermitOpensPrivateNetworksButNeverMetadata(t *testing.T) {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for addr, want := range map[string]bool{
		"10.0.0.1": true, "127.0.0.1": true, "::1": true, "fd12::1": true, "100.64.0.1": true, "64:ff9b::10.0.0.1": true,
		"::ffff:10.0.0.1": true,

		"0.0.0.0": false, "169.254.169.254": false, "169.254.170.2": false, "100.100.100.200": false, "168.63.129.16": false,
		"224.0.0.1": false, "255.255.255.255": false, "::": false, "fe80::1": false, "ff02::1": false,
		"fd00:ec2::254": false, "fd00:ec2::23": false, "fd20:ce::254": false,
		"::ffff:169.254.169.254": false, "::169.254.169.254": false, "64:ff9b::169.254.169.254": false,
		"64:ff9b:1::a9fe:a9fe": false, "2002:a9fe:a9fe::1": false,
		"2001:0:a9fe:a9fe::": false, "2001:0:808:808:0:0:5601:5601": false, // server, and client turned over
		"10.0.0.1%x": false,
	} {
		a, err := netip.ParseAddr(addr)
		if err != nil { // IPv4 has no zones
			continue
		}
		if got := reachable(a, everything, notOwn); got != want {
			t.Errorf("reachable(%s) with everything permitted = %v, want %v", addr, got, want)
		}
	}
	only := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	for addr, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "10.2.0.1": false, "192.168.0.1": false, "8.8.8.8": true,
	} {
		if got := reachable(netip.MustParseAddr(addr), only, notOwn); got != want {
			t.Errorf("reachable(%s) with %v permitted = %v, want %v", addr, only, got, want)
		}
	}
}

func TestNetworksThatCannotBePermittedAreAnError(t *testing.T) {
	for _, s := range []string{
		"169.254.169.254/32", "169.254.0.0/16", "169.254.128.0/17", "fe80::/10", "fe80::1/128", "224.0.0.0/4", "0.0.0.0/32",
		"255.255.255.255/32", "fd00:ec2::254/128", "ff02::/16", "::/128", "::ffff:10.0.0.0/104",
	} {
		if _, err := New(Options{Permit: []netip.Prefix{netip.MustParsePrefix(s)}}); err == nil {
			t.Errorf("%s is permitted", s)
		}
	}
	if _, err := New(Options{Permit: []netip.Prefix{{}}}); err == nil {
		t.Error("the zero prefix is permitted")
	}
}

// Any mapping of a refused IPv4 address into IPv6 is refused too.
func TestRefusedAddressesAreRefusedInEveryForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
		v4 := netip.AddrFrom4(b)
		mapped := netip.AddrFrom16(v4.As16())
		translated := [16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
		want := reachable(v4, nil, notOwn)
		for _, a := range []netip.Addr{mapped, netip.AddrFrom16(translated)} {
			if reachable(a, nil, notOwn) != want {
				t.Fatalf("reachable(%v) = %v, but %v", v4, want, a)
			}
		}
		sixToFour := netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3]})
		if reachable(sixToFour, nil, notOwn) {
			t.Fatalf("%v is reachable", sixToFour)
		}
	})
}

func TestOwnAddressesAreRecognized(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Skipf("no list of own addresses: %v", err)
	}
	own := 0
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		own++
		if !isOwn(prefix.Addr()) {
			t.Errorf("isOwn(%v) = false", prefix.Addr())
		}
		if reachable(prefix.Addr(), nil, isOwn) {
			t.Errorf("own address %v is reachable", prefix.Addr())
		}
	}
	if own == 0 {
		t.Error("not even loopback was found")
	}
	if isOwn(netip.MustParseAddr("192.0.2.1")) {
		t.Error("an address of nobody is own")
	}
}

func TestOwnPublicAddressIsRefusedUnlessPermitted(t *testing.T) {
	addr := netip.MustParseAddr("8.8.8.8")
	own := func(a netip.Addr) bool { return a == addr }
	if reachable(addr, nil, own) || reachable(netip.MustParseAddr("64:ff9b::8.8.8.8"), nil, own) {
		t.Error("an own public address is reachable")
	}
	if !reachable(addr, []netip.Prefix{netip.MustParsePrefix("8.8.8.8/32")}, own) {
		t.Error("an own address cannot be permitted")
	}
}
