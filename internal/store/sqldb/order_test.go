package sqldb_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

type thing struct {
	id, name, kind string
	number         int64
	share          float64
}

var things = sqldb.Order[thing]{
	ID: sqldb.Key[thing]{SQL: "id", Of: func(v *thing) any { return v.id }}, Usual: "-number",
	By: map[string]sqldb.Key[thing]{
		"name":   {SQL: "name", Of: func(v *thing) any { return v.name }, Fold: true, Alone: true},
		"kind":   {SQL: "kind", Of: func(v *thing) any { return v.kind }},
		"number": {SQL: "number", Of: func(v *thing) any { return v.number }},
		"share":  {SQL: "share", Of: func(v *thing) any { return v.share }},
	},
}

// TestPagesLoseAndRepeatNothing has rows come and go on both sides of each page, and the row that
// a cursor is of with them.
func TestPagesLoseAndRepeatNothing(t *testing.T) {
	db := sqltest.Open(t)
	run := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE TABLE things (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, number BIGINT NOT NULL, share DOUBLE PRECISION NOT NULL)`)
	put := func(id string, n int) {
		t.Helper()
		name := fmt.Sprintf("n%03d", n)
		if n%2 == 1 {
			name = strings.ToUpper(name)
		}
		run(`INSERT INTO things VALUES ($1,$2,$3,$4,$5)`, id, name, fmt.Sprint("k", n%3), int64(1_764_000_000_000_000_000+n/4), float64(n%5)/3)
	}
	for _, sort := range []string{"", "name", "-name", "kind", "-kind", "number", "-number", "share", "-share"} {
		t.Run(sort, func(t *testing.T) {
			run(`DELETE FROM things`)
			var want []string
			for n := range 40 {
				id := fmt.Sprintf("id%02d", (n*7)%40)
				put(id, 100+n)
				want = append(want, id)
			}
			var got []string
			gone := make(map[string]bool)
			for after, page := "", 0; ; page++ {
				tail, args, err := things.Tail(sort, after, 3, "")
				if err != nil {
					t.Fatal(err)
				}
				rows, err := sqldb.Rows(t.Context(), db, func(rows *sql.Rows) (v thing, err error) {
					return v, rows.Scan(&v.id, &v.name, &v.kind, &v.number, &v.share)
				}, `SELECT id, name, kind, number, share FROM things WHERE (CAST($1 AS TEXT)='')`+tail, args...)
				if err != nil {
					t.Fatal(err)
				}
				rows, after = things.Page(rows, sort, 3)
				for _, v := range rows {
					if strings.HasPrefix(v.id, "id") { // not those that came meanwhile
						got = append(got, v.id)
					}
				}
				if after == "" {
					break
				}
				put(fmt.Sprintf("a%d", page), 50-page)
				put(fmt.Sprintf("z%d", page), 200+page)
				last := rows[len(rows)-1].id
				run(`DELETE FROM things WHERE id=$1`, last)
				gone[last] = true
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
			if len(gone) < 10 {
				t.Errorf("only %d pages ended with a row that went", len(gone))
			}
		})
	}
}

// Rows in memory are sorted and paged as a database does it.
func TestRowsInMemoryArePagedAsThoseOfATable(t *testing.T) {
	db := sqltest.Open(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE things (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, number BIGINT NOT NULL,
share DOUBLE PRECISION NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	var all []thing
	for n := range 40 {
		v := thing{fmt.Sprintf("id%02d", (n*7)%40), fmt.Sprintf("n%03d", n), fmt.Sprint("k", n%3), int64(n / 4), float64(n%5) / 3}
		if n%2 == 1 {
			v.name = strings.ToUpper(v.name)
		}
		all = append(all, v)
		if _, err := db.ExecContext(t.Context(), `INSERT INTO things VALUES ($1,$2,$3,$4,$5)`, v.id, v.name, v.kind, v.number, v.share); err != nil {
			t.Fatal(err)
		}
	}
	was := slices.Clone(all)
	for _, sort := range []string{"", "name", "-name", "kind", "-kind", "number", "-number", "share", "-share"} {
		for _, limit := range []int{1, 7, 40, 41} {
			memory, table := "", ""
			for page := range 41 {
				got, next, err := things.Cut(all, sort, memory, limit)
				if err != nil {
					t.Fatal(err)
				}
				tail, args, err := things.Tail(sort, table, limit, "")
				if err != nil {
					t.Fatal(err)
				}
				want, err := sqldb.Rows(t.Context(), db, func(rows *sql.Rows) (v thing, err error) {
					return v, rows.Scan(&v.id, &v.name, &v.kind, &v.number, &v.share)
				}, `SELECT id, name, kind, number, share FROM things WHERE (CAST($1 AS TEXT)='')`+tail, args...)
				if err != nil {
					t.Fatal(err)
				}
				want, table = things.Page(want, sort, limit)
				if memory = next; !slices.Equal(got, want) || memory != table {
					t.Fatalf("page %d of %d by %q: %v %q, want %v %q", page, limit, sort, got, memory, want, table)
				}
				if memory == "" {
					break
				}
			}
		}
	}
	if got, next, err := things.Cut(all, "kind", "", 0); err != nil || len(got) != len(all) || next != "" {
		t.Errorf("all of them: %d %q %v", len(got), next, err)
	}
	if !slices.Equal(all, was) {
		t.Error("the rows themselves are sorted")
	}
	var other *sqldb.OrderError
	if _, _, err := things.Cut(all, "name", sqldb.Ahead("kind", "k1", "id01"), 1); !errors.As(err, &other) {
		t.Errorf("a cursor of another order: %v", err)
	}
	if _, _, err := things.Cut(all, "colour", "", 1); err == nil {
		t.Error("sorted by what there is not")
	}
}

func TestCursorsAreOfTheirOrder(t *testing.T) {
	of := func(sort string) string {
		_, next := things.Page([]thing{{id: "a", name: "x", number: 7}, {id: "b"}}, sort, 1)
		return next
	}
	var other *sqldb.OrderError
	for _, c := range []struct{ sort, after string }{{"name", of("-name")}, {"name", of("kind")}, {"name", of("")}, {"", of("number")}} {
		if _, _, err := things.Tail(c.sort, c.after, 1); !errors.As(err, &other) {
			t.Errorf("%q with %q: %v", c.sort, c.after, err)
		}
	}
	if _, _, err := things.Tail("-number", of(""), 1); err != nil {
		t.Errorf("the usual order by its name: %v", err)
	}
	for _, after := range []string{
		"x", "name~", "name~!", "name~e30", sqldb.Ahead("name", 7, "a"), sqldb.Ahead("name", "a\x00", "a"), sqldb.Ahead("name", "a", "\x00"),
		"name~" + strings.TrimPrefix(of("number"), "number~"),
	} {
		if _, _, err := things.Tail("name", after, 1); !errors.Is(err, sqldb.ErrCursor) {
			t.Errorf("%q: %v", after, err)
		}
	}
	if _, _, err := things.Tail("number", sqldb.Ahead("number", "7", "a"), 1); !errors.Is(err, sqldb.ErrCursor) {
		t.Errorf("a text for a number: %v", err)
	}
	if _, _, err := things.Tail("colour", "", 1); err == nil {
		t.Error("sorted by what there is not")
	}
}
