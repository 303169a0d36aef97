package sandbox

import "time"

// lease is how long a command goes on after its daemon is gone, or has closed the
// socket to the init. Zero means that it ends at once: there is nobody yet who could
// take over the socket of a running init and read its result. The init notices, in
// supervisor.obey, whatever the daemon died of; nothing else watches the daemon. A
// spawner and a sandbox that waits for its command have nothing to go on with and end
// at once under any lease.
const lease time.Duration = 0

// outlive returns when the lease of a daemon that has just gone is over.
func outlive() { time.Sleep(lease) }
