package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"auspex/collectors"
	"auspex/control"
	"auspex/internal/run"
	"auspex/internal/store/join"
	"auspex/internal/tunnel"
	"auspex/schemas"
)

// tunnels lets node agents dial in, for the roles that reach them.
func (s *stack) tunnels() []run.Component {
	if !s.tunnelled() {
		return nil
	}
	return []run.Component{late("tunnel", func(context.Context) (run.Component, error) {
		var err error
		if s.tunnel, err = tunnel.New(s.cfg.Tunnel, admissions{s.join}, s.log, s.reg); err != nil {
			return nil, fmt.Errorf("tunnel.%w", err)
		}
		s.reloads("certificate for agents that dial in", func(_ context.Context, cfg Config) (func(context.Context) error, error) {
			cert, err := cfg.Tunnel.TLS.Load()
			if err != nil {
				return nil, fmt.Errorf("tunnel.%w", err)
			}
			return func(context.Context) error { s.tunnel.SetCertificate(cert); return nil }, nil
		}, "tunnel.tls")
		return run.Func("tunnel", func(ctx context.Context, ready func()) error {
			return s.tunnel.Run(ctx, func(addr net.Addr) {
				s.log.Info("node agents can dial in", "address", addr.String())
				ready()
			})
		}), nil
	})}
}

func (s *stack) tunnelled() bool {
	return s.cfg.Tunnel.Listen != "" && (s.cfg.has(RoleCollect) || s.cfg.has(RoleControl))
}

// tunnelAddress is where agents dial this process; "" nowhere.
func (s *stack) tunnelAddress() string {
	if !s.tunnelled() {
		return ""
	}
	return s.cfg.Tunnel.Listen
}

// collecting is how collectors reach agents that dial in; nil where none can.
func (s *stack) collecting() collectors.Tunnels {
	if s.tunnel == nil {
		return nil
	}
	return s.tunnel
}

// controlling is how control does.
func (s *stack) controlling() control.Tunnels {
	if s.tunnel == nil {
		return nil
	}
	return s.tunnel
}

// dialsIn tells whether nobody but a running process reaches a server's agent.
func dialsIn(r schemas.Resource) bool {
	return r.Attrs.Get(schemas.AttrAgentAddress) == schemas.AgentDialsIn
}

// admissions lets those in who have joined.
type admissions struct{ store *join.Store }

// Admit implements [tunnel.Admissions].
func (a admissions) Admit(ctx context.Context, token string, m tunnel.Machine) (tunnel.Admission, error) {
	got, err := a.store.Admit(ctx, token, join.Machine(m))
	if errors.Is(err, join.ErrRefused) {
		err = refusal{err}
	}
	return tunnel.Admission(got), err
}

// Admitted implements [tunnel.Admissions].
func (a admissions) Admitted(ctx context.Context) (map[string]tunnel.Admission, error) {
	got, err := a.store.Admitted(ctx)
	out := make(map[string]tunnel.Admission, len(got))
	for key, v := range got {
		out[key] = tunnel.Admission(v)
	}
	return out, err
}

// refusal is an error of the store that the machine hears.
type refusal struct{ error }

// Is implements what [errors.Is] asks.
func (refusal) Is(target error) bool { return target == tunnel.ErrRefused }

// dialling counts the servers whose agents dial in.
func dialling(resources []schemas.Resource) (n int) {
	for _, r := range resources {
		if dialsIn(r) {
			n++
		}
	}
	return n
}
