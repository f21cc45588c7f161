package hooks

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Keep is how long notices and how their deliveries ended are kept.
const Keep = 30 * 24 * time.Hour

// Key is the bytes of a secret (Standard Webhooks, "Signature scheme").
func Key(secret Secret) ([]byte, error) {
	if !signer.MatchString(string(secret)) {
		return nil, errSecret
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(secret), "whsec_"))
	if err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errSecret
	}
	return key, nil
}

// Put writes a notice, and a delivery of it to each active webhook that wants its type. An id
// of "" is made.
func Put(ctx context.Context, tx *sql.Tx, now time.Time, n *schemas.Notice) error {
	to, _, err := wanting(ctx, tx, n.Type)
	if err != nil {
		return fmt.Errorf("put notice %s: %w", n.Type, err)
	}
	return put(ctx, tx, now, n, to)
}

// Once is [Put] of a notice whose id says what it tells: one that is known is not told again, and one that nobody
// wants is not kept. It returns the names of the webhooks that want its type.
func Once(ctx context.Context, tx *sql.Tx, now time.Time, n *schemas.Notice) (names []string, err error) {
	to, names, err := wanting(ctx, tx, n.Type)
	if err != nil || len(to) == 0 {
		return nil, err
	}
	var known int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM notices WHERE id=$1`, n.ID).Scan(&known); err != nil || known > 0 {
		return names, err
	}
	return names, put(ctx, tx, now, n, to)
}

// wanting returns the active webhooks that want a type of notices: their ids and names, by id.
func wanting(ctx context.Context, tx *sql.Tx, kind string) (ids, names []string, err error) {
	type hook struct{ id, name, topics string }
	hooks, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (h hook, err error) { return h, rows.Scan(&h.id, &h.name, &h.topics) },
		`SELECT id, name, topics FROM webhooks WHERE active ORDER BY id`)
	if err != nil {
		return nil, nil, err
	}
	for _, h := range hooks {
		var topics []string
		if err := json.Unmarshal([]byte(h.topics), &topics); err != nil {
			return nil, nil, fmt.Errorf("topics of webhook %s: %w", h.id, err)
		}
		if Matches(topics, kind) {
			ids, names = append(ids, h.id), append(names, h.name)
		}
	}
	return ids, names, nil
}

func put(ctx context.Context, tx *sql.Tx, now time.Time, n *schemas.Notice, to []string) error {
	if n.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		n.ID = id.String()
	}
	if len(n.Data) == 0 {
		n.Data = json.RawMessage("{}")
	}
	null := func(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
	if _, err := tx.ExecContext(ctx, `INSERT INTO notices (id, type, subject, time_ns, data, user_id, team_id, created_ns) VALUES ($1,$2,$3,$4,$5,$6,$7,$8)`,
		n.ID, n.Type, n.Subject, n.Time.UnixNano(), string(n.Data), null(n.User), null(n.Team), now.UnixNano()); err != nil {
		return fmt.Errorf("put notice %s: %w", n.Type, err)
	}
	for _, id := range to {
		if _, err := tx.ExecContext(ctx, `INSERT INTO deliveries (webhook_id, notice_id, state, next_ns, created_ns) VALUES ($1,$2,'pending',$3,$3)`,
			id, n.ID, now.UnixNano()); err != nil {
			return fmt.Errorf("put notice %s: %w", n.Type, err)
		}
	}
	return nil
}

// ErrInactive is of a webhook to which nothing is sent.
var ErrInactive = errors.New("the webhook is not active")

// TypeTest is the type of a notice that only tries a webhook.
const TypeTest = "webhook.test"

// Test writes a notice for one webhook, whatever its topics are.
func (s *Store) Test(ctx context.Context, by, ref string) (d schemas.Delivery, err error) {
	id := sqldb.NewID(ctx)
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := list(ctx, tx, asked, ref)
		h, err := entity.Only(found, err, Kind, ref)
		if err != nil {
			return err
		}
		if !h.Active {
			return ErrInactive
		}
		known, err := deliveries(ctx, tx, `d.webhook_id=$1 AND d.notice_id=$2`, h.ID, id)
		if err != nil {
			return err
		}
		if len(known) > 0 {
			d = known[0]
			return nil
		}
		now := s.now().UTC()
		data, err := json.Marshal(map[string]string{"webhook": h.Name, "by": by})
		if err != nil {
			return err
		}
		n := schemas.Notice{ID: id, Type: TypeTest, Subject: h.Name, Time: now, Data: data}
		if err := put(ctx, tx, now, &n, []string{h.ID}); err != nil {
			return err
		}
		d = schemas.Delivery{ID: id, WebhookID: h.ID, Type: n.Type, Subject: n.Subject, State: schemas.DeliveryPending, NextAt: now, CreatedAt: now}
		return entity.Audit(ctx, tx, now, by, "test", Kind, h.Name, nil, nil)
	})
	if err != nil {
		return d, fmt.Errorf("test webhook %s: %w", ref, err)
	}
	return d, nil
}

func scanDelivery(rows *sql.Rows) (d schemas.Delivery, err error) {
	var next, created, done int64
	err = rows.Scan(&d.ID, &d.WebhookID, &d.Type, &d.Subject, &d.State, &d.Attempts, &next, &d.LastCode, &d.LastError, &created, &done)
	if d.CreatedAt, d.DoneAt = at(created), at(done); d.State == schemas.DeliveryPending {
		d.NextAt = at(next)
	}
	return d, err
}

func deliveries(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Delivery, error) {
	return sqldb.Rows(ctx, q, scanDelivery, `SELECT d.notice_id, d.webhook_id, n.type, n.subject, d.state, d.attempts, d.next_ns, d.last_status,
d.last_error, d.created_ns, d.done_ns FROM deliveries d JOIN notices n ON n.id=d.notice_id WHERE `+where, args...)
}

// Deliveries lists those of a webhook, the last made first where no order is asked for; a state of ""
// is any.
func (s *Store) Deliveries(ctx context.Context, ref, state, sort, after string, limit int) ([]schemas.Delivery, string, error) {
	h, err := s.Get(ctx, ref)
	if err != nil {
		return nil, "", err
	}
	tail, args, err := deliveryOrder.Tail(sort, after, limit, h.ID, state)
	if err != nil {
		return nil, "", err
	}
	found, err := deliveries(ctx, s.db, `d.webhook_id=$1 AND (CAST($2 AS TEXT)='' OR d.state=$2)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list deliveries of webhook %s: %w", ref, err)
	}
	page, next := deliveryOrder.Page(found, sort, limit)
	return page, next, nil
}

