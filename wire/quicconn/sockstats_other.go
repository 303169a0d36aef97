//go:build !linux

package quicconn

import "syscall"

func socketStats(syscall.RawConn) (drops uint64, receiveBuffer int, ok bool) { return 0, 0, false }
