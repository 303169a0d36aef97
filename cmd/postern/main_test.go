package main

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/postern-relay/postern/sandbox"
)

// The test binary is postern too, and a sandbox's own processes: nothing is built by a test.
func TestMain(m *testing.M) {
	sandbox.Init()
	// Most tests here wait for something, and need no processor meanwhile. The command line may say otherwise.
	_ = flag.Set("test.parallel", "6") // cannot fail: the flag exists
	testscript.Main(m, map[string]func(){"postern": main})
}
