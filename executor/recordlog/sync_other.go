//go:build !linux

package recordlog

import "os"

func syncData(f *os.File) error { return f.Sync() }
