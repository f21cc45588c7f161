package people_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"auspex/internal/store/people"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func statement(subject, name, role string, at time.Time, teams map[string]bool) *people.Statement {
	return &people.Statement{
		Issuer: "https://login.example", Subject: subject, At: at, Username: name, Email: name + "@example.com", Role: role, Teams: teams,
	}
}

func TestTheNewestStatementCounts(t *testing.T) {
	s := people.New(sqltest.Open(t))
	ctx, at := t.Context(), time.Unix(1_700_000_000, 0)
	if _, err := s.CreateTeam(ctx, "root", schemas.Team{Name: "local"}); err != nil {
		t.Fatal(err)
	}
	made, err := s.Known(ctx, "oidc", statement("1", "ada", schemas.RoleAdmin, at, map[string]bool{"a": true, "b": false}))
	if err != nil || made.Role != schemas.RoleAdmin || !slices.Equal(made.Teams, []string{"a"}) {
		t.Fatalf("%+v %v", made, err)
	}
	if _, err := s.UpdateTeam(ctx, "root", "local", 0, func(t *schemas.Team) { t.Members = []string{"ada"} }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		st    *people.Statement
		role  string
		teams []string
	}{
		{"newer", statement("1", "ada", schemas.RoleViewer, at.Add(2*time.Second), map[string]bool{"a": false, "b": true}), schemas.RoleViewer, []string{"b", "local"}},
		{"older", statement("1", "ada", schemas.RoleAdmin, at.Add(time.Second), map[string]bool{"a": true}), schemas.RoleViewer, []string{"b", "local"}},
		{"of the same second", statement("1", "ada", schemas.RoleOperator, at.Add(2*time.Second), nil), schemas.RoleOperator, []string{"b", "local"}},
		{"another name, the same subject", statement("1", "eve", schemas.RoleOperator, at.Add(3*time.Second), nil), schemas.RoleOperator, []string{"b", "local"}},
	} {
		u, err := s.Known(ctx, "oidc", c.st)
		if err != nil || u.ID != made.ID || u.Username != "ada" || u.Role != c.role || !slices.Equal(u.Teams, c.teams) {
			t.Errorf("%s: %+v %v", c.name, u, err)
		}
	}
	for name, c := range map[string]struct {
		st   *people.Statement
		want error
	}{
		"another subject of the name":    {statement("2", "ADA", schemas.RoleAdmin, at, nil), people.ErrOther},
		"without a name":                 {&people.Statement{Issuer: "https://login.example", Subject: "2", At: at, Role: schemas.RoleAdmin}, people.ErrName},
		"another issuer of the same sub": {&people.Statement{Issuer: "https://evil.example", Subject: "1", At: at, Username: "ada", Email: "x@y", Role: schemas.RoleAdmin}, people.ErrOther},
	} {
		if _, err := s.Known(ctx, "oidc", c.st); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.UpdateUser(ctx, "root", "ada", 0, func(u *schemas.User) { u.Status = schemas.UserInactive }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Known(ctx, "oidc", statement("1", "ada", schemas.RoleAdmin, at.Add(time.Hour), map[string]bool{"a": true})); !errors.Is(err, people.ErrInactive) {
		t.Errorf("an inactive user: %v", err)
	}
	if u, err := s.User(ctx, "ada"); err != nil || u.Role != schemas.RoleOperator || slices.Contains(u.Teams, "a") {
		t.Errorf("and then %+v %v", u, err)
	}
}

func TestThoseWhoComeAtOnceAreOneUser(t *testing.T) {
	s := people.New(sqltest.Open(t))
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			u, err := s.Known(t.Context(), "oidc", statement("1", "ada", schemas.RoleViewer, time.Unix(1, 0), map[string]bool{"vision": true}))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[u.ID] = true
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("%d users", len(ids))
	}
}
