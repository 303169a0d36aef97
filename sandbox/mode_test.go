package sandbox

import "testing"

func TestParseModeReadsWhatStringWrites(t *testing.T) {
	for _, m := range []Mode{ReadOnly, WorkspaceWrite, FullAccess} {
		got, err := ParseMode(m.String())
		if err != nil || got != m {
			t.Errorf("ParseMode(%q) = %v, %v; want %v", m.String(), got, err, m)
		}
	}
}

func TestParseModeRefusesEverythingElse(t *testing.T) {
	for _, s := range []string{"", "invalid", "Read-Only", "none", "full"} {
		if m, err := ParseMode(s); err == nil || m != 0 {
			t.Errorf("ParseMode(%q) = %v, %v; want the zero mode and an error", s, m, err)
		}
	}
	if s := Mode(0).String(); s != "invalid" {
		t.Errorf("zero mode is %q, want invalid", s)
	}
}