var deliveryOrder = sqldb.Order[schemas.Delivery]{
	ID: sqldb.Key[schemas.Delivery]{SQL: "d.notice_id", Of: func(d *schemas.Delivery) any { return d.ID }}, Usual: "-created_at",
	By: map[string]sqldb.Key[schemas.Delivery]{
		"created_at": {SQL: "d.created_ns", Of: func(d *schemas.Delivery) any { return d.CreatedAt.UnixNano() }},
		"attempts":   {SQL: "d.attempts", Of: func(d *schemas.Delivery) any { return int64(d.Attempts) }},
	},
}

// Attempt is a delivery that is to be tried, with all that this takes.
type Attempt struct {
	Webhook, URL string
	Secret       Secret
	Notice       schemas.Notice
	Attempts     int // with this one
	Created      time.Time
}

// Due lists active webhooks that have something to try by now, and when the next is due for any; the
// zero time is that nothing is.
func (s *Store) Due(ctx context.Context, now time.Time) (ids []string, next time.Time, err error) {
	type hook struct {
		id   string
		next int64
	}
	all, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (h hook, err error) { return h, rows.Scan(&h.id, &h.next) },
		`SELECT h.id, min(d.next_ns) FROM webhooks h JOIN deliveries d ON d.webhook_id=h.id WHERE h.active AND d.state='pending' GROUP BY h.id ORDER BY h.id`)
	for _, h := range all {
		if t := at(h.next); !t.After(now) {
			ids = append(ids, h.id)
		} else if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	return ids, next, err
}

