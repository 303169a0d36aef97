//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the figures were taken on.
type machine struct {
	Processor  string  `json:"processor"`
	Processors int     `json:"processors"`
	MemoryGiB  float64 `json:"memory_gib"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	User       int     `json:"uid"`
}

// String is one line.
func (m machine) String() string {
	who := "an ordinary user"
	if m.User == 0 {
		who = "root"
	}
	return fmt.Sprintf("%d × %s, %.0f GiB, Linux %s, %s, as %s", m.Processors, m.Processor, m.MemoryGiB, m.Kernel, m.Go, who)
}

// describe fills in what does not depend on any measure.
func (r *report) describe() {
	r.When = time.Now()
	r.Revision = revision()
	r.Machine = machine{Processor: processorName(), Processors: runtime.NumCPU(), Go: runtime.Version(), User: os.Getuid()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		r.Machine.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		r.Machine.MemoryGiB = float64(info.Totalram) * float64(info.Unit) / (1 << 30)
	}
}

// load is the machine's, of the last minute: what runs beside a measure, and the measure. Zero where it is not known.
func load() (load float64) {
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &load)
	return load
}

// revision is the one of the repository that this runs in.
func revision() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the name is not known
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
