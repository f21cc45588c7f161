package sqldb

import (
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Rule is what a constraint of the schema asks.
type Rule string

// Rules.
const (
	Unique  Rule = "unique"      // nobody else has it
	Check   Rule = "check"       // it is within what the column takes
	Foreign Rule = "foreign_key" // what it refers to is there, or nothing refers to it
	NotNull Rule = "not_null"    // it is there
)

// Refusal is a constraint that a statement would have broken.
type Refusal struct {
	Rule Rule
	// Constraint is its name, or that of the table and its columns, joined by _. SQLite
	// does not say which foreign key it was: then it is empty.
	Constraint string
}

// Field returns the column that a constraint keeps which is named after its table and that column.
func (r Refusal) Field(table string) string { return strings.TrimPrefix(r.Constraint, table+"_") }

var sqliteNames = regexp.MustCompile(`(?:UNIQUE|CHECK|NOT NULL) constraint failed: (?:index ')?([\w., ]+)`)

// Refused tells the refusal of a constraint from other errors.
func Refused(err error) (Refusal, bool) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) { // PostgreSQL, appendix A, class 23
		rule, ok := map[string]Rule{"23505": Unique, "23514": Check, "23503": Foreign, "23502": NotNull}[pg.Code]
		name := pg.ConstraintName
		if rule == NotNull {
			name = pg.TableName + "_" + pg.ColumnName
		}
		return Refusal{rule, name}, ok
	}
	var lite *sqlite.Error
	if !errors.As(err, &lite) {
		return Refusal{}, false
	}
	rule, ok := map[int]Rule{
		sqlite3.SQLITE_CONSTRAINT_UNIQUE: Unique, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: Unique, sqlite3.SQLITE_CONSTRAINT_CHECK: Check,
		sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: Foreign, sqlite3.SQLITE_CONSTRAINT_NOTNULL: NotNull,
	}[lite.Code()]
	name := ""
	if found := sqliteNames.FindStringSubmatch(lite.Error()); found != nil {
		name = constraint(found[1])
	}
	return Refusal{rule, name}, ok
}

// constraint makes users_a_b of "users.a, users.b ", and leaves a name as it is.
func constraint(text string) string {
	parts := strings.Split(strings.TrimSpace(text), ", ")
	for i, part := range parts[1:] {
		_, parts[i+1], _ = strings.Cut(part, ".")
	}
	return strings.ReplaceAll(strings.Join(parts, "_"), ".", "_")
}

// Again reports whether a transaction was given up for another one that it met, and is to be
// done again from its beginning.
func Again(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01" // serialization_failure, deadlock_detected
	}
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY // another process holds the file
}
