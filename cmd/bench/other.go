//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: an executor needs Linux, so run this there")
	os.Exit(1)
}
