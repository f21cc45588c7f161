// Package audit keeps who did what to which machine: rows that are only ever
// appended, each with a hash over itself and the hash before it, and the last hash
// apart, so that a row that was changed, removed or put in between is seen.
package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/internal/store/sqldb"
)

// ErrBroken is wrapped when the chain of hashes does not hold.
var ErrBroken = errors.New("audit chain is broken")

// Row is one line of the audit.
type Row struct {
	Seq     int64
	Time    time.Time
	Actor   string
	Verb    string // intend, sent, done, refuse, ...
	Subject string // the server, "" where there is none
	Action  string // id of the action
	Kind    string // of the action
	State   string // that the action reached
	Detail  string // in words
	Hash    string // SHA-256, hex
}

// detail is the part of a row that the table keeps as one text.
func (r *Row) detail() string { return r.Action + " " + r.Kind + " " + r.State + " " + r.Detail }

func (r *Row) setDetail(text string) {
	for _, field := range []*string{&r.Action, &r.Kind, &r.State} {
		*field, text, _ = strings.Cut(text, " ")
	}
	r.Detail = text
}

// Append writes a row within the transaction of what it tells of. Seq and Hash
// are the audit's. The row of the head is locked from here to the commit.
func Append(ctx context.Context, tx *sql.Tx, r Row) error {
	var seq int64
	var prev string
	err := tx.QueryRowContext(ctx, `UPDATE control_audit_head SET seq=seq+1 RETURNING seq, hash`).Scan(&seq, &prev)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	ns := r.Time.UnixNano()
	sum := hash(seq, ns, r.Actor, r.Verb, r.Subject, r.detail(), prev)
	_, err = tx.ExecContext(ctx, `INSERT INTO control_audit (seq, time_ns, actor, verb, subject, detail, prev, hash) VALUES ($1,$2,$3,$4,$5,$6,$7,$8)`,
		seq, ns, r.Actor, r.Verb, r.Subject, r.detail(), prev, sum)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE control_audit_head SET hash=$1`, sum)
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func hash(seq, ns int64, fields ...string) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%d\x00%d\x00%s", seq, ns, strings.Join(fields, "\x00")))
	return hex.EncodeToString(h[:])
}

// Chain is what was found out about the hashes.
type Chain struct {
	Rows    int64     // that hold, from the first on
	Checked time.Time // when all of them were last read
	Broken  int64     // number of the first row that does not hold, 0 for none
}

// Log reads the audit of a database.
type Log struct {
	db  *sqldb.DB
	now func() time.Time

	mu    sync.Mutex
	chain Chain
	last  string // hash of the last row that holds
}

// again is how long a row that held is trusted.
const again = 5 * time.Minute

// New returns a log that has read nothing yet.
func New(db *sqldb.DB, now func() time.Time) *Log { return &Log{db: db, now: now} }

// List returns rows from the newest on, those before the row with number before
// where it is not 0.
func (l *Log) List(ctx context.Context, before int64, limit int) ([]Row, error) {
	if before <= 0 {
		before = 1<<63 - 1
	}
	return l.rows(ctx, `seq < $1 ORDER BY seq DESC LIMIT $2`, before, limit)
}

// Filter chooses rows; what is empty asks nothing.
type Filter struct {
	Actor, Verb, Subject string
	Sort                 string
	After                string // cursor of the page before
	Limit                int
}

// Page returns a page of rows, from the newest on where no order is asked for, and the cursor of the
// following page.
func (l *Log) Page(ctx context.Context, f Filter) (page []Row, next string, err error) {
	where, args := []string{"1=1"}, []any{}
	for _, c := range []struct{ column, value string }{{"actor", f.Actor}, {"verb", f.Verb}, {"subject", f.Subject}} {
		if c.value != "" {
			args = append(args, c.value)
			where = append(where, fmt.Sprintf("%s=$%d", c.column, len(args)))
		}
	}
	tail, args, err := order.Tail(f.Sort, f.After, f.Limit, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list audit: %w", err)
	}
	if page, err = l.rows(ctx, strings.Join(where, " AND ")+tail, args...); err != nil {
		return nil, "", err
	}
	page, next = order.Page(page, f.Sort, f.Limit)
	return page, next, nil
}

func (l *Log) rows(ctx context.Context, where string, args ...any) ([]Row, error) {
	out, err := sqldb.Rows(ctx, l.db, func(rows *sql.Rows) (r Row, err error) {
		var ns int64
		var detail string
		if err := rows.Scan(&r.Seq, &ns, &r.Actor, &r.Verb, &r.Subject, &detail, &r.Hash); err != nil {
			return r, err
		}
		r.Time = time.Unix(0, ns).UTC()
		r.setDetail(detail)
		return r, nil
	}, `SELECT seq, time_ns, actor, verb, subject, detail, hash FROM control_audit WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list audit: %w", err)
	}
	return out, nil
}

