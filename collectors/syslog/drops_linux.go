package syslog

import (
	"encoding/binary"
	"net"
	"syscall"
)

// countDrops has the kernel say with each datagram how many it has dropped (socket(7), SO_RXQ_OVFL).
func countDrops(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RXQ_OVFL, 1)
	})
}

// dropped reads that count.
func dropped(oob []byte) (uint32, bool) {
	if len(oob) == 0 {
		return 0, false
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SO_RXQ_OVFL && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data), true
		}
	}
	return 0, false
}
