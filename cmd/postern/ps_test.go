package main

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

func TestTableOfExecsShowsOwnersWhereThereAreSeveral(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	one, two := listed(t, "ci", "aaaa0000000000000000000000000001"), listed(t, "ci", "bbbb0000000000000000000000000002")
	one.Started, one.Command, one.Attached = now.Add(-3*time.Minute), "make \x1b[2J-j4", true
	two.Started, two.Command = now.Add(time.Hour), "sleep 5" // its clock is ahead of ours
	two.Exit = &wire.ExitStatus{Cause: wire.CauseExecutorLost}
	table := func() string {
		var b strings.Builder
		if err := execTable(&b, []wire.ExecInfo{one, two}, now); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	want := `ID                                 STARTED                  STATUS          COMMAND
aaaa0000000000000000000000000001   3 minutes ago            running         make ?[2J-j4
bbbb0000000000000000000000000002   Less than a second ago   executor lost   sleep 5
`
	if got := table(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	two.Owner = "me"
	want = `ID                                 OWNER   STARTED                  STATUS          COMMAND
aaaa0000000000000000000000000001   ci      3 minutes ago            running         make ?[2J-j4
bbbb0000000000000000000000000002   me      Less than a second ago   executor lost   sleep 5
`
	if got := table(); got != want {
		t.Errorf("with several owners got\n%swant\n%s", got, want)
	}
}

func TestSignalsHaveSeveralNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]wire.Signal{
		"TERM": "TERM", "sigkill": "KILL", "SIGHUP": "HUP", "usr1": "USR1", "9": "KILL", "15": "TERM", "RTMIN+1": "RTMIN+1", "34": "RTMIN",
	} {
		if got, err := parseSignal(text); err != nil || got != want {
			t.Errorf("parseSignal(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-9", "65", "NOPE", "SIG", "SIGSIGTERM", "TERM "} {
		if got, err := parseSignal(text); err == nil {
			t.Errorf("parseSignal(%q) = %q, want an error", text, got)
		}
	}
}

func TestGapsSayWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{0: "output is missing here", 123: "123 bytes of output are no longer kept"} {
		if got := gapText(&wire.Gap{From: 1, To: 2, Bytes: bytes}); got != want {
			t.Errorf("a gap of %d bytes is %q, want %q", bytes, got, want)
		}
	}
}
