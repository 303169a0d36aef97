package sandbox

import (
	"encoding/binary"
	"testing"
)

// data is the kernel's struct seccomp_data.
func data(audit, number uint32, args ...uint64) []byte {
	b := make([]byte, 64)
	binary.LittleEndian.PutUint32(b[0:], number)
	binary.LittleEndian.PutUint32(b[4:], audit)
	for i, a := range args {
		binary.LittleEndian.PutUint64(b[16+8*i:], a)
	}
	return b
}

// execute runs a filter as the kernel does.
func execute(t *testing.T, prog []instruction, b []byte) verdict {
	t.Helper()
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		jump := func(ok bool) {
			if ok {
				pc += int(in.jt)
			} else {
				pc += int(in.jf)
			}
		}
		switch in.code {
		case opLoad:
			acc = binary.LittleEndian.Uint32(b[in.k:])
		case opAnd:
			acc &= in.k
		case opJEq:
			jump(acc == in.k)
		case opJGt:
			jump(acc > in.k)
		case opJGe:
			jump(acc >= in.k)
		case opJSet:
			jump(acc&in.k != 0)
		case opRet:
			return verdict(in.k)
		default:
			t.Fatalf("unknown instruction %#x", in.code)
		}
	}
	t.Fatal("the filter runs off its end")
	return 0
}

func TestFilterAnswersOnBothArchitectures(t *testing.T) {
	numbers := map[string]call{}
	for _, c := range syscallTable() {
		numbers[c.name] = c
	}
	for _, n := range []struct {
		name         string
		amd64, arm64 int
	}{{"read", 0, 63}, {"execve", 59, 221}, {"getpid", 39, 172}, {"mkdirat", 258, 34}, {"pidfd_open", 434, 434}, {"close_range", 436, 436}} {
		numbers[n.name] = call{name: n.name, amd64: n.amd64, arm64: n.arm64}
	}
	const junk = 0xdead_beef_0000_0000 // the upper half never counts where the kernel takes 32 bits
	for _, c := range []struct {
		name string
		args []uint64
		want verdict
	}{
		{"read", nil, allow},
		{"execve", nil, allow},
		{"getpid", nil, allow},
		{"mkdirat", nil, allow},
		{"pidfd_open", nil, allow},
		{"close_range", nil, allow},
		{"mount", nil, refuse},
		{"unshare", nil, refuse},
		{"setns", nil, refuse},
		{"ptrace", nil, refuse},
		{"bpf", nil, refuse},
		{"iopl", nil, refuse},
		{"clone3", nil, notThere},
		{"io_uring_setup", nil, notThere},
		{"openat2", nil, notThere},
		{"clone", []uint64{17}, allow},
		{"clone", []uint64{0x3d0f00}, allow},
		{"clone", []uint64{0x10000000 | 17}, refuse},
		{"clone", []uint64{0x00020000}, refuse},
		{"clone", []uint64{0x40000000}, refuse},
		{"clone", []uint64{0x02000000}, refuse},
		{"ioctl", []uint64{0, 0x5401}, allow},
		{"ioctl", []uint64{0, 0x5412}, refuse},
		{"ioctl", []uint64{0, junk | 0x5412}, refuse},
		{"ioctl", []uint64{0, 0x541c}, refuse},
		{"chmod", []uint64{0, 0o755}, allow},
		{"chmod", []uint64{0, 0o4755}, refuse},
		{"fchmod", []uint64{0, 0o2755}, refuse},
		{"fchmodat", []uint64{0, 0, 0o6000}, refuse},
		{"fchmodat", []uint64{0, 0, 0o1777}, allow},
		{"fchmodat2", []uint64{0, 0, 0o4000}, refuse},
		{"mknodat", []uint64{0, 0, 0o104644}, refuse},
		{"creat", []uint64{0, 0o4755}, refuse},
		{"openat", []uint64{0, 0, 0, 0o6777}, allow},
		{"openat", []uint64{0, 0, 0o100, 0o4755}, refuse},
		{"openat", []uint64{0, 0, 0o100, 0o644}, allow},
		{"openat", []uint64{0, 0, 0x410000, 0o2700}, refuse},
		{"open", []uint64{0, 0o102, 0o4777}, refuse},
		{"open", []uint64{0, 0o2, 0o4777}, allow},
		{"personality", []uint64{0xffffffff}, allow},
		{"personality", []uint64{0}, allow},
		{"personality", []uint64{8}, allow},
		{"personality", []uint64{0x400000}, refuse},
		{"socket", []uint64{1, 1, 0}, allow},
		{"socket", []uint64{2, 1, 6}, allow},
		{"socket", []uint64{10, 2, 0}, allow},
		{"socket", []uint64{16, 3, 0}, allow},
		{"socket", []uint64{16, 3, 9}, noSuchFamily},
		{"socket", []uint64{40, 1, 0}, noSuchFamily},
		{"socket", []uint64{17, 3, 0}, noSuchFamily},
		{"socket", []uint64{2, 3, 1}, refuse},
		{"socket", []uint64{10, 3 | 0o2000000, 58}, refuse},
		{"socket", []uint64{2, 0o2000001, 0}, allow},
	} {
		row, ok := numbers[c.name]
		if !ok {
			t.Fatalf("no numbers for %s", c.name)
		}
		for arch, at := range map[string]struct {
			audit  uint32
			number int
		}{"amd64": {auditAMD64, row.amd64}, "arm64": {auditARM64, row.arm64}} {
			if at.number == none {
				continue
			}
			prog, err := filterFor(arch)
			if err != nil {
				t.Fatal(err)
			}
			if got := execute(t, prog, data(at.audit, uint32(at.number), c.args...)); got != c.want {
				t.Errorf("%s %s%#x: %#x, want %#x", arch, c.name, c.args, got, c.want)
			}
		}
	}
}

func TestFilterClosesOtherTablesAndTheFuture(t *testing.T) {
	for _, c := range []struct {
		arch          string
		audit, number uint32
		want          verdict
	}{
		{"amd64", 0x40000003, 11, killAll},          // 32-bit x86
		{"amd64", auditARM64, 63, killAll},          // a foreign table
		{"amd64", auditAMD64, 0x40000027, notThere}, // x32
		{"amd64", auditAMD64, newestKnown + 1, notThere},
		{"arm64", 0x40000028, 3, killAll}, // 32-bit arm
		{"arm64", auditARM64, newestKnown + 1, notThere},
		{"arm64", auditARM64, 0xffffffff, notThere},
	} {
		prog, err := filterFor(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		if got := execute(t, prog, data(c.audit, c.number)); got != c.want {
			t.Errorf("%s: table %#x number %#x: %#x, want %#x", c.arch, c.audit, c.number, got, c.want)
		}
	}
	if _, err := filterFor("riscv64"); err == nil {
		t.Error("an architecture without numbers got a filter")
	}
}
