// Package ipmi is the IPMI 2.0 interface of a simulated board controller: RMCP+
// sessions over UDP with cipher suites 3 and 17, chassis, event log, sensor data
// records and sensors (Intelligent Platform Management Interface Specification,
// v2.0 rev. 1.1), answered from the fleet's physical model.
package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"auspex/internal/run"
	"auspex/internal/sim/device"
)

const (
	// MaxSessions is the number of sessions at a time, opening ones included.
	MaxSessions = 32
	// SessionTimeout ends a session that is silent (section 6.12.15).
	SessionTimeout = 60 * time.Second
	// maxDelayed bounds the requests that wait for a slow controller's answer.
	maxDelayed  = 32
	maxDatagram = 1024
)

// Server is the IPMI interface of one controller.
type Server struct {
	b device.BMC

	dropped atomic.Uint64

	mu             sync.Mutex
	sessions       map[uint32]*session
	lastSession    uint32
	sdr            repository
	selReservation uint16
	bootParams     map[byte][]byte // what is only stored and told again
	local          net.IP          // where it answers
	power          draw
	limit          limit
}

// NewServer returns the interface of a controller; it does nothing before Serve.
func NewServer(b device.BMC) *Server {
	return &Server{b: b, sessions: map[uint32]*session{}, bootParams: map[byte][]byte{}}
}

// Dropped is the number of datagrams that were not answered, because they were no
// IPMI, belonged to no session, failed their checksum or integrity code, or came
// faster than a slow controller answers.
func (s *Server) Dropped() uint64 { return s.dropped.Load() }

// Serve answers datagrams of a connection, which the caller closes afterwards. It
// returns nil when the context ends.
func (s *Server) Serve(ctx context.Context, conn net.PacketConn) error {
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		s.mu.Lock()
		s.local = a.IP
		s.mu.Unlock()
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	slots := make(chan struct{}, maxDelayed)
	buf := make([]byte, maxDatagram)
	for {
		n, peer, err := conn.ReadFrom(buf)
		if ctx.Err() != nil {
			return nil
		}
		var timeout net.Error
		switch {
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("read IPMI datagrams: %w", err)
		case errors.As(err, &timeout) && timeout.Timeout():
			continue
		case err != nil:
			s.dropped.Add(1) // a peer that is gone shows as an error of the socket
			continue
		}
		f := s.b.Fault()
		if f.Mute || f.Away {
			s.dropped.Add(1)
			continue
		}
		if f.Delay <= 0 {
			s.answer(conn, peer, buf[:n], f.Garble)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			s.dropped.Add(1)
			continue
		}
		datagram := append([]byte(nil), buf[:n]...)
		waiting.Go(func() {
			defer func() { <-slots }()
			if run.Sleep(ctx, f.Delay) == nil {
				s.answer(conn, peer, datagram, f.Garble)
			}
		})
	}
}

func (s *Server) answer(conn net.PacketConn, peer net.Addr, datagram []byte, garble bool) {
	out := s.handle(datagram, garble)
	if out == nil {
		s.dropped.Add(1)
		return
	}
	if _, err := conn.WriteTo(out, peer); err != nil {
		s.dropped.Add(1)
	}
}

// handle returns the answer to a datagram, or nil.
func (s *Server) handle(in []byte, garble bool) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	// RMCP header (section 13.1.3): version, reserved, sequence number, class.
	if len(in) < 4 || in[0] != rmcpVersion {
		return nil
	}
	switch in[3] {
	case classASF:
		return pong(in)
	case classIPMI:
	default:
		return nil
	}
	if len(in) < 5 {
		return nil
	}
	switch in[4] {
	case authNone:
		return s.handleV15(in, garble)
	case authRMCPP:
		return s.handleV20(in, garble)
	}
	return nil
}
