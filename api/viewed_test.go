package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// toldOf is a history of events by server; one without any is nil, as a store may answer.
type toldOf struct {
	History
	of map[string][]schemas.Event
}

// Events answers in pages, as a history does; times of observation are asked for, and nothing else.
func (h toldOf) Events(_ context.Context, f records.EventFilter) (page []schemas.Event, next string, err error) {
	for _, ev := range h.of[f.Device] {
		c, _ := f.Behind()
		after := schemas.Event{ID: c.ID, Observed: time.Unix(0, c.Time)}
		if !ev.Observed.Before(f.Since) && (f.Until.IsZero() || !ev.Observed.After(f.Until)) && (f.After == "" || f.Compare(&ev, &after) > 0) {
			page = append(page, ev)
		}
	}
	slices.SortFunc(page, func(a, b schemas.Event) int { return f.Compare(&a, &b) })
	page, next = f.Page(page)
	return page, next, nil
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
	h := past{toldOf{of: map[string][]schemas.Event{"b": {{ID: "e1", Resource: "b", Time: time.Now().Add(-time.Minute), Observed: time.Now().Add(-time.Minute)}}}}}
	if got, _, err := h.Events(ctx, records.EventFilter{Limit: 10}); err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if got, _, err := (past{toldOf{}}).Events(ctx, records.EventFilter{Limit: 10}); err != nil || got != nil {
		t.Errorf("without a history: %v %v", got, err)
	}
}

// A tenant turns the pages of what happened to each of their servers while they had it: each event
// comes once, in order, and nothing of another time or of somebody else's GPU.
func TestATenantTurnsThePagesOfTheirEvents(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	v := sightOf(
		allocations.Span{Server: "a", From: ago(50)}, allocations.Span{Server: "b", From: ago(40), Until: ago(20)},
		allocations.Span{Server: "c", GPU: "c/gpu0", From: ago(50)}, allocations.Span{Server: "c", GPU: "c/gpu1", From: ago(50)},
	)
	ctx := context.WithValue(t.Context(), identityKey{}, &identity{sees: v})
	of := map[string][]schemas.Event{}
	var want []schemas.Event
	for k := range 60 {
		for _, r := range []string{"a", "b", "c", "c/gpu0", "c/gpu7"} {
			ev := schemas.Event{ID: fmt.Sprintf("%s-%02d", r, k), Resource: r, Time: ago(k), Observed: ago(k)}
			server, _, _ := strings.Cut(r, "/")
			of[server] = append(of[server], ev)
			if r == "b" && k >= 20 && k <= 40 || r != "b" && r != "c/gpu7" && k <= 50 {
				want = append(want, ev)
			}
		}
	}
	for _, limit := range []int{1, 7, 1000, -7} {
		var got []schemas.Event
		f := records.EventFilter{Limit: max(limit, -limit), Oldest: limit < 0}
		slices.SortFunc(want, func(a, b schemas.Event) int { return f.Compare(&a, &b) })
		for {
			page, next, err := past{toldOf{of: of}}.Events(ctx, f)
			if err != nil || len(page) > f.Limit || len(page) == 0 {
				t.Fatalf("%d events: %v", len(page), err)
			}
			got = append(got, page...)
			if f.After = next; next == "" {
				break
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("in pages of %d:\n%s", limit, d)
		}
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
