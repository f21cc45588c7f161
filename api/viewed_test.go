package api

import (
	"context"
	"testing"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/schemas"
)

// toldOf is a history of events by server; one without any is nil, as a store may answer.
type toldOf struct {
	History
	of map[string][]schemas.Event
}

func (h toldOf) Events(_ context.Context, device string, _, _ time.Time, _ int) ([]schemas.Event, error) {
	return h.of[device], nil
}

func sightOf(spans ...allocations.Span) *sight {
	v := &sight{names: cmdb.New(cmdb.DefaultConfig(), nil, nil, nil).Snapshot, had: map[string][]allocations.Span{}}
	for _, sp := range spans {
		v.had[sp.Server] = append(v.had[sp.Server], sp)
	}
	return v
}

// A server of which nothing happened hides nothing of a tenant's others.
func TestAQuietServerHidesNoEvents(t *testing.T) {
	from := time.Now().Add(-time.Hour)
	v := sightOf(allocations.Span{Server: "a", From: from}, allocations.Span{Server: "b", From: from})
	ctx := context.WithValue(t.Context(), identityKey{}, &identity{sees: v})
	h := past{toldOf{of: map[string][]schemas.Event{"b": {{ID: "e1", Resource: "b", Time: time.Now().Add(-time.Minute)}}}}}
	if got, err := h.Events(ctx, "", time.Time{}, time.Time{}, 10); err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if got, err := (past{toldOf{}}).Events(ctx, "", time.Time{}, time.Time{}, 10); err != nil || got != nil {
		t.Errorf("without a history: %v %v", got, err)
	}
}

// Who has one GPU of a server reads nothing of a part that the inventory does not know.
func TestAnUnknownPartIsNotOfWhoHasOneGPU(t *testing.T) {
	from := time.Now().Add(-time.Hour)
	v := sightOf(allocations.Span{Server: "a", GPU: "a/gpu0", From: from})
	for resource, seen := range map[string]bool{"a": true, "": true, "a/gpu0": true, "a/gpu1": false} {
		if got := len(v.Spans("a", resource)) > 0; got != seen {
			t.Errorf("%q: %v", resource, got)
		}
	}
	if whole := sightOf(allocations.Span{Server: "a", From: from}); len(whole.Spans("a", "a/gpu1")) != 1 {
		t.Error("who has the server does not read its parts")
	}
}
