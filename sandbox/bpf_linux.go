package sandbox

import "fmt"

// instruction is one classic BPF instruction, laid out as the kernel wants it.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

const (
	opLoad = 0x20 // BPF_LD|BPF_W|BPF_ABS
	opJEq  = 0x15 // BPF_JMP|BPF_JEQ|BPF_K
	opJGt  = 0x25
	opJGe  = 0x35
	opJSet = 0x45
	opAnd  = 0x54 // BPF_ALU|BPF_AND|BPF_K
	opRet  = 0x06

	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// assembler collects instructions. The accumulator holds what was loaded last.
type assembler struct {
	prog   []instruction
	notify bool // refusals are told to the daemon
}

func (a *assembler) op(code uint16, k uint32, jt, jf uint8) {
	a.prog = append(a.prog, instruction{code, jt, jf, k})
}

func (a *assembler) load(offset uint32) { a.op(opLoad, offset, 0, 0) }

// loadArg loads the low half of an argument; both architectures are little endian.
func (a *assembler) loadArg(n int)               { a.load(uint32(offsetArgs + 8*n)) }
func (a *assembler) mask(k uint32)               { a.op(opAnd, k, 0, 0) }
func (a *assembler) ret(v verdict)               { a.op(opRet, uint32(a.told(v)), 0, 0) }
func (a *assembler) ifEqual(k uint32, v verdict) { a.op(opJEq, k, 0, 1); a.ret(v) }
func (a *assembler) ifAny(k uint32, v verdict)   { a.op(opJSet, k, 0, 1); a.ret(v) }

// told is what is answered for a verdict. That a call is not there is nothing to tell: libraries try.
func (a *assembler) told(v verdict) verdict {
	if a.notify && (v == refuse || v == noSuchFamily) {
		return notify
	}
	return v
}

// unlessEqual and unlessAny skip the next n instructions when the test fails.
func (a *assembler) unlessEqual(k uint32, n uint8) { a.op(opJEq, k, 0, n) }
func (a *assembler) unlessAny(k uint32, n uint8)   { a.op(opJSet, k, 0, n) }

// unlessIn returns v when the accumulator is none of the values.
func (a *assembler) unlessIn(values []uint32, v verdict) {
	for i, k := range values {
		a.op(opJEq, k, uint8(len(values)-i), 0)
	}
	a.ret(v)
}

// filterFor assembles the filter of an architecture, named as in GOARCH. The first
// rows come before those that every filter has, and win.
func filterFor(arch string, first ...call) ([]instruction, error) {
	return assembleFilter(arch, false, first)
}

// assembleFilter is filterFor, with refusals told to the daemon or not.
func assembleFilter(arch string, told bool, first []call) ([]instruction, error) {
	a := assembler{notify: told}
	var audit uint32
	switch arch {
	case "amd64":
		audit = auditAMD64
	case "arm64":
		audit = auditARM64
	default:
		return nil, fmt.Errorf("no system call filter for %s", arch)
	}
	a.load(offsetArch)
	a.op(opJEq, audit, 1, 0)
	a.ret(killAll) // the 32-bit table has other numbers
	a.load(offsetNumber)
	if arch == "amd64" {
		a.op(opJGe, 0x40000000, 0, 1) // the x32 table
		a.ret(notThere)
	}
	a.op(opJGt, newestKnown, 0, 1)
	a.ret(notThere)
	for _, c := range append(first, syscallTable()...) {
		nr := c.amd64
		if arch == "arm64" {
			nr = c.arm64
		}
		if nr == none {
			continue
		}
		if c.check == nil {
			a.ifEqual(uint32(nr), c.answer)
			continue
		}
		body := assembler{notify: told}
		c.check(&body, c.answer)
		body.ret(allow)
		if len(body.prog) > 255 {
			return nil, fmt.Errorf("filter of %s is too long for a jump", c.name)
		}
		a.unlessEqual(uint32(nr), uint8(len(body.prog)))
		a.prog = append(a.prog, body.prog...)
	}
	a.ret(allow)
	return a.prog, nil
}
