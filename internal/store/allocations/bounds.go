package allocations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// QuotaError is a request that is beyond a quota.
type QuotaError struct {
	Quota             string // id
	Team, Pool        string // names, "" as in [schemas.Quota]
	What              string // gpus, servers, or seconds
	Limit, Used, Asks int64
}

// Error implements error.
func (e *QuotaError) Error() string {
	of := "of each team without one of its own"
	if e.Team != "" {
		of = "of team " + e.Team
	}
	if e.Pool != "" {
		of += " in pool " + e.Pool
	}
	if e.What == "seconds" {
		if e.Asks < 0 {
			return fmt.Sprintf("the quota %s needs an end, at most %s after the start", of, time.Duration(e.Limit)*time.Second)
		}
		return fmt.Sprintf("the quota %s is %s for one allocation, and %s were asked for", of, time.Duration(e.Limit)*time.Second, time.Duration(e.Asks)*time.Second)
	}
	return fmt.Sprintf("the quota %s is %d %s at a time: %d are used, and %d more were asked for", of, e.Limit, e.What, e.Used, e.Asks)
}

// ReservedError is a request that would take what is kept for another team.
type ReservedError struct {
	Pool             string
	What             string // gpus or servers
	Free, Kept, Asks int64
}

// Error implements error.
func (e *ReservedError) Error() string {
	return fmt.Sprintf("%d %s were asked for of pool %s, where %d are free in that time and %d are reserved for other teams", e.Asks, e.What, e.Pool, e.Free, e.Kept)
}

// amount is how much of a pool.
type amount struct {
	gpus, servers int64
	touched       int64 // servers of which any part is asked for
}

// bounds holds a request against quotas and reservations, which it locks, and returns its parts
// in the order in which servers are locked.
func (s *Store) bounds(ctx context.Context, tx *sql.Tx, d *Draft, first, last int64) ([]part, error) {
	parts, asks, err := weigh(ctx, tx, d)
	if err != nil {
		return nil, err
	}
	if err := s.within(ctx, tx, d.User, d.Team, "", asks, first, last); err != nil {
		return nil, err
	}
	return parts, s.spare(ctx, tx, d.Team, "", asks, first, last)
}

// weigh finds the pools of what is asked for, and how much that is of each.
func weigh(ctx context.Context, tx *sql.Tx, d *Draft) ([]part, map[string]amount, error) {
	parts, asks := make([]part, 0, len(d.Parts)), make(map[string]amount)
	for _, p := range d.Parts {
		type of struct {
			pool string
			gpus int64
		}
		found, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (o of, err error) { return o, rows.Scan(&o.pool, &o.gpus) },
			`SELECT pool_id, (SELECT count(*) FROM gpus WHERE server_id=servers.id AND present) FROM servers WHERE id=$1`, p.Server)
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			return nil, nil, &ConflictError{p.Server, WhyGone}
		}
		a := asks[found[0].pool]
		if d.Exclusive {
			a.gpus, a.servers = a.gpus+found[0].gpus, a.servers+1
		} else {
			a.gpus += int64(len(p.GPUs))
		}
		a.touched++
		asks[found[0].pool] = a
		parts = append(parts, part{p, found[0].pool})
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.Server, b.Server) })
	return parts, asks, nil
}

const quotaColumns = `q.id, COALESCE(q.team_id,''), COALESCE(t.name,''), COALESCE(q.pool_id,''), COALESCE(p.name,''), q.max_gpus, q.max_servers,
COALESCE(q.max_seconds,0), q.created_ns, q.updated_ns, q.revision FROM quotas q LEFT JOIN teams t ON t.id=q.team_id LEFT JOIN pools p ON p.id=q.pool_id`

type quota struct {
	schemas.Quota
	team, pool string // ids
}

func scanQuota(rows *sql.Rows) (q quota, err error) {
	var created, updated int64
	err = rows.Scan(&q.ID, &q.team, &q.Team, &q.pool, &q.Pool, &q.MaxGPUs, &q.MaxServers, &q.MaxDuration, &created, &updated, &q.Revision)
	q.CreatedAt, q.UpdatedAt = time.Unix(0, created).UTC(), time.Unix(0, updated).UTC()
	return q, err
}

var quotaOrder = sqldb.Order[quota]{
	ID: sqldb.Key[quota]{SQL: "q.id", Of: func(q *quota) any { return q.ID }}, Usual: "created_at",
	By: map[string]sqldb.Key[quota]{
		"created_at": {SQL: "q.created_ns", Of: func(q *quota) any { return q.CreatedAt.UnixNano() }},
		"updated_at": {SQL: "q.updated_ns", Of: func(q *quota) any { return q.UpdatedAt.UnixNano() }},
	},
}

