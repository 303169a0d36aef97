//go:build !unix

package executor

// openFiles is how many descriptors this process may have. Commands have no proxies here.
func openFiles() uint64 { return 1024 }
