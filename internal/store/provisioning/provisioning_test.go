package provisioning_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// site is a server, by its id.
func site(t *testing.T) (s *provisioning.Store, db *sqldb.DB, server string) {
	t.Helper()
	db = sqltest.Open(t)
	inv, e := cmdb.New(cmdb.DefaultConfig(), db, nil, nil), estate.New(db)
	inv.Follow(e)
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "a", Kind: schemas.KindServer}}}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	v, err := e.Server(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return provisioning.New(db), db, v.ID
}

func text(s string) schemas.TemplateBody {
	return schemas.TemplateBody{OSFamily: "ubuntu", Architectures: []string{schemas.ArchX86}, Text: s, Parameters: map[string]any{"type": "object"}}
}

func says(s string) func(*schemas.Template) { return func(t *schemas.Template) { t.Text = s } }

func TestVersionsNeverChangeOnceTheyAreMade(t *testing.T) {
	s, db, _ := site(t)
	made, err := s.Create(t.Context(), "li", "ubuntu", text("one"))
	if err != nil || made.Version != 1 || made.VersionBy != "li" || made.Status != schemas.TemplateActive {
		t.Fatalf("%+v %v", made, err)
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for k := range 5 {
				for {
					_, err := s.Update(t.Context(), "bo", "ubuntu", 0, says(string(rune('a'+n))+string(rune('a'+k))))
					if sqldb.Again(err) || errors.Is(err, entity.ErrChanged) {
						continue
					} else if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	all.Wait()
	versions, err := s.Versions(t.Context(), made.ID, 0, 100)
	if err != nil || len(versions) != 41 {
		t.Fatalf("%d versions: %v", len(versions), err)
	}
	for i := range versions {
		if versions[i].Version != int64(41-i) {
			t.Errorf("%d: version %d", i, versions[i].Version)
		}
	}
	first, err := s.Version(t.Context(), made.ID, 1)
	if d := cmp.Diff(made.TemplateVersion, first); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	now, err := s.Template(t.Context(), made.ID)
	if now.Text == "" || versions[0].Text != "" {
		t.Errorf("%q, and in the list %q", now.Text, versions[0].Text)
	}
	now.Text, now.Parameters = "", map[string]any{} // as lists have them
	if d := cmp.Diff(versions[0], now.TemplateVersion); err != nil || d != "" || now.Name != "ubuntu" {
		t.Errorf("%v %s", err, d)
	}
	chain, err := audit.New(db, time.Now).Check(t.Context())
	if err != nil || chain.Broken != 0 || chain.Rows < 41 {
		t.Errorf("%+v %v", chain, err)
	}
}

func TestWhatATemplateMayBe(t *testing.T) {
	s, _, _ := site(t)
	ctx := sqldb.WithRequest(t.Context(), "li k1")
	for range 2 { // the same request
		if v, err := s.Create(ctx, "li", "ubuntu", text("one")); err != nil || v.Version != 1 {
			t.Errorf("%+v %v", v, err)
		}
	}
	var field *entity.FieldError
	if _, err := s.Create(t.Context(), "li", "ubuntu", text("two")); !errors.As(err, &field) || !field.Taken || field.Field != "name" {
		t.Error(err)
	}
	if _, err := s.Create(t.Context(), "li", "00000000-0000-4000-8000-000000000000", text("two")); !errors.As(err, &field) || field.Field != "name" {
		t.Error(err)
	}
	b := text("one")
	b.OSFamily = "plan9"
	if _, err := s.Create(t.Context(), "li", "other", b); !errors.As(err, &field) || field.Field != "os_family" {
		t.Error(err)
	}
	if _, err := s.Create(t.Context(), "li", "other", text("")); !errors.As(err, &field) || field.Field != "text" {
		t.Error(err)
	}
	if v, err := s.Update(t.Context(), "bo", "ubuntu", 1, says("one")); err != nil || v.Version != 1 || v.Revision != 1 {
		t.Errorf("what stays as it was is a version: %+v %v", v, err)
	}
	if _, err := s.Update(t.Context(), "bo", "ubuntu", 2, says("two")); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
	retire := func(v *schemas.Template) { v.Status = schemas.TemplateRetired }
	if v, err := s.Update(t.Context(), "bo", "ubuntu", 1, retire); err != nil || v.Version != 1 || v.Revision != 2 {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := s.Update(t.Context(), "bo", "ubuntu", 0, says("two")); !errors.Is(err, provisioning.ErrRetired) {
		t.Error(err)
	}
	for status, want := range map[string]int{"": 1, schemas.TemplateActive: 0, schemas.TemplateRetired: 1} {
		if found, _, err := s.Templates(t.Context(), status, "ubuntu", "-updated_at", "", 10); err != nil || len(found) != want {
			t.Errorf("%s: %v %v", status, found, err)
		}
	}
	if found, _, err := s.Templates(t.Context(), "", "talos", "", "", 10); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
}

func TestATemplateThatSomethingRefersToStays(t *testing.T) {
	s, _, server := site(t)
	for _, name := range []string{"ubuntu", "talos"} {
		if _, err := s.Create(t.Context(), "li", name, text("one")); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []schemas.HardwareOverrides{{Template: "ubuntu"}, {Template: "ubuntu", TemplateVersion: 1}} {
		if _, err := s.Override(t.Context(), "li", server, 0, o); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), "li", "ubuntu", 0); !errors.Is(err, entity.ErrInUse) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if v, err := s.Template(t.Context(), "ubuntu"); err != nil || v.Revision != 1 {
		t.Errorf("%+v %v", v, err)
	}
	if err := s.Delete(t.Context(), "li", "talos", 2); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "li", "talos", 1); err != nil {
		t.Error(err)
	}
	if _, err := s.Template(t.Context(), "talos"); !errors.Is(err, entity.ErrNone) {
		t.Error(err)
	}
	if _, err := s.Override(t.Context(), "li", server, 0, schemas.HardwareOverrides{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "li", "ubuntu", 0); err != nil {
		t.Error(err)
	}
}

func TestWhatPeopleSayOfHardware(t *testing.T) {
	s, _, server := site(t)
	made, err := s.Create(t.Context(), "li", "ubuntu", text("one"))
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	said := schemas.HardwareOverrides{
		BootMAC: "02:00:00:00:00:01", AllowPXE: &yes, UserData: "#cloud-config\n", BMC: &schemas.HardwareBMC{Kind: "ipmi"}, Template: made.ID, TemplateVersion: 1,
	}
	for version, by := range []string{"li", "bo"} { // the same again is no version
		o, err := s.Override(t.Context(), by, server, int64(version)+1, said)
		if err != nil || o.Version != 1 || o.ChangedBy != "li" || o.Template != "ubuntu" {
			t.Fatalf("%+v %v", o, err)
		}
		said.Template = o.Template
	}
	all, err := s.Overrides(t.Context(), []string{server, "other"})
	if d := cmp.Diff(said, all[server].HardwareOverrides); err != nil || d != "" || len(all) != 1 {
		t.Errorf("%v %s", err, d)
	}
	if _, err := s.Override(t.Context(), "bo", server, 1, schemas.HardwareOverrides{}); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
	for _, tc := range []struct {
		said  schemas.HardwareOverrides
		field string
	}{
		{schemas.HardwareOverrides{Template: "none"}, "template"},
		{schemas.HardwareOverrides{Template: "ubuntu", TemplateVersion: 2}, "template_version"},
		{schemas.HardwareOverrides{TemplateVersion: 1}, "template_version"},
	} {
		var field *entity.FieldError
		if _, err := s.Override(t.Context(), "bo", server, 0, tc.said); !errors.As(err, &field) || field.Field != tc.field {
			t.Errorf("%+v: %v", tc.said, err)
		}
	}
	if o, err := s.Override(t.Context(), "bo", server, 2, schemas.HardwareOverrides{}); err != nil || o.Version != 2 || o.ChangedBy != "bo" {
		t.Errorf("%+v %v", o, err)
	}
	// One that is retired is not newly chosen.
	if _, err := s.Update(t.Context(), "li", "ubuntu", 0, func(v *schemas.Template) { v.Status = schemas.TemplateRetired }); err != nil {
		t.Fatal(err)
	}
	var field *entity.FieldError
	if _, err := s.Override(t.Context(), "bo", server, 0, schemas.HardwareOverrides{Template: "ubuntu"}); !errors.As(err, &field) || field.Field != "template" {
		t.Error(err)
	}
	if _, err := s.Override(t.Context(), "bo", "nobody", 0, said); !errors.Is(err, entity.ErrNone) {
		t.Error(err)
	}
}
