package keys

import "time"

// Rights bound what the client of one line in authorized_clients may start: a ceiling beside that of the executor's owner and
// what the client asks for, of which the narrowest counts. It is plain data; the executor applies it. The zero value starts
// nothing, and whatever is added here is off in it and under restrict. A line without options has [AllRights]. What the slices
// hold must not be changed.
type Rights struct {
	Sandbox SandboxCeiling
	Network NetworkCeiling

	// Terminal allows a terminal, FullView a sight of the whole machine, Environment variables of the client's choice beyond
	// its language and kind of terminal.
	Terminal, FullView, Environment bool

	// AnyCommand allows every command. Without it only Commands may run, any of them; none means none.
	AnyCommand bool
	Commands   []Command

	// TakeOver lets the client control, and so type into, commands that another key started, where as= or control=all let it
	// act on them. A line that narrows anything has it not, or it could type into what is wider than itself.
	TakeOver bool

	MaxTime  time.Duration // of a command, from its start; zero: no limit
	MaxExecs int           // commands that may run at once; zero: no limit
}

// AllRights are those of a line without options.
func AllRights() Rights {
	return Rights{
		Sandbox: SandboxFullAccess, Network: NetworkHost,
		Terminal: true, FullView: true, Environment: true, AnyCommand: true, TakeOver: true,
	}
}

// restricted are the rights that restrict begins with. Other options of the line widen it in their one thing.
func restricted() Rights {
	return Rights{Sandbox: SandboxReadOnly, Network: NetworkNone, AnyCommand: true}
}

// SandboxCeiling is the widest sandbox mode of a key. The zero value runs nothing.
type SandboxCeiling uint8

// The ceilings, from the narrowest. They have the names of the executor's modes.
const (
	SandboxReadOnly SandboxCeiling = 1 + iota
	SandboxWorkspaceWrite
	SandboxFullAccess
)

var sandboxCeilings = map[string]SandboxCeiling{
	"read-only": SandboxReadOnly, "workspace-write": SandboxWorkspaceWrite, "full-access": SandboxFullAccess,
}

// NetworkCeiling is the widest network of a key.
type NetworkCeiling uint8

// The ceilings, from the narrowest, which is the zero value. Below NetworkHost nothing runs without a sandbox.
const (
	NetworkNone NetworkCeiling = iota
	NetworkAllowList
	NetworkHost
)

var networkCeilings = map[string]NetworkCeiling{"none": NetworkNone, "allow-list": NetworkAllowList, "host": NetworkHost}

// Command is one command= of a line.
type Command struct {
	// Words are what the client must ask for, word for word. The first is the path of the file that runs, absolute and clean;
	// a client may also name it by its last element.
	Words []string
	// More allows any further words, or none.
	More bool
}
