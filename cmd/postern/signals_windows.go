package main

import (
	"os"

	"github.com/postern-relay/postern/wire"
)

func platformSignals() []os.Signal { return nil }

func platformName(os.Signal) wire.Signal { return "TERM" }

func isResize(os.Signal) bool { return false }

func ignorePipe() {}
