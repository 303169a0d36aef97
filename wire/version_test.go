package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestVersionInUseMustBeTheHighestCommonOne(t *testing.T) {
	for _, c := range []struct {
		mine, theirs VersionRange
		inUse        uint8
		want         bool
	}{
		{VersionRange{Min: 1, Max: 1}, VersionRange{Min: 1, Max: 1}, 1, true},
		{VersionRange{Min: 1, Max: 3}, VersionRange{Min: 1, Max: 2}, 2, true},
		{VersionRange{Min: 1, Max: 3}, VersionRange{Min: 1, Max: 2}, 1, false}, // somebody in between asked for less
		{VersionRange{Min: 1, Max: 3}, VersionRange{Min: 2, Max: 9}, 3, true},
		{VersionRange{Min: 2, Max: 3}, VersionRange{Min: 1, Max: 1}, 1, false},
		{VersionRange{Min: 2, Max: 3}, VersionRange{Min: 1, Max: 2}, 3, false},
		{VersionRange{}, VersionRange{Min: 1, Max: 1}, 1, false},
		{VersionRange{Min: 3, Max: 1}, VersionRange{Min: 1, Max: 3}, 1, false},
		{VersionRange{Min: 1, Max: 255}, VersionRange{Min: 255, Max: 255}, 255, true},
	} {
		for _, order := range [][2]VersionRange{{c.mine, c.theirs}, {c.theirs, c.mine}} {
			if got := order[0].Agrees(order[1], c.inUse); got != c.want {
				t.Errorf("%v.Agrees(%v, %d) = %t, want %t", order[0], order[1], c.inUse, got, c.want)
			}
		}
	}
	if !Versions.Agrees(Versions, Version) {
		t.Error("this build does not agree with itself")
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	e := &Error{Code: CodeBusy, Text: "later", RetryAfter: time.Second}
	wrapped := fmt.Errorf("open: %w", e)
	if CodeOf(wrapped) != CodeBusy || !errors.Is(wrapped, &Error{Code: CodeBusy}) || errors.Is(wrapped, &Error{Code: CodeLimit}) {
		t.Errorf("code of %v is %v", wrapped, CodeOf(wrapped))
	}
	if CodeOf(fmt.Errorf("x: %w", ErrLost)) != CodeUnknown || CodeOf(errors.New("x")) != CodeInternal {
		t.Error("code of other errors")
	}
	if got := Refusal(e).Err(); *got != *e {
		t.Errorf("a refusal says %+v, want %+v", got, e)
	}
	if got := DialRefusal(e).Err(); !errors.Is(got, e) && got.Error() != "later" {
		t.Errorf("a dial's refusal says %v", got)
	}
	if (&DialReply{}).Err() != nil || (&Done{Request: 1}).Err() != nil {
		t.Error("no code is an error")
	}
	if got := NewDone(7, wrapped).Err(); CodeOf(got) != CodeBusy || got.Error() != wrapped.Error() {
		t.Errorf("a request's answer says %v", got)
	}
}

func TestLongTextsAreCutToSomethingThatEncodes(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", MaxText), strings.Repeat("x", MaxText-1) + "é", "\xff" + strings.Repeat("\xfe", MaxText)} {
		e := &Error{Code: CodePolicy, Text: text}
		for _, m := range []Message{Refusal(e), DialRefusal(e), NewDone(1, e)} {
			b, err := Encode(m)
			if err != nil {
				t.Errorf("%T: %v", m, err)
				continue
			}
			if _, err := Decode(b); err != nil {
				t.Errorf("%T: %v", m, err)
			}
		}
	}
}

func TestNamesOfUnknownNumbersShowTheNumber(t *testing.T) {
	for got, want := range map[string]string{
		Code(99).String(): "code_99", Code(0).String(): "code_0", CodeNoChannel.String(): "no_channel",
		SandboxMode(9).String(): "sandbox mode 9", SandboxFullAccess.String(): "full-access",
		OutputStream(7).String(): "stream 7", Terminal.String(): "tty", Cause(9).String(): "cause 9",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, m := range []SandboxMode{SandboxReadOnly, SandboxWorkspaceWrite, SandboxFullAccess} {
		if got, err := ParseSandboxMode(m.String()); err != nil || got != m {
			t.Errorf("%v parses as %v, %v", m, got, err)
		}
	}
	for _, s := range []string{"", "none", "Read-Only"} {
		if _, err := ParseSandboxMode(s); err == nil {
			t.Errorf("%q is a sandbox mode", s)
		}
	}
}
