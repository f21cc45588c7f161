package api

import (
	"context"
	"fmt"
	"slices"

	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/audit"
	"auspex/internal/store/configs"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb"
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
	conflicts.Kind:              {"conflicts"},
	discoveries.Kind:            {"discoveries"},
	cmdb.AuditKind:              {"assets", "servers", "gpus", "capacity", "conflicts"},
	estate.KindGPU:              {"gpus", "servers", "capacity"},
	estate.KindPool:             {"pools", "servers", "capacity"},
	estate.KindServer:           {"servers", "capacity"},
	people.KindTeam:             {"teams"},
	people.KindUser:             {"users"},
	workflows.Kind:              {"workflows"},
}

// progress tells how far what runs is, by list: two answers differ where it has moved. It has no
// rows of the audit.
var progress = map[string]func(context.Context, sqldb.Queryer) ([]string, error){
	"workflows": workflows.Moved, "discoveries": discoveries.Moved,
}

// hear marks what was changed since it was asked last, by whatever process: each change has a row
// of the audit in its transaction, or shows in how far something is.
func (l *live) hear(ctx context.Context) error {
	if err := l.tell(ctx); err != nil {
		return err
	}
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
	for list, ask := range progress {
		moved, err := ask(ctx, l.deps.DB)
		if err != nil {
			return fmt.Errorf("read how far %s are: %w", list, err)
		}
		if !first && !slices.Equal(moved, l.moved[list]) {
			l.mark(list)
		}
		l.moved[list] = moved
	}
	return nil
}
