// Package conflicts keeps what was said of a resource in two ways that cannot both be so, and what
// somebody has decided of it. The id of a conflict follows from what both sides say: the same again
// is the same conflict and stays decided, another value is another conflict.
package conflicts

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Kind is what rows of the audit are about.
const Kind = "conflict"

// keepSettled is for how long conflicts are kept that nobody has decided and that are none any more.
const keepSettled = 90 * 24 * time.Hour

// Store reads and writes conflicts, in the table of migrations 0096 and 0101.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

type sides struct {
	Left  schemas.ConflictSide `json:"left"`
	Right schemas.ConflictSide `json:"right"`
}

func digest(parts ...string) string {
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(strings.Join(parts, "\x00")), 8).String()
}

// subject is what a conflict is about, whatever the values.
func subject(c *schemas.Conflict) string {
	parts := []string{c.Kind, c.Resource, c.Field, c.Left.Source, c.Right.Source}
	if c.Kind == schemas.ConflictSerialTwice || c.Right.Source == schemas.SideTinkerbell { // a serial number may be that of several, and a machine that of several objects
		parts = append(parts, c.Right.Resource)
	}
	return digest(parts...)
}

// ID is the id of a conflict, which does not depend on when it was seen.
func ID(c *schemas.Conflict) string {
	return digest(c.Kind, c.Resource, c.Field, c.Left.Source, c.Left.Value, c.Left.Resource, c.Right.Source, c.Right.Value, c.Right.Resource)
}

// Seen notes conflicts within the transaction of whoever has seen them. One that is there stays open
// or decided, with who says so and when as it is now; one that was settled is open again. An open one about the same with other
// values gives way. It returns how many are new.
func Seen(ctx context.Context, tx *sql.Tx, now time.Time, all ...schemas.Conflict) (opened int, err error) {
	for i := range all {
		c := &all[i]
		id, about := ID(c), subject(c)
		text, err := json.Marshal(sides{c.Left, c.Right})
		if err != nil {
			return opened, err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM conflicts WHERE subject=$1 AND id<>$2 AND status='open'`, about, id); err != nil {
			return opened, fmt.Errorf("note a conflict about %s: %w", c.Resource, err)
		}
		again, err := tx.ExecContext(ctx, `UPDATE conflicts SET status='open', comment='', decided_ns=0, first_ns=$1, last_ns=$1, sides=$2
WHERE id=$3 AND status='settled'`, now.UnixNano(), string(text), id)
		if err != nil {
			return opened, fmt.Errorf("note a conflict about %s: %w", c.Resource, err)
		}
		if n, err := again.RowsAffected(); err != nil {
			return opened, err
		} else if n > 0 {
			opened++
			continue
		}
		res, err := tx.ExecContext(ctx, `UPDATE conflicts SET last_ns=$1, sides=$3 WHERE id=$2`, now.UnixNano(), id, string(text))
		if err != nil {
			return opened, fmt.Errorf("note a conflict about %s: %w", c.Resource, err)
		}
		if n, err := res.RowsAffected(); err != nil {
			return opened, err
		} else if n > 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO conflicts (id, subject, kind, resource, field, sides, status, first_ns, last_ns)
VALUES ($1,$2,$3,$4,$5,$6,'open',$7,$7) ON CONFLICT (id) DO NOTHING`, id, about, c.Kind, c.Resource, c.Field, string(text), now.UnixNano()); err != nil {
			return opened, fmt.Errorf("note a conflict about %s: %w", c.Resource, err)
		}
		opened++
	}
	return opened, nil
}

// Why a conflict is one no more.
const (
	WhyAgree = "Both sides say the same again."
	WhyGone  = "The inventory does not have it any more."
)

// Open returns what is open of a kind.
func Open(ctx context.Context, q sqldb.Queryer, kind string) ([]schemas.Conflict, error) {
	found, err := sqldb.Rows(ctx, q, scan, columns+` WHERE status='open' AND kind=$1`, kind)
	if err != nil {
		return nil, fmt.Errorf("read open conflicts: %w", err)
	}
	return found, nil
}

