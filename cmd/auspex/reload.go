package main

import (
	"context"
	"slices"
	"strings"

	"auspex/collectors"
	"auspex/internal/config"
	"auspex/internal/reload"
	"auspex/internal/secrets"
	"auspex/schemas/faults/propagation"
)

// prepare is what a part does with a changed configuration: see [reload.Part].
type prepare = func(ctx context.Context, cfg Config) (apply func(context.Context) error, err error)

func nothing(context.Context) error { return nil }

// reloads lets a part that runs take settings over. What no part takes over needs
// a restart: what control may do to machines is meant to be among it.
func (s *stack) reloads(name string, p prepare, keys ...string) {
	if s.reload != nil {
		s.reload.Add(reload.Part[Config]{Name: name, Keys: keys, Prepare: p})
	}
}

func (s *stack) prepareLog(_ context.Context, cfg Config) (func(context.Context) error, error) {
	return func(context.Context) error { return s.level.UnmarshalText([]byte(cfg.Log.Level)) }, nil
}

// reloadsState lets the secrets, the inventory and the fault records change.
func (s *stack) reloadsState() {
	s.reloads("fault records", func(_ context.Context, cfg Config) (func(context.Context) error, error) {
		m, err := propagation.Load(cfg.Correlator.Faults...)
		return func(context.Context) error { s.faults.Store(m); return nil }, err
	}, "correlator.faults")
	s.reloads("secrets", func(_ context.Context, cfg Config) (func(context.Context) error, error) {
		f, err := secrets.Read(cfg.Secrets)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { s.secrets.Set(f); return nil }, nil
	}, "secrets")
	s.reloads("inventory", s.prepareInventory, "inventory.file", "inventory.source", "inventory.max_removed", "inventory.removed_within",
		"inventory.max_skipped")
}

// reloadsCollectors lets collectors come, go and change; those that stay the same
// are not disturbed.
func (s *stack) reloadsCollectors(r *collectors.Runner) {
	last := s.cfg
	s.reloads("collectors", func(_ context.Context, cfg Config) (func(context.Context) error, error) {
		var changed []string
		for _, key := range config.Diff(&last, &cfg) {
			if rest, ok := strings.CutPrefix(key, "collectors."); ok {
				name, _, _ := strings.Cut(rest, ".")
				changed = append(changed, name)
			}
		}
		replace, err := r.Prepare(cfg.Collectors.m, slices.Compact(changed), s.inv.Snapshot().Resources())
		if err != nil {
			return nil, err
		}
		return func(context.Context) error {
			last = cfg
			replace()
			s.reconcile(r, s.inv.Snapshot().Resources())
			return nil
		}, nil
	}, "collectors")
}
