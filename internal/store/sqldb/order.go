package sqldb

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Key is a column that rows are sorted by, and what it holds of one: text, an int64 or a float64.
type Key[T any] struct {
	SQL string // of the column, which is never NULL
	Of  func(*T) any
	// Fold has text compared in lower case, by the database.
	Fold bool
	// Alone is of a column that is another for each row.
	Alone bool
}

// Order is what a list may be sorted by, in SQL, and where its pages go on: behind the row that
// the page before ended with, by the column and by the id of the row. So rows that come and go
// meanwhile move nothing from one page to another.
type Order[T any] struct {
	ID Key[T]            // text, another for each row
	By map[string]Key[T] // what a caller may name; with a minus before it, from the last
	// Usual is the order that callers get who name none.
	Usual string
}

// Tail is the end of a query with a WHERE whose parameters are args: where the page begins, the
// order, and one row more than the limit.
func (o Order[T]) Tail(sort, after string, limit int, args ...any) (string, []any, error) {
	if sort == "" {
		sort = o.Usual
	}
	name, down := strings.CutPrefix(sort, "-")
	key, ok := o.By[name]
	if !ok {
		return "", nil, fmt.Errorf("a list cannot be sorted by %q", name)
	}
	than, way := " > ", ""
	if down {
		than, way = " < ", " DESC"
	}
	param := func(k Key[T], value any) string {
		args = append(args, value)
		n := "$" + strconv.Itoa(len(args))
		if k.Fold {
			return "lower(CAST(" + n + " AS TEXT))"
		}
		return n
	}
	column := key.SQL
	if key.Fold {
		column = "lower(" + column + ")"
	}
	var b strings.Builder
	if after != "" {
		var row T
		value, id, err := Behind(sort, after, key.Of(&row))
		if err != nil {
			return "", nil, err
		}
		if key.Alone {
			b.WriteString(" AND " + column + than + param(key, value))
		} else {
			b.WriteString(" AND (" + column + ", " + o.ID.SQL + ")" + than + "(" + param(key, value) + ", " + param(o.ID, id) + ")")
		}
	}
	b.WriteString(" ORDER BY " + column + way)
	if !key.Alone {
		b.WriteString(", " + o.ID.SQL + way)
	}
	b.WriteString(" LIMIT " + strconv.Itoa(limit+1))
	return b.String(), args, nil
}

// Page cuts what a query with [Order.Tail] read; next is the cursor of the page that follows, or ""
// where nothing does.
func (o Order[T]) Page(rows []T, sort string, limit int) (page []T, next string) {
	if len(rows) <= limit {
		return rows, ""
	}
	if sort == "" {
		sort = o.Usual
	}
	last := &rows[limit-1]
	return rows[:limit], Ahead(sort, o.By[strings.TrimPrefix(sort, "-")].Of(last), o.ID.Of(last).(string))
}

// Cut sorts rows that are all in memory and cuts a page of them; a limit of 0 is no limit.
func (o Order[T]) Cut(rows []T, sort, after string, limit int) (page []T, next string, err error) {
	if sort == "" {
		sort = o.Usual
	}
	name, down := strings.CutPrefix(sort, "-")
	key, ok := o.By[name]
	if !ok {
		return nil, "", fmt.Errorf("a list cannot be sorted by %q", name)
	}
	order := func(a *T, value any, id string) int {
		c := key.compare(key.Of(a), value)
		if c == 0 && !key.Alone {
			c = strings.Compare(o.ID.Of(a).(string), id)
		}
		if down {
			c = -c
		}
		return c
	}
	page = slices.Clone(rows)
	slices.SortFunc(page, func(a, b T) int { return order(&a, key.Of(&b), o.ID.Of(&b).(string)) })
	if after != "" {
		var row T
		value, id, err := Behind(sort, after, key.Of(&row))
		if err != nil {
			return nil, "", err
		}
		page = slices.DeleteFunc(page, func(r T) bool { return order(&r, value, id) <= 0 })
	}
	if limit <= 0 {
		limit = len(page)
	}
	page, next = o.Page(page, sort, limit)
	return page, next, nil
}

// compare compares two values of the key.
func (k Key[T]) compare(a, b any) int {
	switch x := a.(type) {
	case int64:
		return cmp.Compare(x, b.(int64))
	case float64:
		return cmp.Compare(x, b.(float64))
	}
	x, y := a.(string), b.(string)
	if k.Fold {
		x, y = strings.ToLower(x), strings.ToLower(y)
	}
	return strings.Compare(x, y)
}

// OrderError is a cursor of the same list in another order.
type OrderError struct{ Of, Asked string }

// Error implements error.
func (e *OrderError) Error() string {
	return fmt.Sprintf("the cursor is of the list sorted by %s, and not by %s", e.Of, e.Asked)
}

// Ahead is the cursor of the page that follows a row, of a list that is sorted by a column, by the
// row's value in it and by its id.
func Ahead(sort string, value any, id string) string {
	text, _ := json.Marshal([]any{value, id}) // text and numbers: it cannot fail
	return sort + "~" + base64.RawURLEncoding.EncodeToString(text)
}

// Behind reads what [Ahead] wrote of a list in the same order. The value is of the type of like:
// a text, an int64 or a float64.
func Behind(sort, cursor string, like any) (value any, id string, err error) {
	bad := fmt.Errorf("%w %q", ErrCursor, cursor)
	of, coded, ok := strings.Cut(cursor, "~")
	if !ok {
		return nil, "", bad
	}
	text, err := base64.RawURLEncoding.DecodeString(coded)
	if err != nil {
		return nil, "", bad
	}
	if of != sort {
		return nil, "", &OrderError{of, sort}
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) != 2 || json.Unmarshal(parts[1], &id) != nil {
		return nil, "", bad
	}
	plain := func(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
	switch like.(type) {
	case int64:
		var n int64
		err = json.Unmarshal(parts[0], &n)
		value = n
	case float64:
		var n float64
		err = json.Unmarshal(parts[0], &n)
		value = n
	default:
		var s string
		err = json.Unmarshal(parts[0], &s)
		if value = s; !plain(s) {
			return nil, "", bad
		}
	}
	if err != nil || !plain(id) {
		return nil, "", bad
	}
	return value, id, nil
}
