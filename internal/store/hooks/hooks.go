// Package hooks keeps webhooks, the notices that are sent to them, and how far each delivery is.
// A notice and its deliveries are written in the transaction of what it tells: it is told if and
// only if that has happened.
package hooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Kind is what rows of the audit are about.
const Kind = "webhook"

// maxHooks is how many webhooks there may be: each costs a row a notice, and a sender.
const maxHooks = 100

// ErrMany is of a webhook that would be one too many.
var ErrMany = fmt.Errorf("there are %d webhooks, and no more can be", maxHooks)

// Store reads and writes the tables of migration 0094.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

const columns = `h.id, h.name, h.url, h.topics, h.secret_ns, h.active, h.last_ns, h.last_status, h.last_error, h.revision, h.created_ns, h.updated_ns,
(SELECT count(*) FROM deliveries d WHERE d.webhook_id=h.id AND d.state='pending'),
(SELECT count(*) FROM deliveries d WHERE d.webhook_id=h.id AND d.state='dead')`

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func scan(rows *sql.Rows) (h schemas.Webhook, err error) {
	var secret, last, created, updated int64
	var topics string
	if err := rows.Scan(&h.ID, &h.Name, &h.URL, &topics, &secret, &h.Active, &last, &h.LastCode, &h.LastError, &h.Revision, &created, &updated,
		&h.Waiting, &h.Dead); err != nil {
		return h, err
	}
	h.SecretAt, h.LastAt, h.CreatedAt, h.UpdatedAt = at(secret), at(last), at(created), at(updated)
	return h, json.Unmarshal([]byte(topics), &h.Topics)
}

func list(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Webhook, error) {
	return sqldb.Rows(ctx, q, scan, `SELECT `+columns+` FROM webhooks h WHERE `+where, args...)
}

const asked = `h.id=$1 OR lower(h.name)=lower($1)`

// Get returns the webhook with an id or a name.
func (s *Store) Get(ctx context.Context, ref string) (schemas.Webhook, error) {
	found, err := list(ctx, s.db, asked, ref)
	return entity.Only(found, err, Kind, ref)
}

// List lists webhooks by name.
func (s *Store) List(ctx context.Context, sort, after string, limit int) ([]schemas.Webhook, string, error) {
	tail, args, err := order.Tail(sort, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list webhooks: %w", err)
	}
	found, err := list(ctx, s.db, `1=1`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list webhooks: %w", err)
	}
	found, next := order.Page(found, sort, limit)
	return found, next, nil
}

var order = sqldb.Order[schemas.Webhook]{
	ID: sqldb.Key[schemas.Webhook]{SQL: "h.id", Of: func(h *schemas.Webhook) any { return h.ID }}, Usual: "name",
	By: map[string]sqldb.Key[schemas.Webhook]{
		"name":       {SQL: "h.name", Of: func(h *schemas.Webhook) any { return h.Name }, Fold: true, Alone: true},
		"created_at": {SQL: "h.created_ns", Of: func(h *schemas.Webhook) any { return h.CreatedAt.UnixNano() }},
	},
}

// Secret signs what is sent to a webhook. It prints as nothing.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(hidden)" }

// GoString hides the secret.
func (Secret) GoString() string { return "(hidden)" }

// audited is a webhook as the audit has it, which more may read than webhooks: what follows the
// host of an address may be a secret of its receiver.
func audited(h schemas.Webhook) schemas.Webhook {
	if u, err := url.Parse(h.URL); err == nil {
		h.URL = u.Scheme + "://" + u.Host + "/…"
	}
	h.LastAt, h.LastCode, h.LastError, h.Waiting, h.Dead = time.Time{}, 0, "", 0, 0
	return h
}

func field(h *schemas.Webhook) func(string) string {
	return func(field string) string { return map[string]string{"name": h.Name}[field] }
}

