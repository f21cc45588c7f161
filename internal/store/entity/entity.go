// Package entity is what the stores of the API's records have in common: errors that name the
// field, changes that are held against a revision, creation by a request, and the row of the
// audit that each change has.
package entity

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
)

// Errors of records.
var (
	ErrNone    = errors.New("there is none")
	ErrChanged = errors.New("it was changed meanwhile")
	ErrInUse   = errors.New("something refers to it")
)

// FieldError is a field that cannot be what it was to be.
type FieldError struct {
	Field  string
	Value  string
	Taken  bool // by another
	Reason string
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Taken {
		return fmt.Sprintf("%s %s is taken", e.Field, e.Value)
	}
	return fmt.Sprintf("%s %q %s", e.Field, e.Value, e.Reason)
}

// Verbs of rows of the audit.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)

// Audit makes the row of a change: who, which record, and what it was and is. A before of nil
// is of what was made, an after of nil of what is no more.
func Audit(ctx context.Context, tx *sql.Tx, now time.Time, by, verb, kind, name string, before, after any) error {
	detail, err := Changes(before, after)
	if err != nil {
		return err
	}
	return audit.Append(ctx, tx, audit.Row{Time: now, Actor: by, Verb: verb, Kind: kind, Subject: name, Detail: detail})
}

// Changes is what a row of the audit says of a change: the JSON of what it was and is.
func Changes(before, after any) (string, error) {
	detail, err := json.Marshal(struct {
		Before any `json:"before,omitempty"`
		After  any `json:"after,omitempty"`
	}{before, after})
	return string(detail), err
}

// Only returns the only record that was found.
func Only[T any](found []T, err error, what, ref string) (T, error) {
	var none T
	if err == nil && len(found) == 0 {
		err = ErrNone
	}
	if err != nil {
		return none, fmt.Errorf("%s %s: %w", what, ref, err)
	}
	return found[0], nil
}

// Page cuts what was read with one row more than its limit; next is the name that the page
// ends with, or "" where none follows.
func Page[T any](found []T, limit int, name func(*T) string) (page []T, next string) {
	if len(found) <= limit {
		return found, ""
	}
	return found[:limit], name(&found[limit-1])
}

// Explain tells a refusal of the database by the field, of which value says what it was to be.
func Explain(err error, table string, value func(field string) string) error {
	r, ok := sqldb.Refused(err)
	if !ok {
		return err
	}
	if r.Rule == sqldb.Foreign {
		return ErrInUse
	}
	field := r.Field(table)
	return &FieldError{Field: field, Value: value(field), Taken: r.Rule == sqldb.Unique, Reason: "is not one that it takes"}
}

// Made runs a creation, or returns what the same request has made before or beside it.
func Made[T any](ctx context.Context, db *sqldb.DB, v *T, known func(sqldb.Queryer) ([]T, error), insert func(*sql.Tx) error) error {
	found := func(q sqldb.Queryer) (bool, error) {
		made, err := known(q)
		if err == nil && len(made) > 0 {
			*v = made[0]
		}
		return len(made) > 0, err
	}
	err := db.InTx(ctx, func(tx *sql.Tx) error {
		if made, err := found(tx); err != nil || made {
			return err
		}
		return insert(tx)
	})
	if field := (*FieldError)(nil); errors.As(err, &field) && field.Taken {
		if made, e := found(db); e == nil && made {
			return nil
		}
	}
	return err
}

// Later is now, and not before what was: clocks jump.
func Later(now, was time.Time) time.Time {
	if now = now.UTC(); now.Before(was) {
		return was
	}
	return now
}

// One is the error of a statement that has to change one row.
func One(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = ErrChanged
	}
	return err
}

// Check is the error of a change that was made of another revision than there is; 0 is any.
func Check(of, is int64) error {
	if of != 0 && of != is {
		return ErrChanged
	}
	return nil
}
