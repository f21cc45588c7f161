package learn

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/cmdb"
	"auspex/internal/store/learned"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// damp is a site of four air units that cool four servers each, and of what happens when one fails: the
// servers report what no record knows, three to five minutes later.
func damp() (t schemas.Topology, storm func(id string, unit int, at time.Time) []schemas.Event) {
	t = schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc", Kind: schemas.KindSite}}}
	for r := range 4 {
		rack, air := fmt.Sprint("r", r), fmt.Sprint("air", r)
		t.Resources = append(t.Resources, schemas.Resource{ID: rack, Kind: schemas.KindRack, Parent: "dc"},
			schemas.Resource{ID: air, Kind: schemas.KindCRAC, Parent: "dc"})
		for n := range 4 {
			id := fmt.Sprintf("s%d%d", r, n)
			t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: schemas.KindServer, Parent: rack})
			t.Links = append(t.Links, schemas.Link{From: air, To: id, Kind: schemas.LinkCools})
		}
	}
	event := func(id, typ, resource string, at time.Time) schemas.Event {
		return schemas.Event{
			ID: id, Time: at, Observed: at, Source: schemas.SourceRedfish, Resource: resource, Type: typ, Severity: schemas.SeverityCritical,
			State: schemas.StateRaised,
		}
	}
	return t, func(id string, unit int, at time.Time) []schemas.Event {
		out := []schemas.Event{event(id, schemas.EventCRACFailure, fmt.Sprint("air", unit), at)}
		for n := range 3 {
			out = append(out, event(fmt.Sprint(id, "d", n), "damp.high", fmt.Sprintf("s%d%d", unit, n), at.Add(time.Duration(3+n)*time.Minute)))
		}
		return out
	}
}

