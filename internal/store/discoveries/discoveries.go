// Package discoveries keeps sweeps for board controllers: what is to be asked, how far that is, and
// what has answered. Whoever works on a sweep holds a lease of it, so that another goes on where
// they die.
package discoveries

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"auspex/internal/reasons"
	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Kind is what rows of the audit are about.
const Kind = "discovery"

const (
	maxLive = 16                  // sweeps that wait or run
	keep    = 90 * 24 * time.Hour // those that have ended
)

// Errors of sweeps.
var (
	ErrMany  = fmt.Errorf("%d sweeps wait or run already", maxLive)
	ErrEnded = errors.New("the sweep has ended")
	// ErrLost is of a sweep that somebody else works on by now, or that was cancelled.
	ErrLost = errors.New("the sweep is another's, or was cancelled")
)

// Store reads and writes sweeps, in the tables of migration 0095.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

const selectDiscoveries = `SELECT id, ranges, redfish_ports, ipmi_ports, credential, status, reason, addresses, asked, created_by, created_ns, started_ns, ended_ns,
(SELECT COUNT(*) FROM discovery_finds f WHERE f.discovery_id=d.id AND f.result='found'),
(SELECT COUNT(*) FROM discovery_finds f WHERE f.discovery_id=d.id AND f.result='refused'),
(SELECT COUNT(*) FROM discovery_finds f WHERE f.discovery_id=d.id AND f.result='unreadable'),
(SELECT COUNT(DISTINCT f.number) FROM discovery_finds f WHERE f.discovery_id=d.id AND f.number<d.asked) FROM discoveries d`

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func scan(rows *sql.Rows) (d schemas.Discovery, err error) {
	var ranges, redfish, ipmi string
	var created, started, ended int64
	var answered int
	if err := rows.Scan(&d.ID, &ranges, &redfish, &ipmi, &d.Credential, &d.Status, &d.Reason, &d.Addresses, &d.Asked, &d.CreatedBy, &created, &started, &ended,
		&d.Found, &d.Refused, &d.Unreadable, &answered); err != nil {
		return d, err
	}
	d.CreatedAt, d.StartedAt, d.CompletedAt, d.Silent = at(created), at(started), at(ended), d.Asked-answered
	return d, errors.Join(json.Unmarshal([]byte(ranges), &d.Ranges), json.Unmarshal([]byte(redfish), &d.RedfishPorts), json.Unmarshal([]byte(ipmi), &d.IPMIPorts))
}

func get(ctx context.Context, q sqldb.Queryer, id string) (schemas.Discovery, error) {
	found, err := sqldb.Rows(ctx, q, scan, selectDiscoveries+` WHERE d.id=$1`, id)
	return entity.Only(found, err, Kind, id)
}

// Get returns a sweep.
func (s *Store) Get(ctx context.Context, id string) (schemas.Discovery, error) {
	return get(ctx, s.db, id)
}

// Start keeps a sweep that waits. One that the same request made before is returned as it is.
func (s *Store) Start(ctx context.Context, by string, d schemas.Discovery) (schemas.Discovery, error) {
	d.ID, d.Status, d.CreatedBy, d.CreatedAt = sqldb.NewID(ctx), schemas.DiscoveryWaiting, by, s.now().UTC()
	known := func(q sqldb.Queryer) ([]schemas.Discovery, error) {
		return sqldb.Rows(ctx, q, scan, selectDiscoveries+` WHERE d.id=$1`, d.ID)
	}
	err := entity.Made(ctx, s.db, &d, known, func(tx *sql.Tx) error {
		var live int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM discoveries WHERE status IN ('waiting', 'running')`).Scan(&live); err != nil {
			return err
		} else if live >= maxLive {
			return ErrMany
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM discoveries WHERE ended_ns>0 AND ended_ns<$1`, s.now().Add(-keep).UnixNano()); err != nil {
			return err
		}
		ranges, err1 := json.Marshal(d.Ranges)
		redfish, err2 := json.Marshal(d.RedfishPorts)
		ipmi, err3 := json.Marshal(d.IPMIPorts)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO discoveries (id, ranges, redfish_ports, ipmi_ports, credential, status, addresses, created_by, created_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)`, d.ID, string(ranges), string(redfish), string(ipmi), d.Credential, d.Status, d.Addresses, by, d.CreatedAt.UnixNano()); err != nil {
			return entity.Explain(err, "discoveries", func(string) string { return d.ID })
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Create, Kind, d.ID, nil, d)
	})
	if err != nil {
		return d, fmt.Errorf("start a sweep: %w", err)
	}
	return d, nil
}

// List returns a page of sweeps of a status, "" is all, the newest first where no order is asked for,
// and the cursor of the following page.
func (s *Store) List(ctx context.Context, status, sort, after string, limit int) (out []schemas.Discovery, next string, err error) {
	tail, args, err := order.Tail(sort, after, limit, status)
	if err != nil {
		return nil, "", fmt.Errorf("list sweeps: %w", err)
	}
	out, err = sqldb.Rows(ctx, s.db, scan, selectDiscoveries+` WHERE (CAST($1 AS TEXT)='' OR d.status=$1)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list sweeps: %w", err)
	}
	out, next = order.Page(out, sort, limit)
	return out, next, nil
}

