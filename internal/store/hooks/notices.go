package hooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// NoticeFilter chooses notices; what is empty asks nothing.
type NoticeFilter struct {
	Type    string
	Subject string
	Since   time.Time
	Near    string // id of a user: only what is for them, or for a team of theirs
	Sort    string
	After   string
	Limit   int
}

var noticeOrder = sqldb.Order[schemas.Notice]{
	ID: sqldb.Key[schemas.Notice]{SQL: "n.id", Of: func(n *schemas.Notice) any { return n.ID }}, Usual: "-time",
	By: map[string]sqldb.Key[schemas.Notice]{
		"time": {SQL: "n.time_ns", Of: func(n *schemas.Notice) any { return n.Time.UnixNano() }},
		"type": {SQL: "n.type", Of: func(n *schemas.Notice) any { return n.Type }},
	},
}

func scanNotice(rows *sql.Rows) (n schemas.Notice, err error) {
	var ns int64
	var data string
	err = rows.Scan(&n.ID, &n.Type, &n.Subject, &ns, &data, &n.User, &n.Team)
	n.Time, n.Data = at(ns), json.RawMessage(data)
	return n, err
}

const noticeQuery = `SELECT n.id, n.type, n.subject, n.time_ns, n.data, COALESCE(n.user_id,''), COALESCE(n.team_id,'') FROM notices n WHERE `

// near is of a notice that a user may know of.
const near = `(n.user_id=$1 OR n.team_id IN (SELECT team_id FROM team_members WHERE user_id=$1))`

// Notices lists what people were told in the time of [Keep], the last first where no order is asked
// for. What only tried a webhook was told to nobody.
func (s *Store) Notices(ctx context.Context, f NoticeFilter) (page []schemas.Notice, next string, err error) {
	since := int64(0)
	if !f.Since.IsZero() {
		since = f.Since.UnixNano()
	}
	tail, args, err := noticeOrder.Tail(f.Sort, f.After, f.Limit, f.Near, f.Type, f.Subject, since)
	if err != nil {
		return nil, "", fmt.Errorf("list notices: %w", err)
	}
	page, err = sqldb.Rows(ctx, s.db, scanNotice, noticeQuery+`(CAST($1 AS TEXT)='' OR `+near+`) AND (CAST($2 AS TEXT)='' OR n.type=$2)
AND (CAST($3 AS TEXT)='' OR n.subject=$3) AND n.time_ns>=$4 AND n.type<>'`+TypeTest+`'`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list notices: %w", err)
	}
	page, next = noticeOrder.Page(page, f.Sort, f.Limit)
	return page, next, nil
}

// Written lists the ids of the notices that were written since a time, the first first.
func (s *Store) Written(ctx context.Context, since time.Time) ([]string, error) {
	ids, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (id string, err error) { return id, rows.Scan(&id) },
		`SELECT id FROM notices WHERE created_ns>=$1 ORDER BY created_ns, id`, since.UnixNano())
	if err != nil {
		return nil, fmt.Errorf("list notices: %w", err)
	}
	return ids, nil
}

// Notice returns the notice with an id, and whether there is one.
func (s *Store) Notice(ctx context.Context, id string) (schemas.Notice, bool, error) {
	found, err := sqldb.Rows(ctx, s.db, scanNotice, noticeQuery+`n.id=$1`, id)
	if err != nil || len(found) == 0 {
		return schemas.Notice{}, false, err
	}
	return found[0], true, nil
}

// Hears reports whether a notice is for a user, or for a team of theirs.
func (s *Store) Hears(ctx context.Context, user, id string) (bool, error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (n int, err error) { return n, rows.Scan(&n) },
		`SELECT 1 FROM notices n WHERE n.id=$2 AND `+near, user, id)
	return len(found) > 0, err
}
