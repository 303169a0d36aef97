//go:build !linux

package quicconn

import "net"

// coalesced is about Linux: elsewhere sockets are read as quic-go does by itself.
func coalesced(socket net.PacketConn) (conn net.PacketConn, undo func()) {
	return socket, func() {}
}