var order = sqldb.Order[schemas.Discovery]{
	ID: sqldb.Key[schemas.Discovery]{SQL: "d.id", Of: func(d *schemas.Discovery) any { return d.ID }}, Usual: "-created_at",
	By: map[string]sqldb.Key[schemas.Discovery]{
		"created_at": {SQL: "d.created_ns", Of: func(d *schemas.Discovery) any { return d.CreatedAt.UnixNano() }},
		"addresses":  {SQL: "d.addresses", Of: func(d *schemas.Discovery) any { return int64(d.Addresses) }},
	},
}

const selectFinds = `SELECT id, discovery_id, number, address, protocol, result, message, seen_ns, hardware FROM discovery_finds`

func scanFind(rows *sql.Rows) (f schemas.Find, err error) {
	var seen int64
	var hardware string
	if err := rows.Scan(&f.ID, &f.DiscoveryID, &f.Number, &f.Address, &f.Protocol, &f.Result, &f.Message, &seen, &hardware); err != nil {
		return f, err
	}
	f.SeenAt = at(seen)
	return f, json.Unmarshal([]byte(hardware), &f.Hardware)
}

// Find returns what has answered by its id.
func (s *Store) Find(ctx context.Context, id string) (schemas.Find, error) {
	found, err := sqldb.Rows(ctx, s.db, scanFind, selectFinds+` WHERE id=$1`, id)
	return entity.Only(found, err, "find", id)
}

// Seen returns what was found last at an address, host:port; [entity.ErrNone] where nothing was.
func (s *Store) Seen(ctx context.Context, address string) (schemas.Find, error) {
	found, err := sqldb.Rows(ctx, s.db, scanFind, selectFinds+` WHERE address=$1 AND result='found' ORDER BY seen_ns DESC, id LIMIT 1`, address)
	return entity.Only(found, err, "find", address)
}

// Finds returns a page of what has answered in a sweep, in the order of its addresses, and the
// cursor of the following page; a result of "" is all.
func (s *Store) Finds(ctx context.Context, id, result, after string, limit int) (out []schemas.Find, next string, err error) {
	c := sqldb.Cursor{Time: -1}
	if after != "" {
		if c, err = sqldb.ParseCursor(after); err != nil {
			return nil, "", fmt.Errorf("list what sweep %s has found: %w", id, err)
		}
	}
	out, err = sqldb.Rows(ctx, s.db, scanFind, selectFinds+` WHERE discovery_id=$1 AND (CAST($2 AS TEXT)='' OR result=$2) AND (number, id) > ($3, $4)
ORDER BY number, id LIMIT $5`, id, result, c.Time, c.ID, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list what sweep %s has found: %w", id, err)
	}
	out, next = entity.Page(out, limit, func(f *schemas.Find) string { return strconv.Itoa(f.Number) + "." + f.ID })
	return out, next, nil
}

// Answered returns the numbers of the addresses of a sweep that have answered.
func (s *Store) Answered(ctx context.Context, id string) (map[int]bool, error) {
	out := make(map[int]bool)
	_, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (n int, err error) {
		err = rows.Scan(&n)
		out[n] = true
		return n, err
	}, `SELECT number FROM discovery_finds WHERE discovery_id=$1`, id)
	if err != nil {
		return nil, fmt.Errorf("read what sweep %s has found: %w", id, err)
	}
	return out, nil
}

// Cancel ends a sweep for by; whoever works on it is told at their next step.
func (s *Store) Cancel(ctx context.Context, by, id string) (d schemas.Discovery, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		d, err = s.end(ctx, tx, by, id, "", schemas.DiscoveryCancelled, reasons.Text(reasons.CancelledBy, reasons.Args{"who": by}))
		return err
	})
	if err != nil {
		return d, fmt.Errorf("cancel sweep %s: %w", id, err)
	}
	return d, nil
}

// end moves a live sweep to its end; a holder of "" is whoever.
func (s *Store) end(ctx context.Context, tx *sql.Tx, by, id, holder, status, reason string) (d schemas.Discovery, err error) {
	before, err := get(ctx, tx, id)
	if err != nil {
		return before, err
	}
	res, err := tx.ExecContext(ctx, `UPDATE discoveries SET status=$1, reason=$2, ended_ns=$3, holder='', lease_ns=0
WHERE id=$4 AND status IN ('waiting', 'running') AND (CAST($5 AS TEXT)='' OR holder=$5)`, status, reason, s.now().UnixNano(), id, holder)
	if err := entity.One(res, err); errors.Is(err, entity.ErrChanged) {
		if holder != "" {
			return before, ErrLost
		}
		return before, ErrEnded
	} else if err != nil {
		return before, err
	}
	if d, err = get(ctx, tx, id); err != nil {
		return d, err
	}
	return d, entity.Audit(ctx, tx, s.now(), by, entity.Update, Kind, id, before, d)
}

