package sandbox

import "fmt"

// NetworkMode is what a command reaches beyond its own processes. The zero value is the narrowest.
type NetworkMode int

const (
	// NetworkNone is a network of the command's own, with a loopback and no way out.
	NetworkNone NetworkMode = iota
	// NetworkProxy is NetworkNone with one more thing: a listener of the daemon's on ProxyAddress. Whatever the
	// command reaches, it reaches through who serves there; see Process.Listener.
	NetworkProxy
	// NetworkHost is the machine's own network, loopback services included. Abstract unix sockets of the machine stay
	// out of reach, for which the kernel must have Landlock's scopes (Linux 6.12).
	NetworkHost
)

var networkNames = [...]string{NetworkNone: "none", NetworkProxy: "proxy", NetworkHost: "host"}

// String is the mode in a word.
func (m NetworkMode) String() string {
	if m < NetworkNone || m > NetworkHost {
		return "invalid"
	}
	return networkNames[m]
}

const proxyPort = 3128 // of ProxyAddress

// ProxyAddress is where the daemon listens inside the network of a command under NetworkProxy. Nothing else there can
// use this port.
const ProxyAddress = "127.0.0.1:3128"

// Network is the network of a command. The zero value has none but its own loopback.
type Network struct {
	Mode NetworkMode
	// Session, if not empty, names a network that the command shares with all commands of the same Session and Mode, so
	// that one can reach what another serves on its loopback. They share nothing else. It lasts for a while beyond its
	// last command, but may end when nobody is in it and there are many. Not with NetworkHost, which is shared by all anyway.
	Session string
	// Owner is whose Session that is: those of two owners never meet, and one alone cannot have as many as there may be. Empty
	// is one owner more; it must be empty without a Session.
	Owner string
}

func (n Network) check() error {
	switch {
	case n.Mode < NetworkNone || n.Mode > NetworkHost:
		return fmt.Errorf("unknown network mode %d", int(n.Mode))
	case n.Mode == NetworkHost && n.Session != "":
		return fmt.Errorf("the machine's network needs no session: leave it out")
	case n.Owner != "" && n.Session == "":
		return fmt.Errorf("a network that nobody shares has no owner")
	}
	return nil
}
