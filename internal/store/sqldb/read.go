package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Queryer is what rows are read from: a database, or a transaction.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Rows returns what scan makes of each row of a query.
func Rows[T any](ctx context.Context, q Queryer, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Docs returns the documents, as JSON, that a query selects as its only column.
func Docs[T any](ctx context.Context, q Queryer, query string, args ...any) ([]T, error) {
	return Rows(ctx, q, func(rows *sql.Rows) (v T, err error) {
		var doc []byte
		if err := rows.Scan(&doc); err != nil {
			return v, err
		}
		return v, json.Unmarshal(doc, &v)
	}, query, args...)
}

// ErrCursor is of a page cursor that no list of ours gave.
var ErrCursor = errors.New("unknown page cursor")

// Cursor is the last row of a page of a list that is sorted by time and id, the newest first.
type Cursor struct {
	Time int64 // nanoseconds
	ID   string
}

// ParseCursor reads what [Cursor.String] wrote.
func ParseCursor(text string) (c Cursor, err error) {
	ns, id, ok := strings.Cut(text, ".")
	if c.Time, err = strconv.ParseInt(ns, 10, 64); err != nil || !ok {
		return c, fmt.Errorf("%w %q", ErrCursor, text)
	}
	c.ID = id
	return c, nil
}

// String implements [fmt.Stringer].
func (c Cursor) String() string { return strconv.FormatInt(c.Time, 10) + "." + c.ID }

// Page cuts what was read with one row more than its limit; next is the cursor of the page
// that follows, or "" where nothing does.
func Page[T any](rows []T, limit int, key func(*T) (time.Time, string)) (page []T, next string) {
	if len(rows) <= limit {
		return rows, ""
	}
	t, id := key(&rows[limit-1])
	return rows[:limit], Cursor{t.UnixNano(), id}.String()
}

// In makes a list of parameters, from $first on, of values: `$4,$5,$6`. It is for a few hundred.
func In(first int, values []string) (list string, args []any) {
	var b strings.Builder
	args = make([]any, len(values))
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(first + i))
		args[i] = v
	}
	return b.String(), args
}
