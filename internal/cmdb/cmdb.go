// Package cmdb is the inventory: resources, how they hang together, and which
// workload ran where and when. It is kept in the relational store; readers use an
// immutable snapshot in memory and are told when there is a newer one.
package cmdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Config says how the inventory is kept.
type Config struct {
	// Site is the site that the ids of resources are of (schemas.SpaceOf).
	Site string `yaml:"-"`
	// Poll is how often a change by another process is looked for.
	Poll time.Duration `yaml:"poll"`
	// KeepWorkloads is how long a workload is remembered after it ended.
	KeepWorkloads time.Duration `yaml:"keep_workloads"`
	// Source names who brings what is imported from the file. Sources add up: an
	// import removes only what its own source brought and no other brings.
	Source string `yaml:"source"`
	// Bounds refuse an import, by hand, at the start or by a reload.
	Bounds `yaml:",inline"`
	// KeepVersions is how many imports of each source can be restored.
	KeepVersions int `yaml:"keep_versions"`
}

// DefaultConfig looks for changes four times a second and remembers workloads for a week and
// ten imports.
func DefaultConfig() Config {
	return Config{
		Poll: 250 * time.Millisecond, KeepWorkloads: 7 * 24 * time.Hour,
		Source: DefaultSource, Bounds: DefaultBounds(), KeepVersions: 10,
	}
}

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	if c.Poll <= 0 {
		return fmt.Errorf("poll is %s; it must be positive", c.Poll)
	}
	if c.KeepWorkloads <= 0 {
		return fmt.Errorf("keep_workloads is %s; it must be positive", c.KeepWorkloads)
	}
	if c.KeepVersions < 1 {
		return fmt.Errorf("keep_versions: want at least 1, got %d", c.KeepVersions)
	}
	return c.Bounds.Validate()
}

// Inventory keeps the current snapshot. A nil database keeps it in memory alone.
type Inventory struct {
	cfg      Config
	db       *sqldb.DB
	log      *slog.Logger
	follower Follower // nil where nobody follows
	snap     atomic.Pointer[Snapshot]

	mu      sync.Mutex // one change at a time
	stored  version
	sources []brought // what each source brings, where there is no database
	wholly  bool      // all of the inventory is looked at for each addition: a test compares
	changed chan struct{}
	watch   sync.Mutex

	problems  prometheus.Counter
	reloads   *prometheus.CounterVec
	resources prometheus.Gauge
	running   prometheus.Gauge
}

type version struct{ resources, workloads int64 }

// New returns an empty inventory. It performs no I/O.
func New(cfg Config, db *sqldb.DB, log *slog.Logger, reg prometheus.Registerer) *Inventory {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	i := &Inventory{
		cfg: cfg, db: db, log: log, changed: make(chan struct{}),
		problems: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_inventory_bad_records_total", Help: "Records of imported inventories that could not be used.",
		}),
		reloads: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "auspex_inventory_reloads_total", Help: "Changes by other processes that were read."}, []string{"result"},
		),
		resources: prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_inventory_resources", Help: "Resources in the inventory."}),
		running:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_inventory_workloads", Help: "Workloads remembered."}),
	}
	if reg != nil {
		reg.MustRegister(i.problems, i.reloads, i.resources, i.running)
	}
	i.snap.Store(newSnapshot(newGraph(schemas.Topology{}, schemas.SpaceOf(cfg.Site)), map[string]schemas.Workload{}, 0, 0))
	return i
}

// FromTopology returns an inventory in memory that holds the good records of a
// topology; for commands that work on files, and for tests.
func FromTopology(t schemas.Topology) (*Inventory, []Problem) {
	i := New(DefaultConfig(), nil, nil, nil)
	r, err := i.Import(context.Background(), Draft{Topology: t}, ImportOptions{Bounds: NoBounds()})
	if err != nil { // without a database nothing can fail
		return i, append(r.Problems, Problem{Record: "inventory", Reason: err.Error()})
	}
	return i, r.Problems
}

