package access_test

import (
	"errors"
	"runtime"
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
	if err != nil || !ok || p.Name != "scripts" || p.Role != access.RoleViewer {
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

func TestRevokingATokenEndsWhatCameFromIt(t *testing.T) {
	db := sqltest.Open(t)
	s := access.New(db, time.Hour)
	plain, made, err := s.CreateToken(t.Context(), "grafana", access.RoleViewer, 0)
	if err != nil || !made.Expires.IsZero() {
		t.Fatalf("%+v %v", made, err)
	}
	if _, _, err := s.CreateToken(t.Context(), "grafana", access.RoleAdmin, 0); !errors.Is(err, access.ErrTaken) {
		t.Errorf("a name in use was taken over: %v", err)
	}
	p, ok, err := s.Token(t.Context(), plain)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	session, _, err := s.StartSession(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	fromSession, _, err := s.Session(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	code, _ := s.NewCode(fromSession, time.Hour) // a session invites another browser
	invited, _ := s.TakeCode(code)
	listed, err := s.Tokens(t.Context(), "", 10)
	if err != nil || len(listed) != 1 || listed[0].Name != "grafana" || time.Since(listed[0].Used) > time.Minute {
		t.Errorf("%+v %v", listed, err)
	}
	// Another process revokes it.
	if err := access.New(db, time.Hour).RevokeToken(t.Context(), "grafana"); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := s.Token(t.Context(), plain); ok {
		t.Error("a revoked token works")
	}
	if _, ok, _ := s.Session(t.Context(), session); ok {
		t.Error("a session outlived its token")
	}
	if _, _, err := s.StartSession(t.Context(), invited); !errors.Is(err, access.ErrRevoked) {
		t.Errorf("a code outlived the token that it came from: %v", err)
	}
	if err := s.RevokeToken(t.Context(), "grafana"); !errors.Is(err, access.ErrNoToken) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestTokensEndByThemselves(t *testing.T) {
	s := access.New(sqltest.Open(t), time.Hour)
	plain, made, err := s.CreateToken(t.Context(), "visit", access.RoleViewer, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(made.Expires) { // the store's clock is the machine's
		runtime.Gosched()
	}
	if _, ok, err := s.Token(t.Context(), plain); ok || err != nil {
		t.Errorf("an expired token: %v %v", ok, err)
	}
	if _, _, err := s.CreateToken(t.Context(), "visit", access.RoleViewer, 0); err != nil {
		t.Errorf("the name of an expired token: %v", err)
	}
	for _, name := range []string{"", "a b", "a/b", strings.Repeat("x", 65), "naïve"} {
		if _, _, err := s.CreateToken(t.Context(), name, access.RoleViewer, 0); !errors.Is(err, access.ErrName) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestRolesAreNested(t *testing.T) {
	for role, want := range map[string][]bool{
		access.RoleViewer: {true, false, false}, access.RoleOperator: {true, true, false}, access.RoleEngineer: {true, true, false},
		access.RoleAdmin: {true, true, true}, "": {false, false, false},
	} {
		p := access.Principal{Role: role}
		for k, right := range []string{access.Read, access.Approve, access.Tokens} {
			if p.May(right) != want[k] {
				t.Errorf("%q may %s: %v", role, right, p.May(right))
			}
		}
	}
}

var _ access.DB = (*sqldb.DB)(nil)