// The product looks for edges by itself: no sooner than it is due, once enough has come to an end, and what a
// person has decided stays decided.
func TestEdgesAreLookedForWhenThatIsDue(t *testing.T) {
	topology, storm := damp()
	db := sqltest.Open(t)
	ctx, st, store := t.Context(), records.New(db), Stored{Store: learned.New(db)}
	inv := cmdb.New(cmdb.DefaultConfig(), db, slog.New(slog.DiscardHandler), nil)
	if err := inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(ctx, cmdb.Draft{Topology: topology}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	for n := range 20 {
		for _, ev := range storm(fmt.Sprint("h", n), n%4, now.Add(-time.Duration(50-n)*24*time.Hour)) {
			if err := st.PutAlert(ctx, schemas.Alert{Event: ev, Status: schemas.AlertFiring}); err != nil {
				t.Fatal(err)
			}
		}
	}
	closed := 0
	end := func(n int, at time.Time) { // long ones, too
		t.Helper()
		for range n {
			closed++
			i := schemas.Incident{ID: fmt.Sprint("i", closed), Opened: at.Add(-time.Duration(closed) * 24 * time.Hour), Closed: &at}
			if err := st.PutIncident(ctx, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	var log bytes.Buffer
	cfg := DefaultConfig().Edges
	cfg.Incidents = 3
	p := NewProposer(cfg, func() []string { return nil }, inv, db, slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
	turn := func(what string, after time.Duration, searches, open int) {
		t.Helper()
		if err := p.turn(ctx, now.Add(after)); err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(p.searches.WithLabelValues("done")); int(got) != searches {
			t.Errorf("%s: %v searches, want %d", what, got, searches)
		}
		if got := testutil.ToFloat64(p.waiting); int(got) != open {
			t.Errorf("%s: %v proposals wait, want %d", what, got, open)
		}
	}
	turn("nothing has come to an end", 0, 0, 0)
	end(2, now)
	turn("too little has come to an end", 0, 0, 0)
	end(1, now)
	turn("first", 0, 1, 1)
	if !strings.Contains(log.String(), "new=1") {
		t.Errorf("the log says %q", log.String())
	}
	end(5, now.Add(time.Hour))
	turn("an hour later", time.Hour, 1, 1)
	list, err := store.Proposals(ctx, "")
	if err != nil || len(list) != 1 || list[0].Effect != "damp.high" || list[0].State != schemas.EdgeOpen {
		t.Fatalf("%+v, error %v", list, err)
	}
	turn("a day later", 25*time.Hour, 2, 1)
	turn("two days later, and nothing has come to an end since", 50*time.Hour, 2, 1)
	if _, err := store.Decide(ctx, list[0].ID, schemas.EdgeDecision{Decision: schemas.EdgeDeclined, Reason: "a door", Author: "ann", Time: now}); err != nil {
		t.Fatal(err)
	}
	end(3, now.Add(60*time.Hour))
	turn("it was declined", 75*time.Hour, 3, 0)
	if list, err = store.Proposals(ctx, ""); err != nil || len(list) != 1 || list[0].State != schemas.EdgeDeclined {
		t.Errorf("%+v, error %v", list, err)
	}
	if got := testutil.ToFloat64(p.found); got != 1 || strings.Count(log.String(), "new=") != 1 {
		t.Errorf("%v were new; the log says %s", got, log.String())
	}
	if v, err := store.Active(ctx); err != nil || v != 0 {
		t.Errorf("version %d is in force, error %v", v, err)
	}
	// A search that has no time is given up and not tried again at once.
	late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	cancel()
	if _, err := ProposeStored(late, db, &topology, propagation.Default(), now.Add(-cfg.Since), 0, &log); err == nil {
		t.Error("a search without time found something")
	}
}

// What is looked at is bounded: the oldest events go, and what is left is what a site would have found that had
// seen no others. Where there is room nothing changes.
func TestASearchForEdgesIsBounded(t *testing.T) {
	topology, storm := damp()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []schemas.Event
	for n := range 60 {
		at := start.Add(time.Duration(n) * 30 * time.Minute)
		all = append(all, storm(fmt.Sprint("h", n), rng.IntN(4), at)...)
	}
	site := func(events []schemas.Event) *Site {
		s := NewSite(&topology, propagation.Default())
		for i := range events {
			s.Add(&events[i])
		}
		return s
	}
	pairs := func(s *Site) (n int) {
		l := &learner{events: slices.Clone(s.events), places: s.places}
		slices.SortStableFunc(l.events, func(a, b Occurrence) int { return cmp.Compare(a.At, b.At) })
		l.relate()
		for _, p := range l.pasts {
			n += len(p)
		}
		return n
	}
	whole := pairs(site(all))
	if dropped := site(all).bound(2 * whole); dropped != 0 {
		t.Errorf("%d of %d events are left out where there is room", dropped, len(all))
	}
	shuffled := slices.Clone(all)
	rng.Shuffle(len(shuffled)-1, func(i, j int) { shuffled[i+1], shuffled[j+1] = shuffled[j+1], shuffled[i+1] })
	for _, most := range []int{0, 10, whole / 3, whole / 2} {
		s := site(shuffled)
		dropped := s.bound(most)
		if left := pairs(s); left > most || dropped == 0 {
			t.Errorf("%d pairs are left of %d, with %d events less; at most %d were to be", left, whole, dropped, most)
		}
		if dropped == len(all) {
			continue
		}
		sorted := slices.Clone(all)
		slices.SortStableFunc(sorted, func(a, b schemas.Event) int { return a.Time.Compare(b.Time) })
		want, err := site(sorted[dropped:]).Propose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Propose(t.Context())
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d proposals, want %d, error %v", len(got), len(want), err)
		}
		for i := range got {
			if got[i].ID != want[i].ID || got[i].Events != want[i].Events || !got[i].From.Equal(want[i].From) || len(got[i].Causes) != len(want[i].Causes) {
				t.Errorf("got %+v, want %+v", got[i], want[i])
			}
		}
	}
}
