//go:build !unix

package executor

// readNow reads what is in a pipe at this moment: nobody knows here.
func readNow(any, []byte) (int, error) { return 0, nil }
