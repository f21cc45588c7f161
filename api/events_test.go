package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// past is a history of events, the last first.
type past struct {
	api.History
	all  []schemas.Event
	away bool
}

func (h *past) Events(_ context.Context, f records.EventFilter) (page []schemas.Event, next string, err error) {
	if h.away {
		return nil, "", errors.New("it is away")
	}
	at := 0
	if f.After != "" {
		c, err := sqldb.ParseCursor(f.After)
		if err != nil {
			return nil, "", err
		}
		at = slices.IndexFunc(h.all, func(ev schemas.Event) bool { return ev.ID == c.ID }) + 1
	}
	page = []schemas.Event{}
	for _, ev := range h.all[at:] {
		if f.Severity == "" || string(ev.Severity) == f.Severity {
			page = append(page, ev)
		}
	}
	page, next = sqldb.Page(page, f.Limit, func(ev *schemas.Event) (time.Time, string) { return ev.Observed, ev.ID })
	return page, next, nil
}

// The events of the history come in pages and as lines, each of them once, however many there are.
func TestTheHistoryComesInPages(t *testing.T) {
	h, now := &past{}, time.Now().UTC()
	for k := range 2500 {
		ev := schemas.Event{ID: fmt.Sprintf("e%04d", k), Type: "gpu.xid", Source: "kmsg", Severity: schemas.SeverityError, Resource: "gpu-r01-01", Time: now, Observed: now.Add(-time.Duration(k))}
		if k%100 == 0 {
			ev.Severity = schemas.SeverityCritical
		}
		h.all = append(h.all, ev)
	}
	w := start(t, true, func(_ *api.Config, d *api.Deps) { d.History = h })
	list := func(query string) (ids []string) {
		t.Helper()
		for after := ""; ; {
			page := read[apigen.EventList](t, w, "api/v1/events?"+query+"&after="+after)
			if !page.History {
				t.Fatal("these are alerts")
			}
			for _, ev := range page.Items {
				ids = append(ids, ev.ID)
			}
			if after = page.Next; after == "" {
				return ids
			}
		}
	}
	if ids := list("limit=999"); len(ids) != 2500 || !slices.IsSorted(ids) {
		t.Errorf("%d events", len(ids))
	}
	if ids := list("severity=critical&limit=7"); len(ids) != 25 || ids[24] != "e2400" {
		t.Errorf("%v", ids)
	}
	lines := w.send(t, http.MethodGet, "api/v1/events?fields=id", access.RoleViewer, func(r *http.Request) { r.Header.Set("Accept", "application/x-ndjson") })
	if n := strings.Count(string(lines.body), "\n"); n != 2500 {
		t.Errorf("%d lines", n)
	}
	if a := w.send(t, http.MethodGet, "api/v1/events?after=zzz", access.RoleViewer, nil); a.status != http.StatusBadRequest || a.problem(t).Code != "bad_cursor" {
		t.Errorf("%d %s", a.status, a.body)
	}
	page := read[apigen.EventList](t, w, "api/v1/events?limit=5")
	h.away = true
	if a := w.send(t, http.MethodGet, "api/v1/events?limit=5&after="+page.Next, access.RoleViewer, nil); a.status != http.StatusServiceUnavailable || a.problem(t).Code != "no_history" {
		t.Errorf("a page while the history is away: %d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "api/v1/events?after="+strings.Repeat("0", 700), access.RoleViewer, nil); a.status != http.StatusBadRequest || a.problem(t).Code != "bad_cursor" {
		t.Errorf("a cursor of no list while the history is away: %d %s", a.status, a.body)
	}
	// The alerts stand in, and their pages go on as alerts also when the history is back.
	page = read[apigen.EventList](t, w, "api/v1/events?limit=5")
	h.away = false
	if more := read[apigen.EventList](t, w, "api/v1/events?limit=5&after="+page.Next); page.History || more.History || len(more.Items) != 5 || more.Items[0].ID == page.Items[0].ID {
		t.Errorf("%+v", more)
	}
}

// Alerts and events are chosen by what they are, by pages.
func TestAlertsAreChosenByWhatTheyAre(t *testing.T) {
	w := start(t, true)
	count := map[string]int{}
	for _, a := range read[apigen.AlertList](t, w, "api/v1/alerts?limit=1000").Items {
		for _, query := range []string{"severity=" + string(a.Severity), "type=" + a.Type, "source=" + a.Source, "source=" + a.Source + "&severity=" + string(a.Severity)} {
			count[query]++
		}
	}
	if len(count) < 6 {
		t.Fatal("they are all alike")
	}
	for query, want := range count {
		for _, list := range []string{"alerts", "events"} {
			n := 0
			for after := ""; ; {
				page := read[apigen.AlertList](t, w, "api/v1/"+list+"?limit=20&"+query+"&after="+after)
				if n += len(page.Items); page.Next == "" {
					break
				}
				after = page.Next
			}
			if n != want {
				t.Errorf("%s by %s: %d, want %d", list, query, n, want)
			}
		}
	}
}
