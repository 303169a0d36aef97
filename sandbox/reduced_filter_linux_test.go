package sandbox

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReducedFilterHasItsNumbers(t *testing.T) {
	for arch, audit := range map[string]uint32{"amd64": auditAMD64, "arm64": auditARM64} {
		prog, err := filterFor(arch, reducedCalls()...)
		if err != nil {
			t.Fatal(err)
		}
		number := map[string]uint32{}
		for _, c := range append(reducedCalls(), syscallTable()...) {
			number[c.name] = uint32(c.amd64)
			if arch == "arm64" {
				number[c.name] = uint32(c.arm64)
			}
		}
		for _, c := range []struct {
			name string
			args []uint64
			want verdict
		}{
			{"socket", []uint64{2, 1, 0}, refuse},
			{"socketpair", []uint64{1, 1 | unix.SOCK_CLOEXEC}, allow},
			{"socketpair", []uint64{1, 5}, allow},
			{"socketpair", []uint64{1, 2}, refuse},
			{"prlimit64", []uint64{0, 7}, allow},
			{"prlimit64", []uint64{1, 7}, refuse},
			{"setpriority", []uint64{0, 0, 5}, allow},
			{"setpriority", []uint64{2, 0, 5}, refuse},
			{"sched_setaffinity", []uint64{5}, refuse},
			{"msgget", nil, refuse},
			{"mount", nil, refuse},
			{"clone3", nil, notThere},
		} {
			if got := execute(t, prog, data(audit, number[c.name], c.args...)); got != c.want {
				t.Errorf("%s %s%v: %#x, want %#x", arch, c.name, c.args, got, c.want)
			}
		}
	}
}

// TestReducedNumbersAreTheKernels compares the numbers of the architecture at hand.
func TestReducedNumbersAreTheKernels(t *testing.T) {
	want := map[string]int{
		"socketpair":         unix.SYS_SOCKETPAIR,
		"shmat":              unix.SYS_SHMAT,
		"semtimedop":         unix.SYS_SEMTIMEDOP,
		"msgctl":             unix.SYS_MSGCTL,
		"mq_unlink":          unix.SYS_MQ_UNLINK,
		"prlimit64":          unix.SYS_PRLIMIT64,
		"ioprio_set":         unix.SYS_IOPRIO_SET,
		"sched_setattr":      unix.SYS_SCHED_SETATTR,
		"sched_setparam":     unix.SYS_SCHED_SETPARAM,
		"sched_setscheduler": unix.SYS_SCHED_SETSCHEDULER,
		"sched_setaffinity":  unix.SYS_SCHED_SETAFFINITY,
		"setpriority":        unix.SYS_SETPRIORITY,
		"socket":             unix.SYS_SOCKET,
		"shmget":             unix.SYS_SHMGET,
		"shmctl":             unix.SYS_SHMCTL,
		"semget":             unix.SYS_SEMGET,
		"semop":              unix.SYS_SEMOP,
		"semctl":             unix.SYS_SEMCTL,
		"msgget":             unix.SYS_MSGGET,
		"msgsnd":             unix.SYS_MSGSND,
		"msgrcv":             unix.SYS_MSGRCV,
		"mq_open":            unix.SYS_MQ_OPEN,
	}
	for _, c := range reducedCalls() {
		got := c.amd64
		if runtime.GOARCH == "arm64" {
			got = c.arm64
		}
		if n, ok := want[c.name]; !ok || got != n {
			t.Errorf("%s has number %d here, want %d", c.name, got, n)
		}
	}
}
