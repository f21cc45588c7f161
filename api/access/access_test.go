package access_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api/access"
	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

func TestTokensAreReplacedByNameAndNeverKept(t *testing.T) {
	db := sqltest.Open(t)
	s := access.New(db, time.Hour)
	first, err := s.IssueToken(t.Context(), "tester", "scripts", access.RoleAdmin)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.IssueToken(t.Context(), "tester", "scripts", access.RoleViewer)
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
	if _, err := s.IssueToken(t.Context(), "tester", "x", "emperor"); err == nil {
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
	s := access.New(sqltest.Open(t), time.Hour)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.SetClock(func() time.Time { return now })
	who := access.Principal{Name: "on-call", Role: access.RoleOperator}
	issue := func() (string, time.Time) {
		t.Helper()
		code, expires, err := s.NewCode(t.Context(), "tester", who, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return code, expires
	}
	code, _ := issue()
	if p, ok := s.TakeCode(code); !ok || p != who {
		t.Errorf("%+v %v", p, ok)
	}
	if _, ok := s.TakeCode(code); ok {
		t.Error("a code worked twice")
	}
	code, expires := issue()
	now = expires.Add(time.Second)
	if _, ok := s.TakeCode(code); ok {
		t.Error("a code outlived its time")
	}
	for range access.MaxCodes + 10 {
		issue()
	}
	last, _ := issue()
	if _, ok := s.TakeCode(last); !ok {
		t.Error("many codes pushed the newest out")
	}
}

func TestRevokingATokenEndsWhatCameFromIt(t *testing.T) {
	db := sqltest.Open(t)
	s := access.New(db, time.Hour)
	plain, made, err := s.CreateToken(t.Context(), "tester", "grafana", access.RoleViewer, "", 0)
	if err != nil || !made.Expires.IsZero() {
		t.Fatalf("%+v %v", made, err)
	}
	if _, _, err := s.CreateToken(t.Context(), "tester", "grafana", access.RoleAdmin, "", 0); !errors.Is(err, access.ErrTaken) {
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
	code, _, err := s.NewCode(t.Context(), p.Name, fromSession, time.Hour) // a session invites another browser
	if err != nil {
		t.Fatal(err)
	}
	invited, _ := s.TakeCode(code)
	listed, _, err := s.Tokens(t.Context(), "", "", 10)
	if err != nil || len(listed) != 1 || listed[0].Name != "grafana" || time.Since(listed[0].Used) > time.Minute {
		t.Errorf("%+v %v", listed, err)
	}
	// Another process revokes it.
	if err := access.New(db, time.Hour).RevokeToken(t.Context(), "tester", "grafana"); err != nil {
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
	if err := s.RevokeToken(t.Context(), "tester", "grafana"); !errors.Is(err, access.ErrNoToken) {
		t.Errorf("revoked twice: %v", err)
	}
}

// changes lists the audit from the oldest row on, and checks its chain.
func changes(t *testing.T, db *sqldb.DB) []string {
	t.Helper()
	if _, err := audit.Verify(t.Context(), db); err != nil {
		t.Error(err)
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(rows)
	var out []string
	for _, r := range rows {
		out = append(out, strings.Join([]string{r.Actor, r.Verb, r.Kind, r.Subject, r.Detail}, "|"))
	}
	return out
}

func TestEveryChangeOfIdentityIsInTheAuditWithoutItsSecret(t *testing.T) {
	db := sqltest.Open(t)
	s := access.New(db, time.Hour)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.SetClock(func() time.Time { return now })
	ctx := t.Context()
	plain, _, err := s.CreateToken(ctx, "root", "grafana", access.RoleViewer, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := s.Token(ctx, plain)
	if err != nil {
		t.Fatal(err)
	}
	session, _, err := s.StartSession(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	code, _, err := s.NewCode(ctx, "root", p, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := s.IssueToken(ctx, "auspex", "run.json", access.RoleOperator)
	if err != nil {
		t.Fatal(err)
	}
	// What changed nothing leaves no row.
	_, _, taken := s.CreateToken(ctx, "root", "grafana", access.RoleAdmin, "", 0)
	absent := s.RevokeToken(ctx, "root", "nobody")
	if !errors.Is(taken, access.ErrTaken) || !errors.Is(absent, access.ErrNoToken) || s.EndSession(ctx, "none") != nil {
		t.Error(taken)
	}
	if err := errors.Join(
		s.EndSession(ctx, session), s.RevokeToken(ctx, "root", "grafana"), s.NoteRequest(ctx, "root", "/-/reload"),
	); err != nil {
		t.Fatal(err)
	}
	got := changes(t, db)
	if d := cmp.Diff([]string{
		"root|create|token|grafana|role viewer, until 2026-03-01T13:00:00Z", "grafana|start|session|grafana|role viewer",
		"root|issue|login_code|grafana|role viewer, until 2026-03-01T12:01:00Z", "auspex|replace|token|run.json|role operator",
		"grafana|end|session|grafana|", "root|revoke|token|grafana|it had role viewer, until 2026-03-01T13:00:00Z", "root|request|route|/-/reload|",
	}, got); d != "" {
		t.Error(d)
	}
	for _, secret := range []string{plain, session, code, issued} {
		sum := sha256.Sum256([]byte(secret))
		for _, row := range got {
			if strings.Contains(row, secret) || strings.Contains(row, hex.EncodeToString(sum[:])) {
				t.Errorf("a secret, or its hash, is in the audit: %s", row)
			}
		}
	}
}

// TestAChangeOfIdentityNeedsItsAuditRow takes the audit away: no change is made.
func TestAChangeOfIdentityNeedsItsAuditRow(t *testing.T) {
	db := sqltest.Open(t)
	s := access.New(db, time.Hour)
	ctx := t.Context()
	plain, _, err := s.CreateToken(ctx, "root", "grafana", access.RoleViewer, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := s.Token(ctx, plain)
	if err != nil {
		t.Fatal(err)
	}
	session, _, err := s.StartSession(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `ALTER TABLE control_audit_head RENAME TO lost`); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"create": func() error { _, _, err := s.CreateToken(ctx, "root", "second", access.RoleAdmin, "", 0); return err },
		"issue":  func() error { _, err := s.IssueToken(ctx, "root", "grafana", access.RoleAdmin); return err },
		"revoke": func() error { return s.RevokeToken(ctx, "root", "grafana") },
		"start":  func() error { _, _, err := s.StartSession(ctx, p); return err },
		"end":    func() error { return s.EndSession(ctx, session) },
		"code":   func() error { _, _, err := s.NewCode(ctx, "root", p, time.Hour); return err },
	} {
		if err := change(); err == nil {
			t.Errorf("%s was done without its row", name)
		}
	}
	tokens, _, err := s.Tokens(ctx, "", "", 10)
	if err != nil || len(tokens) != 1 || tokens[0].Role != access.RoleViewer {
		t.Errorf("%+v %v", tokens, err)
	}
	if _, ok, err := s.Session(ctx, session); !ok || err != nil {
		t.Errorf("the session has ended: %v", err)
	}
	if s.Codes() != 0 {
		t.Error("a code works that nobody can trace")
	}
	var sessions int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM api_sessions`).Scan(&sessions); err != nil || sessions != 1 {
		t.Errorf("%d sessions: %v", sessions, err)
	}
}

// TestChangesAtOnceMakeOneChain has several processes' worth of changes meet.
func TestChangesAtOnceMakeOneChain(t *testing.T) {
	db := sqltest.Open(t)
	var wg sync.WaitGroup
	for k := range 8 {
		s := access.New(db, time.Hour)
		wg.Go(func() {
			name := fmt.Sprint("t", k)
			if _, _, err := s.CreateToken(t.Context(), name, name, access.RoleViewer, "", 0); err != nil {
				t.Error(err)
			}
			if err := s.RevokeToken(t.Context(), name, name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := changes(t, db); len(got) != 16 {
		t.Errorf("%d rows: %v", len(got), got)
	}
}

func TestTokensEndByThemselves(t *testing.T) {
	s := access.New(sqltest.Open(t), time.Hour)
	plain, made, err := s.CreateToken(t.Context(), "tester", "visit", access.RoleViewer, "", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(made.Expires) { // the store's clock is the machine's
		runtime.Gosched()
	}
	if _, ok, err := s.Token(t.Context(), plain); ok || err != nil {
		t.Errorf("an expired token: %v %v", ok, err)
	}
	if _, _, err := s.CreateToken(t.Context(), "tester", "visit", access.RoleViewer, "", 0); err != nil {
		t.Errorf("the name of an expired token: %v", err)
	}
	for _, name := range []string{"", "a b", "a/b", strings.Repeat("x", 65), "naïve"} {
		if _, _, err := s.CreateToken(t.Context(), "tester", name, access.RoleViewer, "", 0); !errors.Is(err, access.ErrName) {
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
