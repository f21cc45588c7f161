//go:build !linux

package syslog

import "net"

// countDrops does nothing: only Linux counts.
func countDrops(*net.UDPConn) {}

func dropped([]byte) (uint32, bool) { return 0, false }