// Take gives a sweep that nobody works on to a holder for a while, the oldest first; ok is false
// where there is none.
func (s *Store) Take(ctx context.Context, holder string, lease time.Duration) (d schemas.Discovery, ok bool, err error) {
	now := s.now()
	var id string
	err = s.db.QueryRowContext(ctx, `UPDATE discoveries SET status='running', holder=$1, lease_ns=$2, started_ns=CASE WHEN started_ns=0 THEN $3 ELSE started_ns END
WHERE id=(SELECT id FROM discoveries WHERE status IN ('waiting', 'running') AND lease_ns<$3 ORDER BY created_ns, id LIMIT 1)
AND status IN ('waiting', 'running') AND lease_ns<$3 RETURNING id`, holder, now.Add(lease).UnixNano(), now.UnixNano()).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return d, false, nil
	}
	if err == nil {
		d, err = s.Get(ctx, id)
	}
	if err != nil {
		return d, false, fmt.Errorf("take a sweep: %w", err)
	}
	return d, true, nil
}

// Note keeps how far a holder is: addresses before asked need not be asked again. What has
// answered is kept with it, and with what follows from that; with may be nil. The lease begins anew.
func (s *Store) Note(
	ctx context.Context, id, holder string, lease time.Duration, asked int, finds []schemas.Find, with func(ctx context.Context, tx *sql.Tx) error,
) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE discoveries SET asked=$1, lease_ns=$2 WHERE id=$3 AND status='running' AND holder=$4`,
			asked, s.now().Add(lease).UnixNano(), id, holder)
		if err := entity.One(res, err); errors.Is(err, entity.ErrChanged) {
			return ErrLost
		} else if err != nil {
			return err
		}
		for i := range finds {
			if err := keepFind(ctx, tx, id, &finds[i]); err != nil {
				return err
			}
		}
		if with == nil {
			return nil
		}
		return with(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("keep how far sweep %s is: %w", id, err)
	}
	return nil
}

// End ends a sweep of a holder.
func (s *Store) End(ctx context.Context, id, holder, status, reason string) (d schemas.Discovery, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		d, err = s.end(ctx, tx, "auspex", id, holder, status, reason)
		return err
	})
	if err != nil {
		return d, fmt.Errorf("end sweep %s: %w", id, err)
	}
	return d, nil
}

// Stands keeps, as a sweep that nobody has asked for, all that somewhere else is known of machines
// that the inventory does not have, within the transaction of whoever reads it there. It has no end,
// and so is not forgotten. Where nothing was ever found there is none.
func Stands(ctx context.Context, tx *sql.Tx, now time.Time, id, by, place string, finds []schemas.Find) error {
	if len(finds) == 0 {
		if _, err := tx.ExecContext(ctx, `DELETE FROM discovery_finds WHERE discovery_id=$1`, id); err != nil {
			return fmt.Errorf("keep what %s has: %w", place, err)
		}
		_, err := tx.ExecContext(ctx, `UPDATE discoveries SET asked=0 WHERE id=$1`, id)
		return err
	}
	ranges, err := json.Marshal([]string{place})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO discoveries (id, ranges, redfish_ports, ipmi_ports, credential, status, addresses, asked, created_by, created_ns)
VALUES ($1,$2,'[]','[]','','completed',$3,$3,$4,$5) ON CONFLICT (id) DO UPDATE SET addresses=excluded.addresses, asked=excluded.asked`,
		id, string(ranges), len(finds), by, now.UnixNano()); err != nil {
		return fmt.Errorf("keep what %s has: %w", place, err)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM discovery_finds WHERE discovery_id=$1`, id); err != nil {
		return fmt.Errorf("keep what %s has: %w", place, err)
	}
	for i := range finds {
		finds[i].Number = i
		if err := keepFind(ctx, tx, id, &finds[i]); err != nil {
			return fmt.Errorf("keep what %s has: %w", place, err)
		}
	}
	return nil
}

func keepFind(ctx context.Context, tx *sql.Tx, sweep string, f *schemas.Find) error {
	hardware, err := json.Marshal(f.Hardware)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO discovery_finds (id, discovery_id, number, address, protocol, result, message, seen_ns, hardware)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9) ON CONFLICT (discovery_id, number, address, protocol) DO NOTHING`,
		f.ID, sweep, f.Number, f.Address, f.Protocol, f.Result, f.Message, f.SeenAt.UnixNano(), string(hardware))
	return err
}

// Moved tells how far the sweeps are that run, so that two answers differ where one has moved.
func Moved(ctx context.Context, db sqldb.Queryer) ([]string, error) {
	return sqldb.Rows(ctx, db, func(rows *sql.Rows) (string, error) {
		var id string
		var asked, finds int64
		err := rows.Scan(&id, &asked, &finds)
		return fmt.Sprint(id, " ", asked, " ", finds), err
	}, `SELECT d.id, d.asked, (SELECT count(*) FROM discovery_finds f WHERE f.discovery_id=d.id) FROM discoveries d
WHERE d.status IN ('waiting','running') ORDER BY d.id`)
}
