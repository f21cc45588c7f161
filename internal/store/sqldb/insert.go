package sqldb

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3/database"
)

// How many rows a statement of [DB.Insert] puts: to PostgreSQL each is a round trip; SQLite copies the
// pages that a statement of several rows changes.
const (
	rowsPostgres = 500
	rowsSQLite   = 100
)

// Insert puts rows, many in a statement: one for each takes a minute for an inventory. Head is what
// stands before VALUES, such as `INSERT INTO t (a, b)`, row is what one row is made of, with a ? for
// each of its values, such as `(?, lower(?))`, and tail is what follows, such as `ON CONFLICT DO NOTHING`.
func (db *DB) Insert(ctx context.Context, tx *sql.Tx, head, row string, rows [][]any, tail string) error {
	many, numbered := rowsPostgres, true
	if db.Dialect == database.DialectSQLite3 {
		many, numbered = rowsSQLite, false // the driver looks for a name of each that has one among all
	}
	var whole *sql.Stmt
	for some := range slices.Chunk(rows, many) {
		args := slices.Concat(some...)
		if len(some) < many {
			_, err := tx.ExecContext(ctx, insertion(head, row, len(some), tail, numbered), args...)
			return err
		}
		if whole == nil {
			var err error
			if whole, err = tx.PrepareContext(ctx, insertion(head, row, many, tail, numbered)); err != nil {
				return err
			}
			defer func() { _ = whole.Close() }()
		}
		if _, err := whole.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// insertion is a statement for so many rows; numbered parameters are ($1,$2),($3,$4).
func insertion(head, row string, rows int, tail string, numbered bool) string {
	parts := strings.Split(row, "?")
	var b strings.Builder
	b.WriteString(head + " VALUES ")
	n := 0
	for k := range rows {
		if k > 0 {
			b.WriteByte(',')
		}
		for i, part := range parts {
			if i > 0 && numbered {
				n++
				b.WriteString("$" + strconv.Itoa(n))
			} else if i > 0 {
				b.WriteByte('?')
			}
			b.WriteString(part)
		}
	}
	b.WriteString(" " + tail)
	return b.String()
}
