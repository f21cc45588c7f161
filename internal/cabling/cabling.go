// Package cabling holds what ports see at the other ends of their cables against the inventory. What
// they have told last is kept, so that it is held against the inventory again when that changes. A
// cable that they contradict is a conflict, for a person to decide; it is settled when both say the
// same again. That a port sees nothing contradicts nothing.
package cabling

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/cmdb"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

const (
	pause = time.Second     // between two looks at all that is kept
	retry = 5 * time.Second // after one that failed
)

// Runner holds neighbours against the inventory. Its methods may be called at the same time.
type Runner struct {
	db  *sqldb.DB
	inv *cmdb.Inventory
	log *slog.Logger

	opened, errors prometheus.Counter
	ports          *prometheus.GaugeVec

	mu     sync.Mutex
	judged map[at]string
	known  *names // of the inventory that was looked at last
}

// at is a port, as its device calls it.
type at struct{ device, port string }

// New returns a runner; it performs no I/O.
func New(db *sqldb.DB, inv *cmdb.Inventory, log *slog.Logger, reg prometheus.Registerer) *Runner {
	r := &Runner{
		db: db, inv: inv, log: log, judged: map[at]string{},
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_cabling_conflicts_total", Help: "Conflicts about cables that what ports see has opened.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_cabling_errors_total", Help: "Times that what ports see could not be held against the inventory, since its store failed; it is done again.",
		}),
		ports: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_cabling_ports",
			Help: "Ports that have told a neighbour, by what the inventory says of it: agrees, contradicts, unlisted (it has no such cable), unknown_port, unknown_neighbor, ambiguous.",
		}, []string{"verdict"}),
	}
	for _, v := range verdicts {
		r.ports.WithLabelValues(v)
	}
	if reg != nil {
		reg.MustRegister(r.opened, r.errors, r.ports)
	}
	return r
}

// Seen keeps all that some ports of a device see now, and holds it against the inventory.
func (r *Runner) Seen(ctx context.Context, device string, neighbors []schemas.Neighbor) error {
	of := map[at][]schemas.Neighbor{}
	for _, n := range neighbors {
		k := at{device, n.Port}
		of[k] = append(of[k], n)
	}
	now := time.Now()
	return r.judge(ctx, now, func(_ context.Context, tx *sql.Tx) (map[at][]schemas.Neighbor, error) {
		for k, seen := range of {
			text, err := json.Marshal(seen)
			if err != nil {
				return nil, err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO port_neighbors (device, port, neighbors, seen_ns) VALUES ($1,$2,$3,$4)
ON CONFLICT (device, port) DO UPDATE SET neighbors=excluded.neighbors, seen_ns=excluded.seen_ns`, k.device, k.port, string(text), now.UnixNano()); err != nil {
				return nil, err
			}
		}
		return of, nil
	}, false)
}

// Run holds what is kept against the inventory, now and after each change of its resources or
// links, until ctx is done.
func (r *Runner) Run(ctx context.Context) {
	for looked := uint64(0); ; {
		changed := r.inv.Changed()
		wait := pause
		if g := r.inv.Snapshot().Generation; g != looked {
			if err := r.all(ctx); err == nil {
				looked = g
			} else if ctx.Err() == nil {
				r.log.Error("cables wait for the inventory's store; trying again", "error", err)
				wait, changed = retry, nil
			}
		}
		pace := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pace.Stop()
			return
		case <-pace.C:
		}
		if changed != nil {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

// all holds everything that is kept against the inventory. What is kept of a device that is no more
// is forgotten: one that comes again tells it anew.
func (r *Runner) all(ctx context.Context) error {
	snap := r.inv.Snapshot()
	if len(snap.Resources()) == 0 {
		return nil
	}
	return r.judge(ctx, time.Now(), func(ctx context.Context, tx *sql.Tx) (map[at][]schemas.Neighbor, error) {
		of, gone := map[at][]schemas.Neighbor{}, map[string]bool{}
		_, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (struct{}, error) {
			var k at
			var text string
			if err := rows.Scan(&k.device, &k.port, &text); err != nil {
				return struct{}{}, err
			}
			if _, there := snap.Resource(k.device); !there {
				gone[k.device] = true
				return struct{}{}, nil
			}
			var seen []schemas.Neighbor
			err := json.Unmarshal([]byte(text), &seen)
			of[k] = seen
			return struct{}{}, err
		}, `SELECT device, port, neighbors FROM port_neighbors`)
		if err != nil {
			return nil, err
		}
		for device := range gone {
			if _, err := tx.ExecContext(ctx, `DELETE FROM port_neighbors WHERE device=$1`, device); err != nil {
				return nil, err
			}
		}
		return of, nil
	}, true)
}

// names are those of an inventory, made once of each.
func (r *Runner) names(snap *cmdb.Snapshot) *names {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || r.known.snap != snap {
		r.known = &names{snap: snap}
	}
	return r.known
}

// judge holds what ports see against the inventory, and opens and settles conflicts in the
// transaction that reads it. Of everything, it settles also what is about ports that are no more.
func (r *Runner) judge(ctx context.Context, now time.Time, read func(context.Context, *sql.Tx) (map[at][]schemas.Neighbor, error), everything bool) error {
	snap := r.inv.Snapshot()
	known := r.names(snap)
	var judged map[at]string
	opened := 0
	err := r.db.InTx(ctx, func(tx *sql.Tx) error {
		open, err := conflicts.Open(ctx, tx, schemas.ConflictCable) // before what is kept: whoever opens one has kept it
		if err != nil {
			return err
		}
		of, err := read(ctx, tx)
		if err != nil {
			return err
		}
		judged, opened = make(map[at]string, len(of)), 0
		agreed := map[string]bool{}
		var all []schemas.Conflict
		for k, seen := range of {
			verdict, local, c := judge(known, k.device, k.port, seen)
			judged[k] = verdict
			if verdict == agrees {
				agreed[local] = true
			}
			if c != nil {
				all = append(all, *c)
			}
		}
		for i := range open {
			_, there := snap.Resource(open[i].Resource)
			why := conflicts.WhyAgree
			if everything && !there {
				why = conflicts.WhyGone
			} else if !agreed[open[i].Resource] {
				continue
			}
			if err := conflicts.Close(ctx, tx, now, open[i].ID, why); err != nil {
				return err
			}
		}
		opened, err = conflicts.Seen(ctx, tx, now, all...)
		return err
	})
	if err != nil {
		r.errors.Inc()
		return fmt.Errorf("hold cables against the inventory: %w", err)
	}
	r.opened.Add(float64(opened))
	r.mu.Lock()
	defer r.mu.Unlock()
	if everything {
		r.judged = judged
	} else {
		maps.Copy(r.judged, judged)
	}
	count := map[string]int{}
	for _, v := range r.judged {
		count[v]++
	}
	for _, v := range verdicts {
		r.ports.WithLabelValues(v).Set(float64(count[v]))
	}
	return nil
}
