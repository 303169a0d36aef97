package executor

// closedChan is for waits that have nothing to wait for.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// wakeAll closes the channel that waiters have, if there are any.
func wakeAll(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
