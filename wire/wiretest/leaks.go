package wiretest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// RunWithoutLeaks runs a package's tests and ends the process, with a failure if they leave a goroutine behind: [goleak.VerifyTestMain],
// with five seconds instead of half a second for those that are about to end.
func RunWithoutLeaks(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "goleak: the tests leave goroutines behind: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
