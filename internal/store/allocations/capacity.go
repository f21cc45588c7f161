package allocations

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"auspex/internal/reasons"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Capacity says how much there is of each pool and who has it, and lists what is stranded: what
// nobody has, that is not on its way, and that nobody can be given.
func (s *Store) Capacity(ctx context.Context) (pools []schemas.PoolCapacity, stranded []schemas.Stranded, err error) {
	type row struct {
		pool, id, name, status, reason, hold, broken, failed string
		since, updated, brokenSince, failedSince             int64
		gpus, ill, given, cleaning                           int
		whole, repair, live                                  bool
	}
	rows, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.pool, &r.id, &r.name, &r.status, &r.reason, &r.hold, &r.since, &r.updated, &r.gpus, &r.ill, &r.broken, &r.brokenSince, &r.given,
			&r.cleaning, &r.whole, &r.repair, &r.live, &r.failed, &r.failedSince)
	}, `SELECT p.name, s.id, s.name, s.status, s.reason, s.hold, s.since_ns, s.updated_ns, COALESCE(g.n,0), COALESCE(g.ill,0), COALESCE(g.why,''),
COALESCE(g.since,0), COALESCE(c.given,0), COALESCE(c.cleaning,0), COALESCE(c.whole,0)>0,
EXISTS (SELECT 1 FROM control_cases k WHERE k.subject=s.name AND k.state='open'),
EXISTS (SELECT 1 FROM workflows w WHERE w.server_id=s.id AND w.status IN ('pending','running')),
COALESCE((SELECT max(w.reason) FROM workflows w WHERE w.server_id=s.id AND w.type='cleanup' AND w.status='failed' AND EXISTS
  (SELECT 1 FROM allocation_claims k WHERE k.allocation_id=w.allocation_id AND k.server_id=s.id AND k.state='cleaning')),''),
COALESCE((SELECT max(w.completed_ns) FROM workflows w WHERE w.server_id=s.id AND w.type='cleanup' AND w.status='failed'),0)
FROM servers s JOIN pools p ON p.id=s.pool_id
LEFT JOIN (SELECT server_id, count(*) AS n, SUM(CASE WHEN status='error' THEN 1 ELSE 0 END) AS ill, max(CASE WHEN status='error' THEN reason ELSE '' END) AS why,
  min(CASE WHEN status='error' THEN since_ns END) AS since FROM gpus WHERE present GROUP BY server_id) g ON g.server_id=s.id
LEFT JOIN (SELECT server_id, SUM(CASE WHEN state='held' AND gpu_id IS NOT NULL THEN 1 ELSE 0 END) AS given,
  SUM(CASE WHEN state='cleaning' AND gpu_id IS NOT NULL THEN 1 ELSE 0 END) AS cleaning, SUM(CASE WHEN state='held' AND gpu_id IS NULL THEN 1 ELSE 0 END) AS whole
  FROM allocation_claims WHERE state IN ('held','cleaning') GROUP BY server_id) c ON c.server_id=s.id
WHERE s.present AND s.status<>'retired' ORDER BY p.name, s.name`)
	if err != nil {
		return nil, nil, fmt.Errorf("read capacity: %w", err)
	}
	for i := range rows {
		r := &rows[i]
		if n := len(pools); n == 0 || pools[n-1].Pool != r.pool {
			pools = append(pools, schemas.PoolCapacity{Pool: r.pool})
		}
		p := &pools[len(pools)-1]
		p.Servers, p.GPUs, p.Given, p.Cleaning = p.Servers+1, p.GPUs+r.gpus, p.Given+r.given, p.Cleaning+r.cleaning
		rest := max(0, r.gpus-r.given-r.cleaning)
		x := schemas.Stranded{Server: r.name, ServerID: r.id, Pool: r.pool, GPUs: rest}
		switch {
		case r.failed != "":
			x.Why, x.Detail, x.Since, x.GPUs = schemas.StrandedCleaning, r.failed, at(r.failedSince), rest+r.cleaning
			p.Cleaning -= r.cleaning
		case r.whole || r.live: // somebody's, or on its way
		case r.repair:
			x.Why, x.Since = schemas.StrandedRepair, at(r.updated)
		case r.status != schemas.ServerReady:
			x.Why, x.Detail, x.Since = schemas.StrandedStatus, reasons.Text(reasons.Status, reasons.Args{"status": r.status}), at(r.since)
			if r.reason != "" {
				x.Detail = reasons.Text(reasons.StatusSo, reasons.Args{"status": r.status, "why": r.reason})
			}
		case r.hold != "":
			x.Why, x.Detail, x.Since = schemas.StrandedHold, r.hold, at(r.updated)
		case r.ill > 0:
			x.Why, x.Detail, x.Since, x.GPUs = schemas.StrandedGPU, r.broken, at(r.brokenSince), min(r.ill, rest)
		}
		if x.Why == "" {
			p.Free += rest
			continue
		}
		p.Stranded, p.Free = p.Stranded+x.GPUs, p.Free+max(0, rest-x.GPUs)
		stranded = append(stranded, x)
	}
	slices.SortStableFunc(stranded, func(a, b schemas.Stranded) int { return a.Since.Compare(b.Since) })
	now := s.now().UnixNano()
	kept, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (k schemas.PoolCapacity, err error) { return k, rows.Scan(&k.Pool, &k.Reserved) },
		`SELECT p.name, SUM(r.gpus + r.servers * COALESCE((SELECT max(n) FROM (SELECT count(*) AS n FROM gpus g JOIN servers s ON s.id=g.server_id
WHERE s.pool_id=p.id AND g.present GROUP BY g.server_id) most),0)) FROM reservations r JOIN pools p ON p.id=r.pool_id
WHERE r.from_ns<=$1 AND r.until_ns>$1 GROUP BY p.id, p.name`, now)
	if err != nil {
		return nil, nil, fmt.Errorf("read reservations: %w", err)
	}
	for _, k := range kept {
		if n := slices.IndexFunc(pools, func(p schemas.PoolCapacity) bool { return p.Pool == k.Pool }); n >= 0 {
			pools[n].Reserved = k.Reserved
		}
	}
	return pools, stranded, nil
}