// within holds a request against the quotas that bind who asks. What their other allocations
// have at any moment of that time counts, but not what is being cleaned. An allocation that is
// changed does not count against itself.
func (s *Store) within(ctx context.Context, tx *sql.Tx, user, team, but string, asks map[string]amount, first, last int64) error {
	all, err := sqldb.Rows(ctx, tx, scanQuota, `SELECT `+quotaColumns+` WHERE q.team_id IS NULL OR q.team_id=$1 ORDER BY q.id`, team)
	if err != nil {
		return err
	}
	own := make(map[string]bool)
	for _, q := range all {
		own[q.pool] = own[q.pool] || q.team != ""
	}
	for _, q := range all {
		var a amount
		for pool, of := range asks {
			if q.pool == "" || q.pool == pool {
				a.gpus, a.servers = a.gpus+of.gpus, a.servers+of.servers
			}
		}
		if q.team == "" && own[q.pool] || a == (amount{}) {
			continue
		}
		refuse := func(what string, limit, used, asks int64) error {
			return &QuotaError{q.ID, q.Team, q.Pool, what, limit, used, asks}
		}
		if seconds := (last - first) / int64(time.Second); q.MaxDuration > 0 && seconds > q.MaxDuration {
			if last == open {
				seconds = -1
			}
			return refuse("seconds", q.MaxDuration, 0, seconds)
		}
		if q.MaxGPUs == nil && q.MaxServers == nil {
			continue
		}
		if _, err := tx.ExecContext(ctx, `UPDATE quotas SET fence=fence+1 WHERE id=$1`, q.ID); err != nil {
			return err
		}
		var used amount
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(CASE WHEN c.gpu_id IS NULL THEN 0 ELSE 1 END),0), COALESCE(SUM(CASE WHEN c.gpu_id IS NULL THEN 1 ELSE 0 END),0)
FROM allocations a JOIN allocation_claims c ON c.allocation_id=a.id JOIN servers s ON s.id=c.server_id
WHERE a.status IN ('pending','active') AND a.id<>$1 AND c.state IN ('booked','held') AND c.from_ns<$2 AND (c.until_ns>$3 OR c.state='held')
AND (CAST($4 AS TEXT)<>'' AND a.team_id=$4 OR CAST($4 AS TEXT)='' AND a.team_id IS NULL AND a.user_id=$5) AND (CAST($6 AS TEXT)='' OR s.pool_id=$6)`,
			but, last, first, team, user, q.pool).Scan(&used.gpus, &used.servers); err != nil {
			return fmt.Errorf("count what is used of a quota: %w", err)
		}
		if q.MaxGPUs != nil && used.gpus+a.gpus > *q.MaxGPUs {
			return refuse("gpus", *q.MaxGPUs, used.gpus, a.gpus)
		}
		if q.MaxServers != nil && used.servers+a.servers > *q.MaxServers {
			return refuse("servers", *q.MaxServers, used.servers, a.servers)
		}
	}
	return nil
}

// spare is nil where what is left of each pool is enough for the reservations of other teams
// that meet the time. Reservations that do not meet one another are counted together, and a
// claim as if it lasted all the time: what is kept is never too little.
func (s *Store) spare(ctx context.Context, tx *sql.Tx, team, but string, asks map[string]amount, first, last int64) error {
	pools := make([]string, 0, len(asks))
	for pool := range asks {
		pools = append(pools, pool)
	}
	slices.Sort(pools)
	for _, pool := range pools {
		type kept struct {
			team     string
			amount   amount
			from, to int64
		}
		others, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (k kept, err error) {
			return k, rows.Scan(&k.team, &k.amount.gpus, &k.amount.servers, &k.from, &k.to)
		}, `SELECT team_id, gpus, servers, from_ns, until_ns FROM reservations WHERE pool_id=$1 AND team_id<>$2 AND from_ns<$3 AND until_ns>$4`, pool, team, last, first)
		if err != nil {
			return err
		}
		if len(others) == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, `UPDATE pools SET fence=fence+1 WHERE id=$1`, pool); err != nil {
			return err
		}
		lo, hi := others[0].from, others[0].to
		for _, o := range others {
			lo, hi = min(lo, o.from), max(hi, o.to)
		}
		free, err := freeOf(ctx, tx, pool, but, lo, hi, s.now().UnixNano())
		if err != nil {
			return err
		}
		var keep amount
		for _, o := range others {
			has, err := usedBy(ctx, tx, pool, o.team, o.from, o.to)
			if err != nil {
				return err
			}
			// A whole server that is reserved keeps its GPUs too, which are counted by servers alone.
			keep.gpus, keep.servers = keep.gpus+max(0, o.amount.gpus-has.gpus), keep.servers+max(0, o.amount.servers-has.servers)
		}
		var name string
		if err := tx.QueryRowContext(ctx, `SELECT name FROM pools WHERE id=$1`, pool).Scan(&name); err != nil {
			return err
		}
		a := asks[pool]
		if keep.gpus > 0 && free.gpus-a.gpus < keep.gpus {
			return &ReservedError{name, "gpus", free.gpus, keep.gpus, a.gpus}
		}
		if keep.servers > 0 && free.servers-a.touched < keep.servers {
			return &ReservedError{name, "servers", free.servers, keep.servers, a.touched}
		}
	}
	return nil
}

// freeOf counts what of a pool could be given and meets no claim in a time. What is held beyond
// its end is not free now.
func freeOf(ctx context.Context, tx *sql.Tx, pool, but string, first, last, now int64) (a amount, err error) {
	const idle = `NOT EXISTS (SELECT 1 FROM allocation_claims c WHERE c.server_id=s.id AND c.allocation_id<>$2 AND c.state<>'released'
AND c.from_ns<$3 AND (c.until_ns>$4 OR c.state IN ('held','cleaning') AND $4<=$5) AND `
	const given = ` s.pool_id=$1 AND s.present AND s.status='ready' AND s.hold=''`
	if err = tx.QueryRowContext(ctx, `SELECT count(*) FROM gpus g JOIN servers s ON s.id=g.server_id WHERE`+given+` AND g.present AND g.status<>'error' AND `+
		idle+`(c.gpu_id IS NULL OR c.gpu_id=g.id))`, pool, but, last, first, now).Scan(&a.gpus); err == nil {
		err = tx.QueryRowContext(ctx, `SELECT count(*) FROM servers s WHERE`+given+` AND `+idle+`1=1)`, pool, but, last, first, now).Scan(&a.servers)
	}
	if err != nil {
		return a, fmt.Errorf("count what is free of a pool: %w", err)
	}
	return a, nil
}

func usedBy(ctx context.Context, tx *sql.Tx, pool, team string, first, last int64) (a amount, err error) {
	err = tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(CASE WHEN c.gpu_id IS NULL THEN 0 ELSE 1 END),0), COALESCE(SUM(CASE WHEN c.gpu_id IS NULL THEN 1 ELSE 0 END),0)
FROM allocations a JOIN allocation_claims c ON c.allocation_id=a.id JOIN servers s ON s.id=c.server_id
WHERE a.team_id=$1 AND s.pool_id=$2 AND c.state IN ('booked','held') AND c.from_ns<$3 AND c.until_ns>$4`, team, pool, last, first).Scan(&a.gpus, &a.servers)
	return a, err
}

