package sandbox

// DenialKind is what the sandbox refused.
type DenialKind int

// The kinds.
const (
	DenialFilesystem DenialKind = 1 + iota // a file or folder
	DenialNetwork                          // somebody to talk to
	DenialSyscall                          // a system call that no command may make
	DenialLimit                            // more of something than there is
)

// Evidence is how a denial is known.
type Evidence int

// The evidence, from the strongest.
const (
	EvidenceKernel Evidence = 1 + iota // the kernel counted or reported it
	EvidencePolicy                     // the command's own error message, and the policy denies just that
	EvidenceWords                      // the message alone: it may have another reason
)

// Denial is one thing that the sandbox refused to a command.
type Denial struct {
	Kind DenialKind
	// Op is what was to be done, such as "write", or the name of a system call.
	Op string
	// Subject is to what, as the command called it, with ? for what cannot be printed; empty: not known.
	Subject string
	// Rule is the part of the policy, in words.
	Rule     string
	Evidence Evidence
	Count    int // how often, as far as that is counted; at least 1
}

// maxDenials bounds how many are told of one command.
const maxDenials = 16
