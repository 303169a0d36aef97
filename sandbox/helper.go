package sandbox

// A helper is a function of the daemon's program that runs in a sandbox in place of a command: as confined as one, with its policy and
// its view, and without a program that would have to be in that view. It is for what the daemon does to a client's files on its
// behalf, which must not reach further than the client's commands do.

// helpers are the functions by name.
var helpers = map[string]func(args []string) int{}

// RegisterHelper makes a function known as the Command.Helper of a name, which it gets its arguments and standard streams from, as
// a program does; what it returns is its exit code. It must be called before Init, in every process of the program alike: such as in
// an init function. It panics on a name that is taken or empty.
func RegisterHelper(name string, main func(args []string) int) {
	if name == "" || helpers[name] != nil {
		panic("sandbox: helper " + name + " is registered already, or has no name")
	}
	helpers[name] = main
}
