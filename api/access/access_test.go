package access_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"auspex/api/access"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

func TestTokensAreReplacedByNameAndNeverKept(t *testing.T) {
	db := sqltest.Open(t)
	s := access.New(db, time.Hour)
	first, err := s.IssueToken(t.Context(), "scripts", access.RoleAdmin)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.IssueToken(t.Context(), "scripts", access.RoleViewer)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Token(t.Context(), first); ok || err != nil {
		t.Errorf("the replaced token: %v %v", ok, err)
	}
	p, ok, err := s.Token(t.Context(), second)
	if err != nil || !ok || p != (access.Principal{Name: "scripts", Role: access.RoleViewer}) {
		t.Errorf("%+v %v %v", p, ok, err)
	}
	rows, err := db.QueryContext(t.Context(), `SELECT hash FROM api_tokens`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var hash string
		if err := rows.Scan(&hash); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(hash, second) {
			t.Error("a token is stored in the clear")
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.IssueToken(t.Context(), "x", "emperor"); err == nil {
		t.Error("a role that does not exist got a token")
	}
}

func TestSessionsEndAndOutliveARestart(t *testing.T) {
	db := sqltest.Open(t)
	who := access.Principal{Name: "on-call", Role: access.RoleOperator}
	session, expires, err := access.New(db, time.Hour).StartSession(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Until(expires); d < 59*time.Minute || d > time.Hour {
		t.Errorf("expires in %s", d)
	}
	again := access.New(db, time.Hour)
	if p, ok, err := again.Session(t.Context(), session); err != nil || !ok || p != who {
		t.Errorf("after a restart: %+v %v %v", p, ok, err)
	}
	if err := again.EndSession(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := again.Session(t.Context(), session); ok {
		t.Error("an ended session still lasts")
	}
	brief, _, err := access.New(db, time.Nanosecond).StartSession(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := again.Session(t.Context(), brief); ok {
		t.Error("an expired session still lasts")
	}
}

func TestCodesWorkOnceAndForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := access.New(nil, time.Hour)
		who := access.Principal{Name: "on-call", Role: access.RoleOperator}
		code, _ := s.NewCode(who, time.Hour)
		if p, ok := s.TakeCode(code); !ok || p != who {
			t.Errorf("%+v %v", p, ok)
		}
		if _, ok := s.TakeCode(code); ok {
			t.Error("a code worked twice")
		}
		code, expires := s.NewCode(who, time.Hour)
		time.Sleep(time.Until(expires) + time.Second)
		if _, ok := s.TakeCode(code); ok {
			t.Error("a code outlived its time")
		}
		for range 5000 {
			s.NewCode(who, time.Hour)
		}
		last, _ := s.NewCode(who, time.Hour)
		if _, ok := s.TakeCode(last); !ok {
			t.Error("many codes pushed the newest out")
		}
	})
}

func TestRolesAreNested(t *testing.T) {
	for role, want := range map[string][]bool{access.RoleViewer: {true, false, false}, access.RoleOperator: {true, true, false}, access.RoleAdmin: {true, true, true}, "": {false, false, false}} {
		p := access.Principal{Role: role}
		for k, right := range []string{access.Read, access.Approve, access.Invite} {
			if p.May(right) != want[k] {
				t.Errorf("%q may %s: %v", role, right, p.May(right))
			}
		}
	}
}

var _ access.DB = (*sqldb.DB)(nil)
