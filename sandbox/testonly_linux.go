package sandbox

// The tests show that each check can fail, by leaving the real set-up step of a layer
// out. A program cannot: nothing but a test file of this package assigns these two
// variables, and no option, flag, file, message or environment variable reaches them.
var (
	// testOnlyOmit is looked at by the daemon, the spawner and the init.
	testOnlyOmit omission
	// testOnlyEnv is how a test tells its hidden helpers, which share no memory with it.
	testOnlyEnv []string
)

// omission names what is left out; the zero value, which every program has, nothing.
type omission struct {
	landlock, seccomp, view, capabilities, limits bool
	// namespaces are the clone flags not to be set. Process ids are never shared: the
	// kill of everything inside would reach everything of the user.
	namespaces uintptr
}