// Snapshot returns the inventory as it is now.
func (i *Inventory) Snapshot() *Snapshot { return i.snap.Load() }

// Changed returns a channel that is closed when there is a newer snapshot. Take
// it before the snapshot, so that no change is missed.
func (i *Inventory) Changed() <-chan struct{} {
	i.watch.Lock()
	defer i.watch.Unlock()
	return i.changed
}

func (i *Inventory) publish(s *Snapshot) {
	i.snap.Store(s)
	i.resources.Set(float64(s.Len()))
	i.running.Set(float64(len(s.workloads)))
	i.watch.Lock()
	close(i.changed)
	i.changed = make(chan struct{})
	i.watch.Unlock()
}

// Name names the component.
func (i *Inventory) Name() string { return "inventory" }

// Run loads the inventory and follows changes that other processes make.
func (i *Inventory) Run(ctx context.Context, ready func()) error {
	if err := i.Open(ctx); err != nil {
		return err
	}
	ready()
	tick := time.NewTicker(i.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if i.db == nil {
			continue
		}
		if err := i.poll(ctx); err != nil && ctx.Err() == nil {
			i.reloads.WithLabelValues("error").Inc()
			i.log.Warn("cannot read the inventory; the previous one stays in force", "error", err)
		}
	}
}

// Open loads what the relational store holds. It may be called again.
func (i *Inventory) Open(ctx context.Context) error {
	if i.db == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.load(ctx); err != nil {
		return err
	}
	return i.followed(ctx)
}

func (i *Inventory) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	i.mu.Lock()
	defer i.mu.Unlock()
	v, err := readVersion(ctx, i.db)
	if err != nil || v == i.stored {
		return err
	}
	if err := i.load(ctx); err != nil {
		return err
	}
	i.reloads.WithLabelValues("ok").Inc()
	return nil
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readVersion(ctx context.Context, q querier) (v version, err error) {
	err = q.QueryRowContext(ctx, `SELECT resources, workloads FROM inventory_version WHERE id=1`).Scan(&v.resources, &v.workloads)
	if err != nil {
		return v, fmt.Errorf("read inventory version: %w", err)
	}
	return v, nil
}