// Create makes a webhook for by. One that the same request made before is returned as it is.
func (s *Store) Create(ctx context.Context, by string, h schemas.Webhook, secret Secret) (schemas.Webhook, error) {
	if err := valid(&h, secret); err != nil {
		return h, fmt.Errorf("create webhook %s: %w", h.Name, err)
	}
	h.ID, h.Revision, h.CreatedAt = sqldb.NewID(ctx), 1, s.now().UTC()
	h.UpdatedAt, h.SecretAt = h.CreatedAt, h.CreatedAt
	topics, err := json.Marshal(h.Topics)
	if err != nil {
		return h, err
	}
	err = entity.Made(ctx, s.db, &h, func(q sqldb.Queryer) ([]schemas.Webhook, error) { return list(ctx, q, `h.id=$1`, h.ID) }, func(tx *sql.Tx) error {
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM webhooks`).Scan(&n); err != nil {
			return err
		}
		if n >= maxHooks {
			return ErrMany
		}
		ns := h.CreatedAt.UnixNano()
		if _, err := tx.ExecContext(ctx, `INSERT INTO webhooks (id, name, url, topics, secret, secret_ns, active, revision, created_ns, updated_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,1,$6,$6)`, h.ID, h.Name, h.URL, string(topics), string(secret), ns, h.Active); err != nil {
			return entity.Explain(err, "webhooks", field(&h))
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Create, Kind, h.Name, nil, audited(h))
	})
	if err != nil {
		return h, fmt.Errorf("create webhook %s: %w", h.Name, err)
	}
	return h, nil
}

// Update changes a webhook for by; a secret of "" stays as it is. A revision that is not 0 is the
// one that the change was made of.
func (s *Store) Update(ctx context.Context, by, ref string, revision int64, secret Secret, change func(*schemas.Webhook)) (h schemas.Webhook, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := list(ctx, tx, asked, ref)
		if h, err = entity.Only(found, err, Kind, ref); err != nil {
			return err
		}
		if err := entity.Check(revision, h.Revision); err != nil {
			return err
		}
		before := h
		before.Topics = slices.Clone(h.Topics)
		change(&h)
		check := secret
		if check == "" {
			check = unchanged
		}
		if err := valid(&h, check); err != nil {
			return err
		}
		if secret == "" && h.Name == before.Name && h.URL == before.URL && h.Active == before.Active && slices.Equal(h.Topics, before.Topics) {
			return nil
		}
		h.Revision++
		h.UpdatedAt = entity.Later(s.now(), before.UpdatedAt)
		if secret != "" {
			h.SecretAt = h.UpdatedAt
		}
		topics, err := json.Marshal(h.Topics)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `UPDATE webhooks SET name=$1, url=$2, topics=$3, active=$4, secret=CASE WHEN CAST($5 AS TEXT)='' THEN secret ELSE $5 END,
secret_ns=$6, revision=$7, updated_ns=$8 WHERE id=$9 AND revision=$10`,
			h.Name, h.URL, string(topics), h.Active, string(secret), h.SecretAt.UnixNano(), h.Revision, h.UpdatedAt.UnixNano(), h.ID, before.Revision)
		if err := entity.One(res, err); err != nil {
			return entity.Explain(err, "webhooks", field(&h))
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Update, Kind, h.Name, audited(before), audited(h))
	})
	if err != nil {
		return h, fmt.Errorf("update webhook %s: %w", ref, err)
	}
	return h, nil
}

// Delete removes a webhook with all of its deliveries.
func (s *Store) Delete(ctx context.Context, by, ref string, revision int64) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := list(ctx, tx, asked, ref)
		h, err := entity.Only(found, err, Kind, ref)
		if err != nil {
			return err
		}
		if err := entity.Check(revision, h.Revision); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM webhooks WHERE id=$1 AND revision=$2`, h.ID, h.Revision)
		if err := entity.One(res, err); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM deliveries WHERE webhook_id=$1`, h.ID); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, Kind, h.Name, audited(h), nil)
	})
	if err != nil {
		return fmt.Errorf("delete webhook %s: %w", ref, err)
	}
	return nil
}

var (
	topic  = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)*(\.\*)?$`)
	loop   = regexp.MustCompile(`^(localhost|127(\.[0-9]{1,3}){3}|::1)$`)
	signer = regexp.MustCompile(`^whsec_[A-Za-z0-9+/]{32,86}={0,2}$`)
)

// unchanged is a secret of the right form, in place of one that stays.
const unchanged Secret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// valid checks what a person gave of a webhook.
func valid(h *schemas.Webhook, secret Secret) error {
	if h.Topics == nil {
		h.Topics = []string{}
	}
	for _, t := range h.Topics {
		if !topic.MatchString(t) {
			return &entity.FieldError{Field: "topics", Value: t, Reason: "is neither a type such as allocation.ready nor all below one, such as allocation.*"}
		}
	}
	// Nothing of an address is repeated: it may hold what is secret.
	bad := func(why string) error { return &entity.FieldError{Field: "url", Value: "…", Reason: why} }
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return bad("is no address of the form https://host/path")
	case u.User != nil:
		return bad("has a user or password: what is sent is signed instead")
	case u.Fragment != "":
		return bad("has a fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !loop.MatchString(u.Hostname())):
		return bad("is neither https nor http on this machine")
	}
	if _, err := Key(secret); err != nil {
		return &entity.FieldError{Field: "secret", Value: "…", Reason: err.Error()}
	}
	return nil
}

var errSecret = errors.New("is not whsec_ with 24 to 64 bytes in base64 (as of: openssl rand -base64 32)")

// Matches reports whether a type of notices is one of the topics; no topics are all.
func Matches(topics []string, kind string) bool {
	return len(topics) == 0 || slices.ContainsFunc(topics, func(t string) bool {
		all, wild := strings.CutSuffix(t, "*")
		return t == kind || wild && strings.HasPrefix(kind, all)
	})
}
