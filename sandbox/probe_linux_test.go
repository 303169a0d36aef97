package sandbox

import "os"

func probeMain(args []string) { os.Exit(3) }