func (i *Inventory) load(ctx context.Context) error {
	var t schemas.Topology
	var v version
	var whole bool // most changes are of workloads alone
	old := i.Snapshot()
	g, generation := old.graph, old.Generation
	err := i.db.InView(ctx, func(tx *sql.Tx) (err error) {
		if v, err = readVersion(ctx, tx); err != nil {
			return err
		}
		if whole = v.resources != i.stored.resources || generation == 0; whole {
			if g, t, err = i.catchUp(ctx, tx, old, v.resources); err != nil {
				return err
			}
		}
		return scan(ctx, tx, `SELECT id, resources, start_ns, end_ns, attrs FROM inventory_workloads`, func(rows *sql.Rows) error {
			var w schemas.Workload
			var resources, attrs string
			var start, end int64
			if err := rows.Scan(&w.ID, &resources, &start, &end, &attrs); err != nil {
				return err
			}
			w.Start, w.End = fromNano(start), fromNano(end)
			if err := errors.Join(unmarshal(resources, &w.Resources), unmarshal(attrs, &w.Attrs)); err != nil {
				return err
			}
			t.Workloads = append(t.Workloads, w)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("load inventory: %w", err)
	}
	if whole {
		generation++
		if g == nil {
			g = newGraph(t, old.space)
		}
	}
	jobs := make(map[string]schemas.Workload, len(t.Workloads))
	for _, w := range t.Workloads {
		jobs[w.ID] = w
	}
	i.stored = v
	i.publish(newSnapshot(g, jobs, old.Version+1, generation))
	return nil
}

// catchUp returns the graph with what other processes have changed, or all that there is.
func (i *Inventory) catchUp(ctx context.Context, q querier, old *Snapshot, version int64) (g *graph, t schemas.Topology, err error) {
	if old.Generation > 0 && version > i.stored.resources {
		names, known, err := missed(ctx, q, i.stored.resources, version)
		if err != nil {
			return nil, t, err
		}
		if known {
			g, err = caughtUp(ctx, q, old.graph, names)
			return g, t, err
		}
	}
	t, err = scanTopology(ctx, q)
	return nil, t, err
}

func scanResource(rows *sql.Rows) (r schemas.Resource, err error) {
	var attrs string
	if err := rows.Scan(&r.ID, &r.Kind, &r.Parent, &attrs); err != nil {
		return r, err
	}
	return r, unmarshal(attrs, &r.Attrs)
}

func scanTopology(ctx context.Context, q querier) (t schemas.Topology, err error) {
	err = scan(ctx, q, `SELECT id, kind, parent, attrs FROM inventory_resources ORDER BY id`, func(rows *sql.Rows) error {
		r, err := scanResource(rows)
		t.Resources = append(t.Resources, r)
		return err
	})
	if err != nil {
		return t, err
	}
	return t, scan(ctx, q, `SELECT from_id, to_id, kind FROM inventory_links ORDER BY from_id, to_id, kind`, func(rows *sql.Rows) error {
		var l schemas.Link
		err := rows.Scan(&l.From, &l.To, &l.Kind)
		t.Links = append(t.Links, l)
		return err
	})
}

func scan(ctx context.Context, q querier, query string, each func(*sql.Rows) error) error {
	return scanWith(ctx, q, query, nil, each)
}

func scanWith(ctx context.Context, q querier, query string, args []any, each func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func unmarshal(text string, v any) error {
	if text == "" || text == "null" {
		return nil
	}
	return json.Unmarshal([]byte(text), v)
}

func marshal(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func fromNano(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func toNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// bump counts the change for other processes. A change of resources is refused
// where this process does not know the one before; workloads of others are read by
// the next poll.
func (i *Inventory) bump(ctx context.Context, tx *sql.Tx, resources, workloads bool) error {
	add := version{}
	if resources {
		add.resources = 1
	}
	if workloads {
		add.workloads = 1
	}
	var now version
	if err := tx.QueryRowContext(ctx, `UPDATE inventory_version SET resources=resources+$1, workloads=workloads+$2 WHERE id=1
RETURNING resources, workloads`, add.resources, add.workloads).Scan(&now.resources, &now.workloads); err != nil {
		return fmt.Errorf("count the change: %w", err)
	}
	if resources && now.resources != i.stored.resources+1 {
		return errStale
	}
	if resources {
		i.stored.resources = now.resources
	}
	if now.workloads == i.stored.workloads+add.workloads {
		i.stored.workloads = now.workloads
	}
	return nil
}

func differ(old, now []schemas.Link) (add, drop []schemas.Link) {
	have := make(map[schemas.Link]bool, len(old))
	for _, l := range old {
		have[l] = true
	}
	for _, l := range now {
		if !have[l] {
			add = append(add, l)
		}
		delete(have, l)
	}
	for l := range have {
		drop = append(drop, l)
	}
	return add, drop
}

func sameWorkload(a, b schemas.Workload) bool {
	if !a.Start.Equal(b.Start) || !a.End.Equal(b.End) || !maps.Equal(a.Attrs, b.Attrs) || len(a.Resources) != len(b.Resources) {
		return false
	}
	for i := range a.Resources {
		if a.Resources[i] != b.Resources[i] {
			return false
		}
	}
	return true
}

// writeResources puts resources; where it is the first import nothing is there that they could meet.
func writeResources(ctx context.Context, db *sqldb.DB, tx *sql.Tx, first bool, put []schemas.Resource, said map[string]string, remove []string) error {
	for _, id := range remove {
		if _, err := tx.ExecContext(ctx, `DELETE FROM inventory_resources WHERE id=$1`, id); err != nil {
			return err
		}
	}
	rows := make([][]any, len(put))
	for k, r := range put {
		attrs, err := marshal(r.Attrs)
		if err != nil {
			return fmt.Errorf("resource %s: %w", r.ID, err)
		}
		rows[k] = []any{r.ID, r.Kind, r.Parent, attrs, said[r.ID]}
	}
	met := ""
	if !first {
		met = `ON CONFLICT (id) DO UPDATE SET kind=excluded.kind, parent=excluded.parent, attrs=excluded.attrs, said=excluded.said`
	}
	err := db.Insert(ctx, tx, `INSERT INTO inventory_resources (id, kind, parent, attrs, said)`, "(?,?,?,?,?)", rows, met)
	if err != nil {
		return fmt.Errorf("write resources: %w", err)
	}
	return nil
}

func writeLinks(ctx context.Context, db *sqldb.DB, tx *sql.Tx, first bool, add []schemas.Link, said map[schemas.Link]string, drop []schemas.Link) error {
	for _, l := range drop {
		if _, err := tx.ExecContext(
			ctx, `DELETE FROM inventory_links WHERE from_id=$1 AND to_id=$2 AND kind=$3`, l.From, l.To, l.Kind,
		); err != nil {
			return err
		}
	}
	rows := make([][]any, len(add))
	for k, l := range add {
		rows[k] = []any{l.From, l.To, l.Kind, said[l]}
	}
	met := ""
	if !first {
		met = `ON CONFLICT DO NOTHING`
	}
	if err := db.Insert(ctx, tx, `INSERT INTO inventory_links (from_id, to_id, kind, said)`, "(?,?,?,?)", rows, met); err != nil {
		return fmt.Errorf("write links: %w", err)
	}
	return nil
}

func writeWorkloads(ctx context.Context, tx *sql.Tx, put []schemas.Workload) error {
	for _, w := range put {
		resources, err := marshal(w.Resources)
		if err != nil {
			return err
		}
		attrs, err := marshal(w.Attrs)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO inventory_workloads (id, resources, start_ns, end_ns, attrs) VALUES ($1,$2,$3,$4,$5)
ON CONFLICT (id) DO UPDATE SET resources=excluded.resources, start_ns=excluded.start_ns, end_ns=excluded.end_ns, attrs=excluded.attrs`,
			w.ID, resources, toNano(w.Start), toNano(w.End), attrs); err != nil {
			return fmt.Errorf("workload %s: %w", w.ID, err)
		}
	}
	return nil
}

// PutWorkloads adds workloads or updates those of the same id, and forgets those
// that ended long ago.
func (i *Inventory) PutWorkloads(ctx context.Context, ws ...schemas.Workload) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.Snapshot()
	jobs := maps.Clone(old.workloads)
	var put []schemas.Workload
	for _, w := range ws {
		if w.ID == "" {
			return errors.New("put workload: id is missing")
		}
		if have, ok := jobs[w.ID]; !ok || !sameWorkload(have, w) {
			put = append(put, w)
			jobs[w.ID] = w
		}
	}
	if len(put) == 0 {
		return nil
	}
	before := time.Now().Add(-i.cfg.KeepWorkloads)
	for id, w := range jobs {
		if !w.End.IsZero() && w.End.Before(before) {
			delete(jobs, id)
		}
	}
	if i.db != nil {
		err := i.db.InTx(ctx, func(tx *sql.Tx) error {
			if err := writeWorkloads(ctx, tx, put); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `DELETE FROM inventory_workloads WHERE end_ns > 0 AND end_ns < $1`, before.UnixNano()); err != nil {
				return err
			}
			return i.bump(ctx, tx, false, true)
		})
		if err != nil {
			return fmt.Errorf("put workloads: %w", err)
		}
	}
	i.publish(newSnapshot(old.graph, jobs, old.Version+1, old.Generation))
	return nil
}
