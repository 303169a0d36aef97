//go:build linux && !race

package sandbox

const raceDetector = false
