package sandbox

import (
	"os"
	"strconv"
	"strings"
)

// Denials are what the sandbox refused to the command, as far as that is proven, at most 16; for after Done. Output is the
// last of what a command printed that has failed, else nil: what it complains of counts only where the policy says the same. It never
// says what there is in places that the command cannot see. Of FullAccess there are none, and of the reduced level those of
// the text only.
func (p *Process) Denials(output []byte) []Denial {
	if p.plan.setup.full {
		return nil
	}
	p.mu.Lock()
	res := p.result
	p.mu.Unlock()
	all := p.notices.denials()
	for _, l := range []struct {
		hit      bool
		op, rule string
	}{
		{res.Hit.Memory, "use more memory", "the memory limit"},
		{res.Hit.Processes, "start more processes", "the limit of processes and threads"},
		{res.Hit.CPUTime, "use more processor time", "the limit of processor time"},
		{res.Hit.FileSize, "write a longer file", "the limit of the size of a file"},
	} {
		if l.hit {
			all = append(all, Denial{Kind: DenialLimit, Op: l.op, Rule: l.rule, Evidence: EvidenceKernel, Count: 1})
		}
	}
	network := p.plan.setup.network
	if res.NoRoutes > 0 {
		all = append(all, Denial{
			Kind: DenialNetwork, Op: "connect", Subject: "the network", Rule: noWayOut(network.Mode), Evidence: EvidenceKernel, Count: int(min(res.NoRoutes, 1<<31-1)),
		})
	}
	if output != nil {
		c := complaints{setup: &p.plan.setup, dir: p.dir, proven: res.NoRoutes > 0}
		all = append(all, c.read(output)...)
	}
	return all[:min(len(all), maxDenials)]
}

func noWayOut(mode NetworkMode) string {
	if mode == NetworkProxy {
		return "only the hosts that were allowed can be reached, and those through the proxy (HTTPS_PROXY) only"
	}
	return "the command has no network"
}

// noRoutes is how often packets found no route in the network of this process so far.
func noRoutes() uint64 {
	var n uint64
	if b, err := os.ReadFile("/proc/self/net/snmp"); err == nil {
		n = snmpValue(string(b), "Ip:", "OutNoRoutes")
	}
	if b, err := os.ReadFile("/proc/self/net/snmp6"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "Ip6OutNoRoutes" {
				more, _ := strconv.ParseUint(f[1], 10, 64)
				n += more
			}
		}
	}
	return n
}

// snmpValue finds a counter in the two lines of a group, one with the names and one with the values.
func snmpValue(text, group, name string) uint64 {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != group {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if n == name && i < len(f) {
				v, _ := strconv.ParseUint(f[i], 10, 64)
				return v
			}
		}
	}
	return 0
}
