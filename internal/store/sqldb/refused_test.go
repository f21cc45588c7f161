package sqldb_test

import (
	"testing"

	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

// Both engines tell the same of a refusal, but for the foreign key of SQLite.
func TestARefusalNamesWhatWasBroken(t *testing.T) {
	db := sqltest.Open(t)
	for _, statement := range []string{
		`CREATE TABLE homes (id TEXT NOT NULL, CONSTRAINT homes_id PRIMARY KEY (id))`,
		`CREATE TABLE cats (id TEXT NOT NULL, home_id TEXT, name TEXT NOT NULL, paws INTEGER NOT NULL, a TEXT, b TEXT, CONSTRAINT cats_id PRIMARY KEY (id),
CONSTRAINT cats_home_id FOREIGN KEY (home_id) REFERENCES homes (id), CONSTRAINT cats_paws CHECK (paws > 0), CONSTRAINT cats_a_b UNIQUE (a, b))`,
		`CREATE UNIQUE INDEX cats_name ON cats (lower(name))`,
		`INSERT INTO cats (id, name, paws, a, b) VALUES ('1', 'Tom', 4, 'x', 'y')`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	foreign := "cats_home_id"
	if db.Dialect == "sqlite3" {
		foreign = ""
	}
	for _, tc := range []struct {
		values string
		want   sqldb.Refusal
	}{
		{`'1', NULL, 'a', 4, 'a', 'a'`, sqldb.Refusal{Rule: sqldb.Unique, Constraint: "cats_id"}},
		{`'2', NULL, 'tOM', 4, 'a', 'a'`, sqldb.Refusal{Rule: sqldb.Unique, Constraint: "cats_name"}},
		{`'2', NULL, 'a', 4, 'x', 'y'`, sqldb.Refusal{Rule: sqldb.Unique, Constraint: "cats_a_b"}},
		{`'2', NULL, 'a', 0, 'a', 'a'`, sqldb.Refusal{Rule: sqldb.Check, Constraint: "cats_paws"}},
		{`'2', NULL, NULL, 4, 'a', 'a'`, sqldb.Refusal{Rule: sqldb.NotNull, Constraint: "cats_name"}},
		{`'2', 'none', 'a', 4, 'a', 'a'`, sqldb.Refusal{Rule: sqldb.Foreign, Constraint: foreign}},
	} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO cats (id, home_id, name, paws, a, b) VALUES (`+tc.values+`)`)
		if got, ok := sqldb.Refused(err); !ok || got != tc.want {
			t.Errorf("%s: %+v %v of %v, want %+v", tc.values, got, ok, err, tc.want)
		}
	}
	if got := (sqldb.Refusal{Constraint: "cats_name"}).Field("cats"); got != "name" {
		t.Error(got)
	}
	if _, err := db.ExecContext(t.Context(), `SELECT nothing FROM nowhere`); err == nil {
		t.Error("a table that is not there was read")
	} else if _, ok := sqldb.Refused(err); ok {
		t.Errorf("%v is no refusal of a constraint", err)
	}
}
