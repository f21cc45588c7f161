package validations_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/store/validations"
	"auspex/schemas"
)

// site is four servers of one model, whose GPUs are alike but for one driver and one that lacks; by name, their ids.
func site(t *testing.T) (s *validations.Store, ids map[string]string) {
	t.Helper()
	db := sqltest.Open(t)
	inv, e := cmdb.New(cmdb.DefaultConfig(), db, nil, nil), estate.New(db)
	inv.Follow(e)
	top := schemas.Topology{}
	for n := range 4 {
		name := fmt.Sprintf("s%d", n)
		top.Resources = append(top.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrModel: "DGX"})})
		for g := range 2 {
			if n == 3 && g == 1 {
				continue
			}
			driver := "575.51"
			if n == 0 {
				driver = "570.10"
			}
			top.Resources = append(top.Resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name, Attrs: schemas.AttrsOf(map[string]string{
				schemas.AttrModel: "H100", schemas.AttrDriverVersion: driver, schemas.AttrMemoryGB: "80",
			})})
		}
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	ids = map[string]string{}
	for n := range 4 {
		v, err := e.Server(t.Context(), fmt.Sprintf("s%d", n))
		if err != nil {
			t.Fatal(err)
		}
		ids[v.Name] = v.ID
	}
	return validations.New(db), ids
}

func TestAValidationIsKeptOnceAndCounted(t *testing.T) {
	s, ids := site(t)
	put := func(id, server string, verdicts ...string) schemas.Validation {
		v := schemas.Validation{ID: id, ServerID: ids[server], Server: server, Level: 2}
		for _, verdict := range verdicts {
			v.Checks = append(v.Checks, schemas.ValidationCheck{Name: "ecc", Part: server + "/gpu0", Verdict: verdict, Source: schemas.SeenByAgent})
		}
		v, err := s.Put(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := put("a1", "s0", schemas.CheckPassed, schemas.CheckNotSeen)
	if first.Number != 1 || first.Verdict != schemas.CheckPassed || first.Created.IsZero() {
		t.Errorf("%+v", first)
	}
	if again := put("a1", "s0", schemas.CheckFailed); cmp.Diff(first, again) != "" {
		t.Errorf("it changed: %+v", again)
	}
	if v := put("a2", "s0", schemas.CheckNotSeen); v.Number != 2 || v.Verdict != schemas.CheckNotSeen {
		t.Errorf("what nobody saw is passed: %+v", v)
	}
	if v := put("a3", "s0", schemas.CheckPassed, schemas.CheckWarned, schemas.CheckFailed); v.Number != 3 || v.Verdict != schemas.CheckFailed {
		t.Errorf("%+v", v)
	}
	if v := put("b1", "s1", schemas.CheckPassed, schemas.CheckWarned); v.Number != 1 || v.Verdict != schemas.CheckWarned {
		t.Errorf("%+v", v)
	}
	page, err := s.Of(t.Context(), ids["s0"], 0, 2)
	if err != nil || len(page) != 2 || page[0].ID != "a3" || page[1].ID != "a2" {
		t.Errorf("%+v %v", page, err)
	}
	page, err = s.Of(t.Context(), ids["s0"], page[1].Number, 2)
	if err != nil || len(page) != 1 || cmp.Diff(first, page[0]) != "" {
		t.Errorf("%+v %v", page, err)
	}
	for n := range validations.Keep {
		put(fmt.Sprint("c", n), "s0", schemas.CheckPassed)
	}
	if page, err = s.Of(t.Context(), ids["s0"], 0, 1000); err != nil || len(page) != validations.Keep || page[len(page)-1].Number != 4 {
		t.Errorf("%d are kept, %v", len(page), err)
	}
}

func TestTheFleetBesideAServer(t *testing.T) {
	s, ids := site(t)
	f, err := s.Fleet(t.Context(), ids["s0"])
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"2": 2, "1": 1}, f.GPUs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]map[string]int{"H100": {"575.51": 5}}, f.Drivers); d != "" {
		t.Error(d)
	}
	if n := len(f.Memory["H100"]); n != 1 {
		t.Errorf("%v", f.Memory)
	}
}
