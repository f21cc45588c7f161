package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors/redfish"
	"auspex/internal/discover"
	"auspex/internal/run"
	"auspex/internal/store/discoveries"
)

// discover does the sweeps for board controllers that the role api was asked for.
func (s *stack) discover() []run.Component {
	if !s.cfg.has(RoleCollect) {
		return nil
	}
	return []run.Component{s.lasting("discovery", func(reg prometheus.Registerer) (run.Component, error) {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
		r := discover.NewRunner(s.cfg.Discovery, discover.Deps{
			Sweeps: discoveries.New(s.db), Inventory: s.inv, Secret: s.secrets.Secret, TLS: s.trustsBMCs, Gate: s.gate,
			Holder: fmt.Sprintf("%s/%d", host, os.Getpid()), Log: s.log, Metrics: reg,
		})
		return run.Func("discovery", func(ctx context.Context, ready func()) error {
			ready()
			r.Run(ctx)
			return nil
		}), nil
	})}
}

// trustsBMCs is whom the Redfish collector trusts, or would.
func (s *stack) trustsBMCs() (*tls.Config, error) {
	settings := s.cfg.Trust.BMC
	if c, ok := s.cfg.Collectors.m[redfish.Name].(*redfish.Config); ok {
		settings = c.TLS
	}
	return settings.Client()
}
