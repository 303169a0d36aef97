package executor

import (
	"slices"
	"strings"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/sandbox/egress"
	"github.com/postern-relay/postern/wire"
)

var denialKinds = map[sandbox.DenialKind]wire.DenialKind{
	sandbox.DenialFilesystem: wire.DenialFilesystem,
	sandbox.DenialNetwork:    wire.DenialNetwork,
	sandbox.DenialSyscall:    wire.DenialSyscall,
	sandbox.DenialLimit:      wire.DenialLimit,
}

var denialEvidence = map[sandbox.Evidence]wire.DenialEvidence{
	sandbox.EvidenceKernel: wire.EvidenceKernel,
	sandbox.EvidencePolicy: wire.EvidencePolicy,
	sandbox.EvidenceWords:  wire.EvidenceWords,
}

// Denials implements Running: what the proxy refused, and what the sandbox did.
func (p *sandboxProcess) Denials(output []byte) []wire.Denial {
	all := proxyDenials(p.refused, p.rules)
	for _, d := range p.proc.Denials(output) {
		if d.Evidence == sandbox.EvidenceWords && d.Kind == sandbox.DenialNetwork && len(all) > 0 {
			continue // the proxy knows better
		}
		all = append(all, wire.Denial{
			Kind: denialKinds[d.Kind], Op: d.Op, Subject: d.Subject, Rule: d.Rule, Evidence: denialEvidence[d.Evidence], Count: countOf(d.Count),
		}.Cut())
	}
	slices.SortStableFunc(all, func(a, b wire.Denial) int { return likeliness(a) - likeliness(b) })
	return all[:min(len(all), wire.MaxDenials)]
}

// likeliness orders denials by how likely each is why the command failed: what it complains of itself comes first, calls that many
// programs just try come late.
func likeliness(d wire.Denial) int {
	switch {
	case d.Evidence == wire.EvidencePolicy:
		return 0
	case d.Evidence == wire.EvidenceProxy:
		return 1
	case d.Evidence == wire.EvidenceWords:
		return 5
	case d.Kind == wire.DenialNetwork:
		return 2
	case d.Kind == wire.DenialLimit:
		return 3
	}
	return 4
}

// countOf is a count as Denial has it: none for once.
func countOf(n int) uint32 {
	if n <= 1 {
		return 0
	}
	return uint32(min(n, 1<<31-1))
}

// proxyDenials are the requests that a proxy refused. Those that failed otherwise were not denied.
func proxyDenials(r *egress.Record, rules egress.Rules) []wire.Denial {
	if r == nil {
		return nil
	}
	var all []wire.Denial
	kept, _ := r.Refused()
	for _, one := range kept {
		rule := one.Reason.String()
		switch one.Reason {
		case egress.NoRule, egress.PortNotAllowed:
			rule = "not in the allow-list (allowed: " + rules.String() + ")"
		case egress.NotAName:
			rule = "only names of hosts can be allowed, no addresses"
		case egress.PrivateAddress:
			rule = "it leads to an address of a private network, which the executor's owner has not permitted"
		}
		all = append(all, wire.Denial{
			Kind: wire.DenialNetwork, Op: "connect", Subject: strings.TrimSpace(one.Destination()), Rule: rule, Evidence: wire.EvidenceProxy, Count: countOf(one.Times),
		}.Cut())
	}
	return all
}
