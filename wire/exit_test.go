package wire

import (
	"strings"
	"testing"
)

func TestShellCodeIsWhatAShellWouldShow(t *testing.T) {
	for _, c := range []struct {
		status  ExitStatus
		want    int
		success bool
		says    string
	}{
		{ExitStatus{Cause: CauseExited}, 0, true, "exit status 0"},
		{ExitStatus{Code: 255, Cause: CauseExited}, 255, false, "exit status 255"},
		{ExitStatus{Signal: "KILL", Cause: CauseSignalled}, 137, false, "signal KILL"},
		{ExitStatus{Signal: "INT", Cause: CauseSignalled}, 130, false, "signal INT"},
		{ExitStatus{Signal: "RTMIN+30", Cause: CauseSignalled}, 192, false, "RTMIN+30"},
		{ExitStatus{Signal: "KILL", Cause: CauseOOM}, 137, false, "out of memory"},
		{ExitStatus{Signal: "TERM", Cause: CauseTimedOut}, 124, false, "timed out"},
		{ExitStatus{Code: 0, Cause: CauseTimedOut}, 124, false, "timed out"},
		{ExitStatus{Code: 0, Cause: CauseTerminated}, 0, false, "terminated"},
		{ExitStatus{Code: 0, Cause: CauseExecutorLost}, 255, false, "executor lost"},
		{ExitStatus{}, 255, false, "cause 0"},
	} {
		if got := c.status.ShellCode(); got != c.want {
			t.Errorf("ShellCode of %+v = %d, want %d", c.status, got, c.want)
		}
		if got := c.status.Success(); got != c.success {
			t.Errorf("Success of %+v = %t, want %t", c.status, got, c.success)
		}
		if got := c.status.String(); !strings.Contains(got, c.says) {
			t.Errorf("String of %+v = %q, want it to say %q", c.status, got, c.says)
		}
	}
}

func TestSignalNamesAndNumbersAreInverse(t *testing.T) {
	known := 0
	for n := -1; n < 130; n++ {
		name := SignalNumber(n)
		// 32 and 33 belong to the C library.
		if want := n >= 1 && n <= 31 || n >= 34 && n <= 64; (name != "") != want {
			t.Errorf("SignalNumber(%d) = %q, want a name: %t", n, name, want)
		}
		if name == "" {
			continue
		}
		known++
		if got := name.Number(); got != n {
			t.Errorf("%q.Number() = %d, want %d", name, got, n)
		}
	}
	if known != 62 {
		t.Errorf("%d signals, want 62", known)
	}
	for _, s := range []Signal{"", "SIGINT", "int", "INT ", "RTMIN+0", "RTMIN+31", "RTMIN+-1", "RTMIN+01", "RTMIN+1x", "RTMAX", "9"} {
		if n := s.Number(); n != 0 {
			t.Errorf("%q.Number() = %d, want 0", s, n)
		}
	}
}
