package api

import (
	"context"
	"fmt"
	"slices"

	"auspex/internal/store/allocations"
	"auspex/internal/store/audit"
	"auspex/internal/store/configs"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/workflows"
)

// listsOf are what a row of the audit is about, by its kind, and the lists that it changes. A kind
// that is not here changes the audit alone, or what the bus tells of.
var listsOf = map[string][]string{
	allocations.Kind:            {"allocations"},
	allocations.KindQuota:       {"quotas", "capacity"},
	allocations.KindReservation: {"reservations", "capacity"},
	configs.KindGPU:             {"configs"},
	configs.KindServer:          {"configs"},
	estate.KindGPU:              {"gpus", "servers", "capacity"},
	estate.KindPool:             {"pools", "servers", "capacity"},
	estate.KindServer:           {"servers", "capacity"},
	people.KindTeam:             {"teams"},
	people.KindUser:             {"users"},
	workflows.Kind:              {"workflows"},
}

// hear marks what was changed since it was asked last, by whatever process: each change has a row
// of the audit in its transaction. How far the steps of a workflow are has none.
func (l *live) hear(ctx context.Context) error {
	head, kinds, err := audit.Since(ctx, l.deps.DB, l.heard)
	if err != nil {
		return err
	}
	first := l.heard < 0
	if !first && head != l.heard {
		l.mark("audit")
		for _, kind := range kinds {
			l.mark(listsOf[kind]...)
		}
	}
	l.heard = head
	moved, err := workflows.Moved(ctx, l.deps.DB)
	if err != nil {
		return fmt.Errorf("read how far workflows are: %w", err)
	}
	if !first && !slices.Equal(moved, l.moved) {
		l.mark("workflows")
	}
	l.moved = moved
	return nil
}
