package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"github.com/postern-relay/postern/wire"
)

// limitFlags are the limits of a command on the command line: what exec asks for, and the
// most that an executor gives.
type limitFlags struct {
	limits  wire.Limits
	cpus    cpuShare
	cpuTime time.Duration
}

func (l *limitFlags) add(f *pflag.FlagSet) {
	f.Var((*byteSize)(&l.limits.Memory), "memory", "limit of memory, such as 512M")
	f.Uint64Var(&l.limits.Processes, "pids", 0, "limit of processes and threads at a time")
	f.Var(&l.cpus, "cpus", "limit of processors, such as 1.5")
	f.DurationVar(&l.cpuTime, "cpu-time", 0, "limit of processor time of one process")
	f.Var((*byteSize)(&l.limits.FileSize), "file-size", "limit of one file, such as 1G")
	f.Uint64Var(&l.limits.OpenFiles, "open-files", 0, "limit of open files of one process")
	f.Var((*byteSize)(&l.limits.Output), "max-output", "end the command after this much output, such as 100M")
	f.Var((*byteSize)(&l.limits.Tmp), "tmp-size", "size of each private temporary folder, such as 1G")
}

func (l *limitFlags) get() (wire.Limits, error) {
	if l.cpuTime < 0 {
		return wire.Limits{}, fmt.Errorf("--cpu-time cannot be negative")
	}
	limits := l.limits
	limits.CPUMilli = uint64(l.cpus)
	limits.CPUMillis = uint64((l.cpuTime + time.Millisecond - 1) / time.Millisecond)
	return limits, nil
}

// byteSize is a number of bytes, with K, M, G or T for powers of 1024.
type byteSize uint64

func (b *byteSize) Set(s string) error {
	n, err := units.RAMInBytes(s)
	if err != nil || n <= 0 {
		return fmt.Errorf("want a size such as 512M")
	}
	*b = byteSize(n)
	return nil
}

func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return units.BytesSize(float64(*b))
}

func (*byteSize) Type() string { return "size" }

// cpuShare is a number of processors in thousandths.
type cpuShare uint64

func (c *cpuShare) Set(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0.001 && f <= 1e6) {
		return fmt.Errorf("want a number of processors such as 0.5 or 2")
	}
	*c = cpuShare(f*1000 + 0.5)
	return nil
}

func (c *cpuShare) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*c)/1000, 'f', -1, 64)
}

func (*cpuShare) Type() string { return "number" }

// explainPolicy is what --explain prints: the policy in force, a line each.
func explainPolicy(i wire.ExecInfo) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "postern: %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("exec", "%s", i.ID)
	line("sandbox", "%s", i.Sandbox)
	for _, root := range i.Roots {
		line("workspace", "%s", root)
	}
	if i.View != 0 {
		line("view", "%s", i.View)
	}
	if i.Network.Mode != 0 {
		line("network", "%s", networkText(i.Network))
	}
	if i.Detach {
		line("grace", "none: the command needs no client")
	} else {
		line("grace", "%s after this client is gone", i.Grace)
	}
	l := i.Limits
	for _, v := range []struct {
		name string
		n    uint64
		text string
	}{
		{"memory", l.Memory, units.BytesSize(float64(l.Memory))},
		{"pids", l.Processes, strconv.FormatUint(l.Processes, 10)},
		{"cpus", l.CPUMilli, strconv.FormatFloat(float64(l.CPUMilli)/1000, 'f', -1, 64)},
		{"cpu-time", l.CPUMillis, l.CPUTime().String()},
		{"file-size", l.FileSize, units.BytesSize(float64(l.FileSize))},
		{"open-files", l.OpenFiles, strconv.FormatUint(l.OpenFiles, 10)},
		{"max-output", l.Output, units.BytesSize(float64(l.Output))},
		{"tmp-size", l.Tmp, units.BytesSize(float64(l.Tmp))},
	} {
		if v.n != 0 {
			line(v.name, "%s", v.text)
		}
	}
	return b.String()
}

// networkText is a network in force, for people.
func networkText(n wire.Network) string {
	text := n.Mode.String()
	if n.Mode == wire.NetworkAllowList {
		text = "allow " + strings.Join(n.Allow, ",")
	}
	if n.Session != "" {
		text += ", shared in session " + n.Session
	}
	return text
}
