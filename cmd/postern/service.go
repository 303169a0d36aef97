package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/postern-relay/postern/wire/quicconn"
)

// A daemon of ours may be a systemd service of Type=notify. Without one, and on other systems, all of this does
// nothing.

// notifyReady says that the service has started.
func notifyReady() { _, _ = systemd.SdNotify(false, systemd.SdNotifyReady) }

// notifyStopping says that it is about to end.
func notifyStopping() { _, _ = systemd.SdNotify(false, systemd.SdNotifyStopping) }

// notifyReloading brackets a reload.
func notifyReloading(reload func()) {
	_, _ = systemd.SdNotify(false, systemd.SdNotifyReloading+"\n"+systemd.SdNotifyMonotonicUsec())
	reload()
	notifyReady()
}

// keepWatchdog tells systemd, as often as it asks for, that the daemon lives, as long as alive answers. It returns when ctx is done.
func keepWatchdog(ctx context.Context, alive func()) {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	ticker := time.NewTicker(interval / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			alive() // a daemon that is stuck does not come back from here
			_, _ = systemd.SdNotify(false, systemd.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
	}
}

// inheritedSocket is the UDP socket that systemd has opened for the service, nil where there is none.
func inheritedSocket() (*net.UDPConn, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	for _, f := range files[1:] {
		f.Close()
	}
	if len(files) > 1 {
		files[0].Close()
		return nil, fmt.Errorf("systemd has opened %d sockets for this service: want one, of ListenDatagram=", len(files))
	}
	return quicconn.InheritedSocket(files[0])
}
