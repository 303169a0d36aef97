package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/sandbox/egress"
)

// networkFlags are what an executor's owner says about the networks of commands.
type networkFlags struct {
	max    string
	permit []string
}

func (n *networkFlags) add(f *pflag.FlagSet) {
	f.StringVar(&n.max, "network-max", "none", "the most a client may ask for: none, allow=HOST[:PORT],... (these hosts), allow (any public hosts, by name) or host")
	f.StringArrayVar(&n.permit, "network-permit", nil, "network, such as 10.0.0.0/8, whose addresses allowed hosts may have too; may be repeated")
}

func (n *networkFlags) get() (most executor.Network, permit []netip.Prefix, err error) {
	if most, err = executor.ParseNetwork(n.max, true); err != nil {
		return most, nil, fmt.Errorf("--network-max: %w", err)
	}
	for _, text := range n.permit {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return most, nil, fmt.Errorf("--network-permit %q: want a network such as 10.0.0.0/8", text)
		}
		if _, err := egress.New(egress.Options{Permit: []netip.Prefix{prefix}}); err != nil {
			return most, nil, fmt.Errorf("--network-permit: %w", err)
		}
		permit = append(permit, prefix)
	}
	return most, permit, nil
}