// Close settles an open conflict, and says why it is one no more. One that was decided stays decided.
func Close(ctx context.Context, tx *sql.Tx, now time.Time, id, why string) error {
	if _, err := tx.ExecContext(ctx, `UPDATE conflicts SET status='settled', comment=$1, decided_ns=$2 WHERE id=$3 AND status='open'`, why, now.UnixNano(), id); err != nil {
		return fmt.Errorf("settle conflict %s: %w", id, err)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM conflicts WHERE status='settled' AND decided_ns<$1`, now.Add(-keepSettled).UnixNano()); err != nil {
		return fmt.Errorf("forget settled conflicts: %w", err)
	}
	return nil
}

// Settle settles what is open of a resource and its parts by a source, on the right, that it
// says no more: what it says still is in keep.
func Settle(ctx context.Context, tx *sql.Tx, now time.Time, resource, source string, keep []schemas.Conflict) error {
	found, err := sqldb.Rows(ctx, tx, scan, columns+` WHERE status='open' AND (resource=$1 OR resource LIKE $2 ESCAPE '\')`, resource, partsOf(resource))
	if err != nil {
		return fmt.Errorf("settle conflicts of %s: %w", resource, err)
	}
	still := make(map[string]bool, len(keep))
	for i := range keep {
		still[ID(&keep[i])] = true
	}
	for _, c := range found {
		if c.Right.Source != source || still[c.ID] || c.Kind != schemas.ConflictTwoSources {
			continue
		}
		if err := Close(ctx, tx, now, c.ID, WhyAgree); err != nil {
			return err
		}
	}
	return nil
}

// partsOf is the pattern of the names of a resource's parts.
func partsOf(resource string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(resource) + "/%"
}

const columns = `SELECT id, kind, resource, field, sides, status, decision, comment, decided_by, decided_ns, first_ns, last_ns FROM conflicts`

func scan(rows *sql.Rows) (c schemas.Conflict, err error) {
	var text string
	var decided, first, last int64
	if err := rows.Scan(&c.ID, &c.Kind, &c.Resource, &c.Field, &text, &c.Status, &c.Decision, &c.Comment, &c.DecidedBy, &decided, &first, &last); err != nil {
		return c, err
	}
	var both sides
	if err := json.Unmarshal([]byte(text), &both); err != nil {
		return c, err
	}
	c.Left, c.Right, c.FirstSeen, c.LastSeen = both.Left, both.Right, time.Unix(0, first).UTC(), time.Unix(0, last).UTC()
	if decided != 0 {
		c.DecidedAt = time.Unix(0, decided).UTC()
	}
	return c, nil
}

// Get returns a conflict.
func (s *Store) Get(ctx context.Context, id string) (schemas.Conflict, error) {
	found, err := sqldb.Rows(ctx, s.db, scan, columns+` WHERE id=$1`, id)
	return entity.Only(found, err, Kind, id)
}

// Filter chooses of a list; what is empty asks nothing.
type Filter struct {
	Status, Kind string
	Resource     string // or a part of it
	Sort         string // as its [sqldb.Order] says
	After        string // cursor of the page before
	Limit        int
}

// List returns a page of conflicts, the newest first where no order is asked for, and the cursor of the following page.
func (s *Store) List(ctx context.Context, f Filter) (out []schemas.Conflict, next string, err error) {
	tail, args, err := order.Tail(f.Sort, f.After, f.Limit, f.Status, f.Kind, f.Resource, partsOf(f.Resource))
	if err != nil {
		return nil, "", fmt.Errorf("list conflicts: %w", err)
	}
	out, err = sqldb.Rows(ctx, s.db, scan, columns+` WHERE (CAST($1 AS TEXT)='' OR status=$1) AND (CAST($2 AS TEXT)='' OR kind=$2)
AND (CAST($3 AS TEXT)='' OR resource=$3 OR resource LIKE $4 ESCAPE '\')`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list conflicts: %w", err)
	}
	out, next = order.Page(out, f.Sort, f.Limit)
	return out, next, nil
}

var order = sqldb.Order[schemas.Conflict]{
	ID: sqldb.Key[schemas.Conflict]{SQL: "id", Of: func(c *schemas.Conflict) any { return c.ID }}, Usual: "-first_seen",
	By: map[string]sqldb.Key[schemas.Conflict]{
		"first_seen": {SQL: "first_ns", Of: func(c *schemas.Conflict) any { return c.FirstSeen.UnixNano() }},
		"last_seen":  {SQL: "last_ns", Of: func(c *schemas.Conflict) any { return c.LastSeen.UnixNano() }},
		"resource":   {SQL: "resource", Of: func(c *schemas.Conflict) any { return c.Resource }},
	},
}

// Decide keeps which side is right, for by.
func (s *Store) Decide(ctx context.Context, by, id, decision, comment string) (c schemas.Conflict, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := sqldb.Rows(ctx, tx, scan, columns+` WHERE id=$1`, id)
		if c, err = entity.Only(found, err, Kind, id); err != nil {
			return err
		}
		before := c
		now := s.now().UTC()
		c.Status, c.Decision, c.Comment, c.DecidedBy, c.DecidedAt = schemas.ConflictDecided, decision, comment, by, now
		res, err := tx.ExecContext(ctx, `UPDATE conflicts SET status=$1, decision=$2, comment=$3, decided_by=$4, decided_ns=$5 WHERE id=$6`,
			c.Status, decision, comment, by, now.UnixNano(), id)
		if err := entity.One(res, err); err != nil {
			return entity.Explain(err, "conflicts", func(string) string { return decision })
		}
		return entity.Audit(ctx, tx, now, by, entity.Update, Kind, id, before, c)
	})
	if err != nil {
		return c, fmt.Errorf("decide conflict %s: %w", id, err)
	}
	return c, nil
}