// order is that in which the rows were written, whatever their clocks said.
var order = sqldb.Order[Row]{
	ID: sqldb.Key[Row]{SQL: "seq", Of: func(*Row) any { return "" }}, Usual: "-seq",
	By: map[string]sqldb.Key[Row]{"seq": {SQL: "seq", Of: func(r *Row) any { return r.Seq }, Alone: true}},
}

// most is how many rows are told apart at once; of more, only that there are some.
const most = 1000

// Since returns the number of the last row, and of what kinds those after one are: after itself
// where that is the last. Before the first row is 0; below that nobody asks for kinds.
func Since(ctx context.Context, db sqldb.Queryer, after int64) (last int64, kinds []string, err error) {
	head, err := sqldb.Rows(ctx, db, func(rows *sql.Rows) (n int64, err error) { return n, rows.Scan(&n) }, `SELECT seq FROM control_audit_head`)
	if err == nil && len(head) != 1 {
		err = errors.New("the audit has no head")
	}
	if err != nil {
		return after, nil, err
	}
	if last = head[0]; last == after || after < 0 {
		return last, nil, nil
	}
	kinds, err = sqldb.Rows(ctx, db, func(rows *sql.Rows) (string, error) {
		var head string
		err := rows.Scan(&head)
		var r Row
		r.setDetail(head)
		return r.Kind, err
	}, `SELECT substr(detail, 1, 200) FROM control_audit WHERE seq>$1 AND seq<=$2 ORDER BY seq DESC LIMIT $3`, after, last, most)
	if err != nil {
		return after, nil, fmt.Errorf("read what is new in the audit: %w", err)
	}
	slices.Sort(kinds)
	return last, slices.Compact(kinds), nil
}

// Check walks the chain. It reads what is new at each call, and all of it every
// now and then, since an old row may be changed at any time.
func (l *Log) Check(ctx context.Context) (Chain, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, last := l.chain, l.last
	if now := l.now(); next.Broken != 0 || now.Sub(next.Checked) >= again {
		next, last = Chain{Checked: now.UTC()}, ""
	}
	var end int64 // rows that are appended from here on are of the next call
	var head string
	if err := l.db.QueryRowContext(ctx, `SELECT seq, hash FROM control_audit_head`).Scan(&end, &head); err != nil {
		return Chain{}, fmt.Errorf("check audit: %w", err)
	}
	rows, err := l.db.QueryContext(
		ctx, `SELECT seq, time_ns, actor, verb, subject, detail, prev, hash FROM control_audit WHERE seq > $1 ORDER BY seq`, next.Rows,
	)
	if err != nil {
		return Chain{}, fmt.Errorf("check audit: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq, ns int64
		var actor, verb, subject, detail, prev, sum string
		if err := rows.Scan(&seq, &ns, &actor, &verb, &subject, &detail, &prev, &sum); err != nil {
			return Chain{}, fmt.Errorf("check audit: %w", err)
		}
		if seq != next.Rows+1 || prev != last || sum != hash(seq, ns, actor, verb, subject, detail, prev) || seq == end && sum != head {
			next.Broken = seq
			break
		}
		next.Rows, last = seq, sum
	}
	if err := rows.Err(); err != nil {
		return Chain{}, fmt.Errorf("check audit: %w", err)
	}
	if next.Broken == 0 && next.Rows < end {
		next.Broken = next.Rows + 1 // the end is missing
	}
	l.chain, l.last = next, last
	return next, nil
}

// Verify walks the whole chain once and returns how many rows hold; it wraps
// ErrBroken where one does not.
func Verify(ctx context.Context, db *sqldb.DB) (int64, error) {
	c, err := New(db, time.Now).Check(ctx)
	if err == nil && c.Broken != 0 {
		err = fmt.Errorf("row %d: %w", c.Broken, ErrBroken)
	}
	return c.Rows, err
}
