//go:build linux && !race

package main

const (
	leakSequential = 1000
	leakParallel   = 100
)

// raceDetector needs memory of its own.
const raceDetector = false