func quotas(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Quota, error) {
	found, err := sqldb.Rows(ctx, q, scanQuota, `SELECT `+quotaColumns+` WHERE `+where, args...)
	out := make([]schemas.Quota, len(found))
	for i := range found {
		out[i] = found[i].Quota
	}
	return out, err
}

// Quota returns the quota with an id, and what is used of it, for a viewer: those of other teams
// are not there.
func (s *Store) Quota(ctx context.Context, who Viewer, id string) (Used, error) {
	found, err := sqldb.Rows(ctx, s.db, scanQuota, `SELECT `+quotaColumns+` WHERE q.id=$1 AND ($2 OR q.team_id IS NULL OR `+teams("q.team_id", 3)+`)`,
		id, who.All, who.User)
	if _, err := entity.Only(found, err, KindQuota, id); err != nil {
		return Used{}, err
	}
	used, err := s.used(ctx, who, found)
	return entity.Only(used, err, KindQuota, id)
}

// Quotas lists the quotas that a viewer may know of and what is used of them, in the order of
// their ids.
func (s *Store) Quotas(ctx context.Context, who Viewer, sort, after string, limit int) ([]Used, string, error) {
	tail, args, err := quotaOrder.Tail(sort, after, limit, who.All, who.User)
	if err != nil {
		return nil, "", fmt.Errorf("list quotas: %w", err)
	}
	found, err := sqldb.Rows(ctx, s.db, scanQuota, `SELECT `+quotaColumns+` WHERE ($1 OR q.team_id IS NULL OR `+teams("q.team_id", 2)+`)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list quotas: %w", err)
	}
	found, next := quotaOrder.Page(found, sort, limit)
	used, err := s.used(ctx, who, found)
	return used, next, err
}

// refer finds what is named, or the error of the field that names it; "" is NULL.
func refer(ctx context.Context, tx *sql.Tx, table, field, ref string) (id sql.NullString, name string, err error) {
	if ref == "" {
		return id, "", nil
	}
	err = tx.QueryRowContext(ctx, `SELECT id, name FROM `+table+` WHERE id=$1 OR lower(name)=lower($1)`, ref).Scan(&id, &name)
	if errors.Is(err, sql.ErrNoRows) {
		return id, "", &entity.FieldError{Field: field, Value: ref, Reason: "is not there"}
	}
	return id, name, err
}

func quotaField(q *schemas.Quota) func(string) string {
	return func(field string) string {
		if field == "team_pool" {
			return strings.Trim(q.Team+" "+q.Pool, " ")
		}
		return ""
	}
}

// ofBody names the field by which a caller said for whom a quota is: what has to be another for each is
// team and pool together.
func ofBody(err error, q *schemas.Quota) error {
	if field := (*entity.FieldError)(nil); errors.As(err, &field) && field.Field == "team_pool" {
		if field.Field = "team"; q.Team == "" {
			field.Field = "pool"
		}
	}
	return err
}

// PutQuota makes a quota for by, or changes the one of an id, held against a revision that is
// not 0.
func (s *Store) PutQuota(ctx context.Context, by, id string, revision int64, change func(*schemas.Quota)) (q schemas.Quota, err error) {
	verb := entity.Update
	if id == "" {
		id, verb = sqldb.NewID(ctx), entity.Create
	}
	known := func(r sqldb.Queryer) ([]schemas.Quota, error) {
		if verb == entity.Update {
			return nil, nil
		}
		return quotas(ctx, r, `q.id=$1`, id)
	}
	err = entity.Made(ctx, s.db, &q, known, func(tx *sql.Tx) error {
		var before any
		now := s.now().UTC()
		if verb == entity.Update {
			found, err := quotas(ctx, tx, `q.id=$1`, id)
			if q, err = entity.Only(found, err, KindQuota, id); err != nil {
				return err
			}
			if err := entity.Check(revision, q.Revision); err != nil {
				return err
			}
			before = q
		} else {
			q = schemas.Quota{ID: id, CreatedAt: now}
		}
		change(&q)
		q.Revision, q.UpdatedAt = q.Revision+1, entity.Later(now, q.UpdatedAt)
		team, name, err := refer(ctx, tx, "teams", "team", q.Team)
		if err != nil {
			return err
		}
		q.Team = name
		pool, name, err := refer(ctx, tx, "pools", "pool", q.Pool)
		if err != nil {
			return err
		}
		q.Pool = name
		seconds := sql.NullInt64{Int64: q.MaxDuration, Valid: q.MaxDuration != 0}
		if _, err := tx.ExecContext(ctx, `INSERT INTO quotas (id, team_id, pool_id, max_gpus, max_servers, max_seconds, revision, created_ns, updated_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9) ON CONFLICT (id) DO UPDATE SET team_id=excluded.team_id, pool_id=excluded.pool_id, max_gpus=excluded.max_gpus,
  max_servers=excluded.max_servers, max_seconds=excluded.max_seconds, revision=excluded.revision, updated_ns=excluded.updated_ns`,
			q.ID, team, pool, q.MaxGPUs, q.MaxServers, seconds, q.Revision, q.CreatedAt.UnixNano(), q.UpdatedAt.UnixNano()); err != nil {
			return ofBody(entity.Explain(err, "quotas", quotaField(&q)), &q)
		}
		return entity.Audit(ctx, tx, now, by, verb, KindQuota, title(q), before, q)
	})
	if err != nil {
		return q, fmt.Errorf("%s quota: %w", verb, err)
	}
	return q, nil
}

// title is what a quota is called in the audit.
func title(q schemas.Quota) string {
	team, pool := "every team", "all pools"
	if q.Team != "" {
		team = q.Team
	}
	if q.Pool != "" {
		pool = q.Pool
	}
	return team + " in " + pool
}

// DeleteQuota removes a quota for by.
func (s *Store) DeleteQuota(ctx context.Context, by, id string, revision int64) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := quotas(ctx, tx, `q.id=$1`, id)
		q, err := entity.Only(found, err, KindQuota, id)
		if err != nil {
			return err
		}
		if err := entity.Check(revision, q.Revision); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM quotas WHERE id=$1`, id); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindQuota, title(q), q, nil)
	})
	if err != nil {
		return fmt.Errorf("delete quota: %w", err)
	}
	return nil
}
