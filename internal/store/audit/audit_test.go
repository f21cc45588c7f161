package audit_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

func filled(t *testing.T, n int) *sqldb.DB {
	t.Helper()
	db := sqltest.OpenFile(t)
	appendRows(t, db, 1, n)
	return db
}

func appendRows(t *testing.T, db *sqldb.DB, from, to int) {
	t.Helper()
	for k := from; k <= to; k++ {
		err := db.InTx(t.Context(), func(tx *sql.Tx) error { return audit.Append(t.Context(), tx, row(k)) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

func row(k int) audit.Row {
	return audit.Row{
		Time: time.Date(2026, 1, 2, 3, 4, k, 0, time.UTC), Actor: "on-call", Verb: "intend", Subject: "gpu-r01-03",
		Action: fmt.Sprint("act-", k), Kind: "power_cycle", State: "running", Detail: "decided by a person",
	}
}

func TestListGivesBackWhatWasAppendedInPages(t *testing.T) {
	db := filled(t, 5)
	first, err := audit.New(db, time.Now).List(t.Context(), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	rest, err := audit.New(db, time.Now).List(t.Context(), first[len(first)-1].Seq, 3)
	if err != nil {
		t.Fatal(err)
	}
	var want []audit.Row
	for k := 5; k > 0; k-- {
		r := row(k)
		r.Seq = int64(k)
		want = append(want, r)
	}
	if d := cmp.Diff(want, append(first, rest...), cmpopts.IgnoreFields(audit.Row{}, "Hash")); d != "" {
		t.Error(d)
	}
}

func TestRowsAreChosenByWhoDidWhatToWhat(t *testing.T) {
	db := filled(t, 5)
	err := db.InTx(t.Context(), func(tx *sql.Tx) error {
		for k := range 4 {
			r := row(k)
			r.Actor, r.Verb, r.Subject = "li", []string{"create", "update"}[k%2], "a-1"
			if err := audit.Append(t.Context(), tx, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		audit.Filter

		want []int64
	}{
		{audit.Filter{Subject: "a-1"}, []int64{9, 8, 7, 6}},
		{audit.Filter{Subject: "a-1", Verb: "update", Sort: "seq"}, []int64{7, 9}},
		{audit.Filter{Actor: "li", Verb: "create"}, []int64{8, 6}},
		{audit.Filter{Actor: "li' OR '1'='1"}, nil},
	} {
		var got []int64
		for f := c.Filter; ; {
			f.Limit = 1
			page, next, err := audit.New(db, time.Now).Page(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				got = append(got, r.Seq)
			}
			if f.After = next; next == "" {
				break
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%+v: %s", c.Filter, d)
		}
	}
}

// TestAChainIsBrokenByAnyHand changes one thing at a time and has it found.
func TestAChainIsBrokenByAnyHand(t *testing.T) {
	for name, c := range map[string]struct {
		change string
		holds  int64
	}{
		"a changed word":    {`UPDATE control_audit SET actor='nobody' WHERE seq=3`, 2},
		"a changed time":    {`UPDATE control_audit SET time_ns=time_ns+1 WHERE seq=1`, 0},
		"a removed row":     {`DELETE FROM control_audit WHERE seq=2`, 1},
		"a removed end":     {`DELETE FROM control_audit WHERE seq>3`, 3},
		"a changed hash":    {`UPDATE control_audit SET hash='00' WHERE seq=4`, 3},
		"a row put between": {`INSERT INTO control_audit SELECT 6, time_ns, actor, verb, subject, detail, prev, hash FROM control_audit WHERE seq=5`, 5},
	} {
		t.Run(name, func(t *testing.T) {
			db := filled(t, 5)
			if n, err := audit.Verify(t.Context(), db); n != 5 || err != nil {
				t.Fatalf("untouched: %d rows, %v", n, err)
			}
			if _, err := db.ExecContext(t.Context(), c.change); err != nil {
				t.Fatal(err)
			}
			if n, err := audit.Verify(t.Context(), db); n != c.holds || !errors.Is(err, audit.ErrBroken) {
				t.Errorf("%d rows hold, %v", n, err)
			}
		})
	}
}

// TestACheckerReadsOnAndStartsAgain holds that new rows are read at each call, and
// that an old row changed later is found with the next reading of all.
func TestACheckerReadsOnAndStartsAgain(t *testing.T) {
	db, now := filled(t, 3), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	c := audit.New(db, func() time.Time { return now })
	check := func(want audit.Chain) {
		t.Helper()
		got, err := c.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	began := now
	check(audit.Chain{Rows: 3, Checked: began})
	appendRows(t, db, 4, 5)
	now = now.Add(time.Minute)
	check(audit.Chain{Rows: 5, Checked: began})
	if _, err := db.ExecContext(t.Context(), `UPDATE control_audit SET detail='x' WHERE seq=2`); err != nil {
		t.Fatal(err)
	}
	now = now.Add(5 * time.Minute)
	check(audit.Chain{Rows: 1, Checked: now, Broken: 2})
}