// Claim takes the next delivery of a webhook that is due, for so long; until then nobody else
// does. It is nil where nothing is due.
func (s *Store) Claim(ctx context.Context, webhook string, now time.Time, hold time.Duration) (a *Attempt, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		a = nil
		type row struct {
			Attempt

			next int64
		}
		found, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (r row, err error) {
			var data string
			var ns, created int64
			err = rows.Scan(&r.Webhook, &r.URL, &r.Secret, &r.Notice.ID, &r.Notice.Type, &r.Notice.Subject, &ns, &data, &r.Notice.User, &r.Notice.Team,
				&r.Attempts, &created, &r.next)
			r.Notice.Time, r.Notice.Data, r.Created = at(ns), json.RawMessage(data), at(created)
			return r, err
		}, `SELECT h.id, h.url, h.secret, n.id, n.type, n.subject, n.time_ns, n.data, COALESCE(n.user_id,''), COALESCE(n.team_id,''), d.attempts, d.created_ns, d.next_ns
FROM deliveries d JOIN webhooks h ON h.id=d.webhook_id JOIN notices n ON n.id=d.notice_id
WHERE d.webhook_id=$1 AND h.active AND d.state='pending' AND d.next_ns<=$2 ORDER BY d.next_ns, d.notice_id LIMIT 1`, webhook, now.UnixNano())
		if err != nil || len(found) == 0 {
			return err
		}
		r := &found[0]
		res, err := tx.ExecContext(ctx, `UPDATE deliveries SET attempts=attempts+1, next_ns=$1 WHERE webhook_id=$2 AND notice_id=$3 AND state='pending' AND next_ns=$4`,
			now.Add(hold).UnixNano(), webhook, r.Notice.ID, r.next)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err // another has it
		}
		r.Attempts++
		a = &r.Attempt
		return nil
	})
	if sqldb.Again(err) {
		return nil, nil
	}
	return a, err
}

// Result is how an attempt went.
type Result struct {
	Status int    // HTTP; 0 is no answer
	Error  string // "" is that it was taken
	Next   time.Time
	Dead   bool // given up; Next does not matter
}

// Done writes down how an attempt went.
func (s *Store) Done(ctx context.Context, a *Attempt, now time.Time, r Result) error {
	state, next, done := schemas.DeliveryPending, r.Next.UnixNano(), int64(0)
	switch {
	case r.Error == "":
		state, next, done = schemas.DeliveryDelivered, 0, now.UnixNano()
	case r.Dead:
		state, next, done = schemas.DeliveryDead, 0, now.UnixNano()
	}
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE webhooks SET last_ns=$1, last_status=$2, last_error=$3 WHERE id=$4`,
			now.UnixNano(), r.Status, r.Error, a.Webhook); err != nil {
			return err
		}
		// An attempt that was taken for dead, and is not, says less than that it was delivered.
		_, err := tx.ExecContext(ctx, `UPDATE deliveries SET state=$1, next_ns=$2, last_status=$3, last_error=$4, done_ns=$5
WHERE webhook_id=$6 AND notice_id=$7 AND state='pending'`, state, next, r.Status, r.Error, done, a.Webhook, a.Notice.ID)
		return err
	})
}

// Sweep gives up deliveries that were made before a time, and forgets notices that are older than
// [Keep] with all of theirs. It returns how many deliveries it gave up.
func (s *Store) Sweep(ctx context.Context, now, before time.Time) (dead int64, err error) {
	res, err := s.db.ExecContext(ctx, `UPDATE deliveries SET state='dead', done_ns=$1, last_error=CASE WHEN last_error='' THEN 'it was not sent in time' ELSE last_error END
WHERE state='pending' AND created_ns<$2 AND next_ns<=$1`, now.UnixNano(), before.UnixNano())
	if err == nil {
		dead, err = res.RowsAffected()
	}
	if err == nil {
		_, err = s.db.ExecContext(ctx, `DELETE FROM deliveries WHERE webhook_id NOT IN (SELECT id FROM webhooks)`)
	}
	if err == nil {
		_, err = s.db.ExecContext(ctx, `DELETE FROM notices WHERE created_ns<$1`, now.Add(-Keep).UnixNano())
	}
	if err != nil {
		return dead, fmt.Errorf("sweep notices: %w", err)
	}
	return dead, nil
}

// Counts are how many deliveries are in each state that needs to be looked at.
func (s *Store) Counts(ctx context.Context) (pending, dead int64, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT COALESCE(sum(CASE WHEN state='pending' THEN 1 ELSE 0 END),0), COALESCE(sum(CASE WHEN state='dead' THEN 1 ELSE 0 END),0)
FROM deliveries WHERE state<>'delivered' AND webhook_id IN (SELECT id FROM webhooks)`).Scan(&pending, &dead)
	return pending, dead, err
}
