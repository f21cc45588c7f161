package control

import (
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"auspex/internal/cmdb"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// allocated gives a server of the bench to somebody.
func (b *bench) allocated(name string) schemas.Allocation {
	b.t.Helper()
	inv := cmdb.New(cmdb.DefaultConfig(), b.db, nil, nil)
	inv.Follow(estate.New(b.db))
	top := schemas.Topology{Resources: []schemas.Resource{{ID: name, Kind: schemas.KindServer}}}
	if err := inv.Open(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	if _, err := inv.Import(b.t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		b.t.Fatal(err)
	}
	u, err := people.New(b.db).CreateUser(b.t.Context(), "root", schemas.User{Username: "li", Email: "li@example.com", Role: "engineer", Status: "active"})
	if err != nil {
		b.t.Fatal(err)
	}
	a, err := allocations.New(b.db).Take(b.t.Context(), "li", allocations.Draft{
		User: u.ID, Exclusive: true, Parts: []allocations.Part{{Server: inv.Snapshot().ID(name)}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// TestAServerThatSomebodyHasIsTheirs: a repair in enforce waits for them at each step that takes
// their server or ends their work, and they are told before and after.
func TestAServerThatSomebodyHasIsTheirs(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	had := b.allocated("gpu-r01-03")
	fell := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
	fell.Summary = &schemas.Sentence{ID: "cause", Text: map[string]string{"en": "because", "zh": "掉卡"}}
	as := b.until(c, func(as []schemas.Action) bool {
		return kind(as, "drain").State == schemas.ActionWaiting
	}, fell)
	if d := kind(as, "drain"); !strings.Contains(d.Detail, "li has gpu-r01-03, so they or an admin must approve") || len(b.w.applied) != 0 {
		t.Errorf("%+v, %v sent", d, b.w.applied)
	}
	asked := map[string]bool{}
	as = b.until(c, func(as []schemas.Action) bool {
		for _, a := range as {
			theirs := slices.ContainsFunc(a.Rails, func(r schemas.Rail) bool { return r.Name == railOwner && !r.OK })
			if a.State == schemas.ActionWaiting && theirs && !asked[a.ID] {
				asked[a.ID] = true
				b.intend(c, verbApprove, a)
			}
		}
		return states(as)["uncordon"] == schemas.ActionDone
	})
	if len(asked) != 2 { // the drain and the power cycle, and not the return
		t.Errorf("asked for %d steps: %v", len(asked), show(as))
	}
	told, err := sqldb.Rows(t.Context(), b.db, func(rows *sql.Rows) (text string, err error) { return text, rows.Scan(&text) },
		`SELECT data FROM notices WHERE type=$1 AND subject=$2 ORDER BY time_ns, id`, schemas.NoticeRepair, had.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"drain of gpu-r01-03: waiting", "drain of gpu-r01-03: done", "power_cycle of gpu-r01-03: running", "uncordon of gpu-r01-03: done"} {
		if !slices.ContainsFunc(told, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("nobody was told of %q: %q", want, told)
		}
	}
	r := reasons.NewReader(nil, nil)
	for _, text := range told { // in the words of the reader
		var data struct {
			Detail string            `json:"detail"`
			Cause  *schemas.Sentence `json:"cause"`
		}
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			t.Fatal(err)
		}
		if s := r.Of(data.Detail); s == nil || s.ID != reasons.Repair || s.Args["server"] != "gpu-r01-03" || s.Args["why"] == "" || data.Cause == nil || data.Cause.Text["zh"] == "" {
			t.Errorf("%s is read as %+v, for %+v", data.Detail, s, data.Cause)
		}
	}
}

// TestACaseIsSeenByWhoGivesTheServer, and what is given by who opens a case: never neither.
func TestACaseIsSeenByWhoGivesTheServer(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	had := b.allocated("gpu-r01-03")
	s := allocations.New(b.db)
	if _, err := s.End(t.Context(), "li", had.ID, 0, schemas.AllocationFailed, "", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Free(t.Context(), "li", had.ID, had.ServerID); err != nil {
		t.Fatal(err)
	}
	b.until(c, func(as []schemas.Action) bool { return kind(as, "drain").State != "" }, incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
	_, err := s.Take(t.Context(), "li", allocations.Draft{User: had.UserID, Exclusive: true, Parts: []allocations.Part{{Server: had.ServerID}}})
	if err == nil || !strings.Contains(err.Error(), allocations.WhyCase) {
		t.Errorf("%v", err)
	}
}
