package wire

import (
	"errors"
	"fmt"
)

// NetworkMode is what a command reaches besides the loopback of its own sandbox.
type NetworkMode uint8

// The modes, from the narrowest.
const (
	NetworkNone      NetworkMode = 1 + iota // nothing
	NetworkAllowList                        // hosts that are named, through the executor's proxy
	NetworkHost                             // what the executor's machine reaches, its own services included
)

var networkNames = [...]string{NetworkNone: "none", NetworkAllowList: "allow-list", NetworkHost: "host"}

func (m NetworkMode) valid() bool { return m >= NetworkNone && m <= NetworkHost }

// String is the mode's name.
func (m NetworkMode) String() string {
	if m.valid() {
		return networkNames[m]
	}
	return fmt.Sprintf("network mode %d", uint8(m))
}

// Bounds of a Network.
const (
	MaxNetworkHosts   = 256 // entries of Allow
	MaxNetworkHost    = 260 // bytes of one: a name of 253 and a port
	MaxNetworkSession = 64  // bytes of Session
)

// Network is the network of a command. The zero value leaves it to the executor, which gives none to a command in a sandbox.
type Network struct {
	Mode NetworkMode `cbor:"1,keyasint"`
	// Allow is for NetworkAllowList: HOST or HOST:PORT, the first meaning ports 80 and 443. Empty allows nothing.
	Allow []string `cbor:"2,keyasint,omitempty"`
	// Session, if not empty, names a network that the command shares with the other commands of its principal that name
	// it and ask for the same: one reaches what another serves on its loopback. Not with NetworkHost.
	Session string `cbor:"3,keyasint,omitempty"`
}

// isZero reports whether nothing is asked for.
func (n Network) isZero() bool { return n.Mode == 0 && len(n.Allow) == 0 && n.Session == "" }

func (n *Network) check() error {
	switch {
	case n == nil:
		return nil
	case !n.Mode.valid():
		return errors.New("unknown network mode")
	case len(n.Allow) > 0 && n.Mode != NetworkAllowList:
		return errors.New("hosts of a network that is no allow-list")
	case len(n.Allow) > MaxNetworkHosts:
		return fmt.Errorf("%d hosts: at most %d are allowed", len(n.Allow), MaxNetworkHosts)
	case len(n.Session) > MaxNetworkSession:
		return fmt.Errorf("the name of a network session has %d bytes: at most %d are allowed", len(n.Session), MaxNetworkSession)
	case n.Session != "" && n.Mode == NetworkHost:
		return errors.New("the machine's network has no sessions")
	}
	for _, host := range n.Allow {
		if host == "" || len(host) > MaxNetworkHost {
			return errors.New("a host that is no name")
		}
	}
	for _, r := range n.Session {
		if r < ' ' || r == 0x7f {
			return errors.New("control character in the name of a network session")
		}
	}
	return nil
}

// pointer is n for a message, nil where there is nothing to say.
func (n Network) pointer() *Network {
	if n.isZero() {
		return nil
	}
	return &n
}

// value is the inverse of pointer.
func (n *Network) value() Network {
	if n == nil {
		return Network{}
	}
	return *n
}
