package wire

import (
	"errors"
	"strings"
	"time"
)

// Limits bound what one command may use. A zero field sets no limit of its own: the
// executor's counts. How a limit is enforced depends on the executor's machine; where it cannot
// be enforced for the whole command, each process is bounded.
type Limits struct {
	Memory    uint64 `cbor:"1,keyasint,omitempty"` // bytes, of everything in the sandbox
	Processes uint64 `cbor:"2,keyasint,omitempty"` // processes and threads at a time
	CPUMilli  uint64 `cbor:"3,keyasint,omitempty"` // thousandths of one processor
	CPUMillis uint64 `cbor:"4,keyasint,omitempty"` // processor time of one process, milliseconds
	FileSize  uint64 `cbor:"5,keyasint,omitempty"` // bytes of one file
	OpenFiles uint64 `cbor:"6,keyasint,omitempty"` // descriptors of one process
	Output    uint64 `cbor:"7,keyasint,omitempty"` // bytes of output in all
	Tmp       uint64 `cbor:"8,keyasint,omitempty"` // bytes in each private temporary folder
}

// Meet is what both allow: never more than either.
func (a Limits) Meet(b Limits) Limits {
	return Limits{
		Memory: tighter(a.Memory, b.Memory), Processes: tighter(a.Processes, b.Processes),
		CPUMilli: tighter(a.CPUMilli, b.CPUMilli), CPUMillis: tighter(a.CPUMillis, b.CPUMillis),
		FileSize: tighter(a.FileSize, b.FileSize), OpenFiles: tighter(a.OpenFiles, b.OpenFiles),
		Output: tighter(a.Output, b.Output), Tmp: tighter(a.Tmp, b.Tmp),
	}
}

// tighter is the smaller of two limits of which zero is none.
func tighter(a, b uint64) uint64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// CPUTime is the processor time of one process, zero for no limit.
func (a Limits) CPUTime() time.Duration { return millis(a.CPUMillis) }

// LimitSet names limits that a command ran into.
type LimitSet uint16

// The limits that an exit status can name.
const (
	LimitMemory LimitSet = 1 << iota
	LimitProcesses
	LimitCPUTime
	LimitFileSize
	LimitOutput
	limitSetEnd
)

var limitNames = [...]string{"memory", "processes", "cpu time", "file size", "output"}

// String lists the limits by name.
func (s LimitSet) String() string {
	var names []string
	for i, n := range limitNames {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

func (s LimitSet) check() error {
	if s >= limitSetEnd {
		return errors.New("unknown limit")
	}
	return nil
}

// View is how much of the executor's machine a command can see.
type View uint8

// The views.
const (
	ViewFull    View = 1 + iota // everything but what is hidden
	ViewMinimal                 // the system's own folders and the workspaces
)

func (v View) valid() bool { return v == ViewFull || v == ViewMinimal }

// String is the view's name on the command line.
func (v View) String() string {
	switch v {
	case ViewFull:
		return "full"
	case ViewMinimal:
		return "minimal"
	}
	return "invalid"
}

// ParseView reads a view's name.
func ParseView(s string) (View, error) {
	for _, v := range []View{ViewFull, ViewMinimal} {
		if v.String() == s {
			return v, nil
		}
	}
	return 0, errors.New("view " + s + ": want full or minimal")
}
