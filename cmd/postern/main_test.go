package main

import (
	"flag"
	"os"
	"os/signal"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/postern-relay/postern/sandbox"
)

// The test binary is postern too, and a sandbox's own processes: nothing is built by a test.
func TestMain(m *testing.M) {
	sandbox.Init()
	if os.Getenv("POSTERN_AGENT") == "" { // those of the agent ask for it
		os.Setenv("POSTERN_AGENT", "off")
	}
	// Most tests here wait for something, and need no processor meanwhile. The command line may say otherwise.
	_ = flag.Set("test.parallel", "6") // cannot fail: the flag exists
	if signal.Ignored(os.Interrupt) {
		// As below a shell that runs this in the background. Children inherit what is ignored, not what is caught, and
		// those of the scripts are meant to end at an interrupt from their first moment on.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(m, map[string]func(){"postern": main})
}
