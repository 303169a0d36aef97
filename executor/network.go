package executor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/sandbox/egress"
	"github.com/postern-relay/postern/wire"
)

// Network is what a command reaches, or the most that one may ask for. The zero value is nothing but the command's own loopback.
type Network struct {
	Mode wire.NetworkMode // zero is wire.NetworkNone
	// Rules are the hosts of wire.NetworkAllowList.
	Rules egress.Rules
	// Any is for a most with wire.NetworkAllowList: a command may ask for any hosts, not only for those of Rules.
	Any bool
	// Session is the name of a network that commands of one principal share; empty: none.
	Session string
	owner   string // the principal, of a command's
}

// ParseNetwork reads the text of a network: none, host, or allow=HOST[:PORT],... For a most (of an executor's owner) allow
// alone is an allow-list of any hosts.
func ParseNetwork(s string, most bool) (Network, error) {
	list, isList := strings.CutPrefix(s, "allow=")
	switch {
	case s == "none":
		return Network{Mode: wire.NetworkNone}, nil
	case s == "host":
		return Network{Mode: wire.NetworkHost}, nil
	case s == "allow" && most:
		return Network{Mode: wire.NetworkAllowList, Any: true}, nil
	case isList:
		rules, err := egress.ParseRules(list)
		if err == nil && rules.Empty() {
			err = errors.New("name at least one host")
		}
		return Network{Mode: wire.NetworkAllowList, Rules: rules}, err
	case most:
		return Network{}, fmt.Errorf("network %q: want none, allow, allow=HOST[:PORT],... or host", s)
	}
	return Network{}, fmt.Errorf("network %q: want none, host or allow=HOST[:PORT],... with names of hosts", s)
}

// Wire is n as a request asks for it.
func (n Network) Wire() wire.Network {
	w := wire.Network{Mode: max(n.Mode, wire.NetworkNone), Session: n.Session}
	if n.Mode == wire.NetworkAllowList && !n.Rules.Empty() {
		w.Allow = strings.Split(n.Rules.String(), ",")
	}
	return w
}

// anyHost reports whether hosts that are not in Rules may be reached too, or asked for.
func (n Network) anyHost() bool {
	return n.Mode == wire.NetworkHost || n.Mode == wire.NetworkAllowList && n.Any
}

// Meet is what both allow, in the session of m if there is one.
func (n Network) Meet(m Network) Network {
	both := Network{Mode: max(min(n.Mode, m.Mode), wire.NetworkNone), Session: m.Session}
	if both.Session == "" {
		both.Session = n.Session
	}
	if both.Mode != wire.NetworkAllowList {
		return both
	}
	switch {
	case n.anyHost() && m.anyHost():
		both.Any = true
	case n.anyHost():
		both.Rules = m.Rules
	case m.anyHost():
		both.Rules = n.Rules
	default:
		both.Rules = n.Rules.Meet(m.Rules)
	}
	return both
}

// within bounds a most by what a line of authorized_clients allows.
func (n Network) within(c keys.NetworkCeiling) Network {
	switch c {
	case keys.NetworkHost:
		return n
	case keys.NetworkAllowList:
		return n.Meet(Network{Mode: wire.NetworkAllowList, Any: true})
	}
	return Network{Mode: wire.NetworkNone}
}

// request is the network that a client asks for, or why it may not have it. A client that got less than it asked for
// would take the hosts that are missing for hosts that are down.
func (n Network) request(w wire.Network) (Network, error) {
	asked := Network{Mode: max(w.Mode, wire.NetworkNone), Session: w.Session}
	switch asked.Mode {
	case wire.NetworkHost:
		if n.Mode != wire.NetworkHost {
			return asked, wire.Errorf(wire.CodePolicy, "network host: this executor does not let this client's commands have the machine's network")
		}
	case wire.NetworkAllowList:
		rules, err := egress.ParseRules(strings.Join(w.Allow, ","))
		if err != nil {
			return asked, wire.Errorf(wire.CodeBadRequest, "network: %v", err)
		}
		switch asked.Rules = rules; {
		case n.Mode < wire.NetworkAllowList:
			return asked, wire.Errorf(wire.CodePolicy, "network: this executor lets this client's commands reach nobody")
		case !n.anyHost() && !rules.Within(n.Rules):
			return asked, wire.Errorf(wire.CodePolicy, "network: this executor lets commands reach no more than %s", n.Rules)
		}
	}
	return asked, nil
}
