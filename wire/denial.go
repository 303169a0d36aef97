package wire

import (
	"errors"
	"fmt"
)

// Denial is one thing that the sandbox refused to a command, with how that is known. Texts are for people
// and programs to read: a subject is what the command named, cut to MaxDenialText.
type Denial struct {
	Kind     DenialKind     `cbor:"1,keyasint"`
	Op       string         `cbor:"2,keyasint"`           // such as "write", "connect", or the name of a system call
	Subject  string         `cbor:"3,keyasint,omitempty"` // a path, host:port; empty: not known
	Rule     string         `cbor:"4,keyasint"`           // which part of the policy, in words
	Evidence DenialEvidence `cbor:"5,keyasint"`
	Count    uint32         `cbor:"6,keyasint,omitempty"` // how often, if more than once
}

// Bounds of what Exit says about denials.
const (
	MaxDenials    = 16
	MaxDenialText = 512 // bytes of each text
)

// DenialKind is what was refused.
type DenialKind uint8

// The kinds.
const (
	DenialFilesystem DenialKind = 1 + iota // a file or folder
	DenialNetwork                          // somebody to talk to
	DenialSyscall                          // a system call that no command may make
	DenialLimit                            // more of something than there is
)

var denialKinds = [...]string{DenialFilesystem: "filesystem", DenialNetwork: "network", DenialSyscall: "syscall", DenialLimit: "limit"}

func (k DenialKind) valid() bool { return k >= DenialFilesystem && k <= DenialLimit }

// String is the kind in a word.
func (k DenialKind) String() string {
	if k.valid() {
		return denialKinds[k]
	}
	return fmt.Sprintf("denial %d", uint8(k))
}

// DenialEvidence is how a denial is known.
type DenialEvidence uint8

// The evidence, from the strongest.
const (
	EvidenceKernel DenialEvidence = 1 + iota // the kernel counted or reported it
	EvidenceProxy                            // the executor's proxy refused it
	EvidencePolicy                           // the command's own error message, and the policy denies just that
	EvidenceWords                            // the message alone: it may have another reason
)

var denialEvidence = [...]string{EvidenceKernel: "kernel", EvidenceProxy: "proxy", EvidencePolicy: "policy-and-errno", EvidenceWords: "maybe"}

func (e DenialEvidence) valid() bool { return e >= EvidenceKernel && e <= EvidenceWords }

// String is the evidence in a word.
func (e DenialEvidence) String() string {
	if e.valid() {
		return denialEvidence[e]
	}
	return fmt.Sprintf("evidence %d", uint8(e))
}

// String is one plain sentence without a full stop. That of EvidenceWords says that it may be wrong.
func (d Denial) String() string {
	subject := ""
	if d.Subject != "" {
		subject = " to " + d.Subject
		if d.Kind == DenialSyscall || d.Kind == DenialLimit || d.Op == "read" || d.Op == "remove" {
			subject = " " + d.Subject
		}
	}
	verb := " denied"
	switch {
	case d.Evidence == EvidenceWords:
		verb = " may have been denied"
	case d.Kind == DenialLimit:
		verb = " stopped"
	}
	s := d.Op + subject + verb
	if d.Count > 1 {
		s += fmt.Sprintf(" %d times", d.Count)
	}
	if d.Rule != "" {
		s += ": " + d.Rule
	}
	return s
}

func (d *Denial) check() error {
	switch {
	case d.Kind == 0 || d.Evidence == 0:
		return errors.New("a denial without kind or evidence")
	case d.Op == "":
		return errors.New("a denial of nothing")
	}
	for _, text := range []string{d.Op, d.Subject, d.Rule} {
		if len(text) > MaxDenialText {
			return errors.New("a text of a denial is too long")
		}
	}
	return nil
}

// Cut is d with its texts cut to what a message carries.
func (d Denial) Cut() Denial {
	d.Op, d.Subject, d.Rule = cutTo(d.Op, MaxDenialText), cutTo(d.Subject, MaxDenialText), cutTo(d.Rule, MaxDenialText)
	return d
}
