package people_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func user(name string) schemas.User {
	return schemas.User{Username: name, Email: name + "@example.com", Role: schemas.RoleViewer, Status: schemas.UserActive}
}

func TestUsersAreKept(t *testing.T) {
	db := sqltest.Open(t)
	s := people.New(db)
	made, err := s.CreateUser(t.Context(), "root", user("Li"))
	if err != nil || made.ID == "" || made.Revision != 1 || made.CreatedAt.IsZero() {
		t.Fatalf("%+v %v", made, err)
	}
	for _, ref := range []string{made.ID, "li", "LI"} {
		got, err := s.User(t.Context(), ref)
		if d := cmp.Diff(made, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", ref, err, d)
		}
	}
	if _, err := s.User(t.Context(), "li@example.com"); !errors.Is(err, entity.ErrNone) {
		t.Errorf("an address is taken for a name: %v", err)
	}
	for _, tc := range []struct {
		name   string
		change func(*schemas.User)
		want   string
	}{
		{"username", func(u *schemas.User) { u.Username = "lI" }, "create user lI: username lI is taken"},
		{"email", func(u *schemas.User) { u.Email = "LI@example.com" }, "create user bo: email LI@example.com is taken"},
		{"role", func(u *schemas.User) { u.Role = "king" }, `create user bo: role "king" is not one that it takes`},
		{"status", func(u *schemas.User) { u.Status = "" }, `create user bo: status "" is not one that it takes`},
	} {
		u := user("bo")
		tc.change(&u)
		field := (*entity.FieldError)(nil)
		if _, err := s.CreateUser(t.Context(), "root", u); !errors.As(err, &field) || field.Field != tc.name || err.Error() != tc.want {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	changed, err := s.UpdateUser(t.Context(), "root", "li", 1, func(u *schemas.User) { u.Role = schemas.RoleOperator })
	if err != nil || changed.Revision != 2 || changed.Role != schemas.RoleOperator {
		t.Fatalf("%+v %v", changed, err)
	}
	if _, err := s.UpdateUser(t.Context(), "root", "li", 1, func(u *schemas.User) { u.Role = schemas.RoleAdmin }); !errors.Is(err, entity.ErrChanged) {
		t.Errorf("a change of what it was before: %v", err)
	}
	same, err := s.UpdateUser(t.Context(), "root", "li", 0, func(*schemas.User) {})
	if d := cmp.Diff(changed, same); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if _, err := s.UpdateUser(t.Context(), "root", "nobody", 0, func(*schemas.User) {}); !errors.Is(err, entity.ErrNone) {
		t.Error(err)
	}
	rows, err := audit.New(db, nil).List(t.Context(), 0, 10)
	if err != nil || len(rows) != 2 || rows[0].Verb != "update" || rows[0].Kind != people.KindUser || rows[0].Subject != "Li" || rows[0].Actor != "root" {
		t.Errorf("%+v %v", rows, err)
	}
}

func TestTeamsHaveMembers(t *testing.T) {
	db := sqltest.Open(t)
	s := people.New(db)
	for _, name := range []string{"ana", "Bo", "cem", "dee"} {
		if _, err := s.CreateUser(t.Context(), "root", user(name)); err != nil {
			t.Fatal(err)
		}
	}
	made, err := s.CreateTeam(t.Context(), "root", schemas.Team{Name: "Vision", Members: []string{"cem", "BO", "bo"}})
	if err != nil || !slices.Equal(made.Members, []string{"Bo", "cem"}) {
		t.Fatalf("%+v %v", made, err)
	}
	if got, err := s.Team(t.Context(), "vision"); err != nil || cmp.Diff(made, got) != "" {
		t.Error(err, cmp.Diff(made, got))
	}
	field := (*entity.FieldError)(nil)
	if _, err := s.CreateTeam(t.Context(), "root", schemas.Team{Name: "VISION"}); !errors.As(err, &field) || field.Field != "name" || !field.Taken {
		t.Error(err)
	}
	none := schemas.Team{Name: "speech", Members: []string{"ana", "eve"}}
	if _, err := s.CreateTeam(t.Context(), "root", none); !errors.As(err, &field) || field.Field != "members[1]" {
		t.Error(err)
	}
	if _, err := s.Team(t.Context(), "speech"); !errors.Is(err, entity.ErrNone) {
		t.Errorf("half a team is there: %v", err)
	}
	if u, err := s.User(t.Context(), "bo"); err != nil || !slices.Equal(u.Teams, []string{"Vision"}) {
		t.Error(u, err)
	}
	bo, _ := s.User(t.Context(), "bo")
	near, _, err := s.Users(t.Context(), people.Filter{Near: bo.ID, Limit: 10})
	if err != nil || len(near) != 2 || near[0].Username != "Bo" || near[1].Username != "cem" {
		t.Errorf("%+v %v", near, err)
	}
	dee, _ := s.User(t.Context(), "dee")
	if near, _, err := s.Teams(t.Context(), people.Filter{Near: dee.ID, Limit: 10}); err != nil || len(near) != 0 {
		t.Errorf("%+v %v", near, err)
	}
	changed, err := s.UpdateTeam(t.Context(), "root", "vision", 1, func(t *schemas.Team) { t.Members = []string{"dee"} })
	if err != nil || changed.Revision != 2 || !slices.Equal(changed.Members, []string{"dee"}) {
		t.Errorf("%+v %v", changed, err)
	}
	if same, err := s.UpdateTeam(t.Context(), "root", "vision", 2, func(*schemas.Team) {}); err != nil || same.Revision != 2 {
		t.Errorf("%+v %v", same, err)
	}
	if err := s.DeleteTeam(t.Context(), "root", "vision", 1); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
	if err := s.DeleteTeam(t.Context(), "root", "vision", 2); err != nil {
		t.Error(err)
	}
	if u, err := s.User(t.Context(), "dee"); err != nil || len(u.Teams) != 0 {
		t.Error(u, err)
	}
}

func TestListsComeInPages(t *testing.T) {
	s := people.New(sqltest.Open(t))
	for i := range 7 {
		u := user(fmt.Sprintf("u%d", i))
		if i%2 == 0 {
			u.Role = schemas.RoleAdmin
		}
		if _, err := s.CreateUser(t.Context(), "root", u); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for after := ""; ; {
		found, next, err := s.Users(t.Context(), people.Filter{Role: schemas.RoleAdmin, After: after, Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range found {
			got = append(got, u.Username)
		}
		if after = next; after == "" {
			break
		}
	}
	if !slices.Equal(got, []string{"u0", "u2", "u4", "u6"}) {
		t.Error(got)
	}
}

// Of those who take a name at once one has it; and the same request makes one record, however
// often and by how many it is sent.
func TestOneOfManyHasTheName(t *testing.T) {
	s := people.New(sqltest.Open(t))
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := map[string]int{}
	for range 16 {
		wg.Go(func() {
			u, err := s.CreateUser(t.Context(), "root", user("eve"))
			field := (*entity.FieldError)(nil)
			if err != nil && (!errors.As(err, &field) || !field.Taken) {
				t.Error(err)
			}
			if again, err := s.CreateUser(sqldb.WithRequest(t.Context(), "root/1"), "root", user("fay")); err != nil {
				t.Error(err)
			} else {
				mu.Lock()
				made[again.ID]++
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made[u.ID]++
			}
		})
	}
	wg.Wait()
	if len(made) != 2 {
		t.Errorf("made %v", made)
	}
}
