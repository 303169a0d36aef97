package wire

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// randomWord is bytes of any value but NUL, often not UTF-8, sometimes long.
func randomWord(r *rand.Rand, least int) string {
	n := least + r.IntN(12)
	if r.IntN(20) == 0 {
		n += 70000
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + r.IntN(255))
	}
	return string(b)
}

func randomParams(r *rand.Rand) ExecParams {
	p := ExecParams{
		ID: NewExecID(), Argv: []string{randomWord(r, 1)}, Arg0: randomWord(r, 0), Dir: randomWord(r, 0),
		Inherit: EnvInherit(r.IntN(4)), Umask: uint32(r.IntN(0o1000)), Stdin: r.IntN(2) == 0, Merge: r.IntN(2) == 0, Sandbox: SandboxMode(r.IntN(4)),
		Timeout: time.Duration(r.IntN(1e6)) * time.Millisecond, KillAfter: time.Duration(r.IntN(1e6)) * time.Millisecond,
	}
	for range r.IntN(6) {
		p.Argv = append(p.Argv, randomWord(r, 0))
	}
	for range r.IntN(4) {
		p.Env = append(p.Env, "N"+randomWord(r, 0)+"="+randomWord(r, 0))
	}
	for range r.IntN(3) {
		p.Exclude = append(p.Exclude, "AWS_*é")
	}
	if r.IntN(2) == 0 {
		p.TTY = &WinSize{Rows: uint16(r.Uint32()), Cols: uint16(r.Uint32())}
	}
	switch r.IntN(4) {
	case 0:
		p.Grace = -1
	case 1:
		p.Grace = time.Duration(1+r.IntN(1e6)) * time.Millisecond
	}
	p.Detach, p.OnFull = r.IntN(2) == 0, OnFull(r.IntN(3))
	return p
}

func TestParametersReachTheExecutorAsTheyAre(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		p := randomParams(r)
		want := p
		if want.Inherit == 0 {
			want.Inherit = InheritCore
		}
		if want.Sandbox == 0 {
			want.Sandbox = SandboxWorkspaceWrite
		}
		if want.OnFull == 0 && want.Detach {
			want.OnFull = OnFullDrop
		} else if want.OnFull == 0 {
			want.OnFull = OnFullBlock
		}
		m := NewStart(p)
		m.Instance, m.Attempt = ID{1}, 1
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeAs[*Start](b)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got.Params(), sameMessage); d != "" {
			t.Fatalf("parameters after the wire (-want +got):\n%s", d)
		}
		normal, err := p.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, normal, sameMessage); d != "" {
			t.Fatalf("Normalize differs from the wire:\n%s", d)
		}
		if again, err := normal.Normalize(); err != nil || !cmp.Equal(normal, again, sameMessage) {
			t.Fatalf("Normalize twice changes more: %v", err)
		}
	}
}

func TestDurationsAreNotRoundedToNothing(t *testing.T) {
	p := ExecParams{ID: NewExecID(), Argv: []string{"true"}, Timeout: 1, KillAfter: time.Millisecond + 1, Grace: 1}
	got := NewStart(p).Params()
	if got.Timeout != time.Millisecond || got.KillAfter != 2*time.Millisecond || got.Grace != time.Millisecond {
		t.Errorf("timeout %v, kill after %v, grace %v, want them rounded up", got.Timeout, got.KillAfter, got.Grace)
	}
	// A peer's number is no overflow.
	m := NewStart(p)
	m.TimeoutMillis = most
	if got := m.Params().Timeout; got <= 0 {
		t.Errorf("the longest timeout is %v", got)
	}
}

func TestNormalizeRefusesWhatTheWireWould(t *testing.T) {
	for name, p := range map[string]ExecParams{
		"no command":         {},
		"empty command":      {Argv: []string{""}},
		"NUL":                {Argv: []string{"a\x00"}},
		"env without a name": {Argv: []string{"a"}, Env: []string{"=x"}},
		"unknown mode":       {Argv: []string{"a"}, Sandbox: 9},
		"unknown inherit":    {Argv: []string{"a"}, Inherit: 9},
		"umask":              {Argv: []string{"a"}, Umask: 0o1000},
		"too many words":     {Argv: append([]string{"a"}, make([]string, MaxStartElements)...)},
	} {
		if _, err := p.Normalize(); CodeOf(err) != CodeBadRequest {
			t.Errorf("%s: %v, want code bad_request", name, err)
		}
	}
	p, err := ExecParams{Argv: []string{"a"}}.Normalize()
	if err != nil || p.ID.IsZero() {
		t.Errorf("an id is made: %v, %v", p.ID, err)
	}
}

func TestInfoSurvivesTheWire(t *testing.T) {
	exit := &ExitStatus{Code: 2, Cause: CauseExited}
	info := ExecInfo{
		ID: NewExecID(), Started: time.UnixMilli(1700000000123), Sandbox: SandboxReadOnly, Roots: []string{"/a\xff", "/b"},
		Grace: 3 * time.Second, TTY: true, Attached: true, Exit: exit,
	}
	if d := cmp.Diff(info, NewListItem(info).Info(), sameMessage); d != "" {
		t.Errorf("through a list (-want +got):\n%s", d)
	}
	var s Started
	s.SetInfo(info)
	want := info
	want.Exit = nil // told by Exit
	if d := cmp.Diff(want, s.Info(), sameMessage); d != "" {
		t.Errorf("through Started (-want +got):\n%s", d)
	}
}

func TestExecIDTextRoundTrips(t *testing.T) {
	id := NewExecID()
	if got, err := ParseExecID(id.String()); err != nil || got != id {
		t.Errorf("%s came back as %s, %v", id, got, err)
	}
	for _, s := range []string{"", "00", id.String() + "0", id.String()[:31] + "g", "00000000000000000000000000000000"} {
		if got, err := ParseExecID(s); err == nil {
			t.Errorf("%q is %v, want an error", s, got)
		}
	}
}
