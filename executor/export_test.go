package executor

// SetReachable is what a registration with a relay, and its loss, tells the backend.
func (l *Local) SetReachable(yes bool) { l.table.setReachable(yes) }

// StoreUsed is what the output files take, bytes.
func (l *Local) StoreUsed() int64 { return l.table.files.Used() }