// Force gives back what an allocation that has ended still holds, as it is: its servers are held
// back until somebody lifts that.
func (s *Store) Force(ctx context.Context, by, id string) (schemas.Allocation, error) {
	a, err := s.Get(ctx, id)
	if err != nil {
		return a, err
	}
	if a.Live() {
		return a, schemas.AllocationLife.Move(a.Status, "released")
	}
	err = s.retry(ctx, func(ctx context.Context) error {
		return s.db.InTx(ctx, func(tx *sql.Tx) error {
			servers, err := sqldb.Rows(ctx, tx, text, `SELECT DISTINCT server_id FROM allocation_claims WHERE allocation_id=$1 AND state='cleaning' ORDER BY server_id`, id)
			if err != nil {
				return err
			}
			for _, server := range servers {
				v, err := estate.Lock(ctx, tx, server)
				if err != nil {
					return err
				}
				if _, err := tx.ExecContext(ctx, `UPDATE servers SET hold=$1, hold_by=$2, revision=revision+1 WHERE id=$3 AND hold=''`,
					reasons.Text(reasons.NotCleaned, reasons.Args{"allocation": id}), by, server); err != nil {
					return err
				}
				if err := s.giveBack(ctx, tx, id, server); err != nil {
					return err
				}
				if err := entity.Audit(ctx, tx, s.now(), by, "force", Kind, id, nil, map[string]string{"server": v.Name}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return a, fmt.Errorf("force the release of allocation %s: %w", id, err)
	}
	return s.Get(ctx, id)
}

// giveBack makes what an allocation had of a locked server free.
func (s *Store) giveBack(ctx context.Context, tx *sql.Tx, id, server string) error {
	gpus, err := units(ctx, tx, id, server, schemas.ClaimCleaning)
	if err != nil {
		return err
	}
	for _, from := range []string{schemas.GPUInUse, schemas.GPUAllocated} {
		if _, err := s.estate.MoveGPUs(ctx, tx, gpus, from, schemas.GPUAvailable); err != nil {
			return err
		}
	}
	return s.claims(ctx, tx, id, server, schemas.ClaimCleaning, schemas.ClaimReleased)
}
