package correlator

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/run"
	"auspex/internal/store/corrections"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Config is the configuration of the correlator in a running system.
type Config struct {
	// Tick is how often the clock moves on while no alert comes.
	Tick time.Duration `yaml:"tick"`
	// Faults are folders with fault records of the site's own, in the form of the
	// built-in ones, which they join or replace.
	Faults []string `yaml:"faults"`
	// Site names the site of incidents whose cause the inventory does not place.
	Site string `yaml:"site"`
	// CloseAfter says how long an incident without news stays open.
	CloseAfter CloseAfter `yaml:"close_after"`
}

// DefaultConfig returns what suits a fleet of any size.
func DefaultConfig() Config {
	return Config{Tick: 100 * time.Millisecond, CloseAfter: DefaultCloseAfter()}
}

// Validate names the key at fault.
func (c Config) Validate() error {
	if c.Tick < 10*time.Millisecond || c.Tick > 10*time.Second {
		return fmt.Errorf("tick: %s is not between 10ms and 10s", c.Tick)
	}
	if err := c.CloseAfter.Validate(); err != nil {
		return fmt.Errorf("close_after.%w", err)
	}
	if len(c.Faults) > 0 {
		if _, err := propagation.Load(c.Faults...); err != nil {
			return fmt.Errorf("faults: %w", err)
		}
	}
	return nil
}

// Inventory is what there is to reason about.
type Inventory interface {
	Snapshot() *cmdb.Snapshot
}

const (
	pruneEvery   = time.Minute
	pruneAtOnce  = 200              // events in one statement
	publishWait  = 10 * time.Second // for one attempt to publish
	storeWait    = 10 * time.Second // for one transaction
	evidenceKept = 256              // events of one sign, of those that an incident lists
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 5 * time.Second
	// storeAttempts is how often a decision is stored before Run gives up: only
	// what was stored says what is so, when the answer to a commit was lost.
	storeAttempts = 5
)

// Correlator reads the topic alerts and publishes each change of an incident to
// the topic incidents, after it has stored it. What it needs to go on after a
// crash is in the relational store: nothing is lost, and a change that is
// published twice is the same in both copies.
type Correlator struct {
	cfg   Config
	inv   Inventory
	db    *sqldb.DB
	bus   bus.Bus
	log   *slog.Logger
	model *propagation.Model

	records    *propagation.Model // model without what was learned
	unread     func(*schemas.Topology) []string
	learned    Learned
	parameters int64     // version of what was learned in model
	relearned  time.Time // when it was last asked for

	mu        sync.Mutex
	engine    *Engine
	version   uint64
	resources uint64
	positions map[int]int64
	journal   []schemas.Event      // taken in, not stored yet
	repairs   map[string]time.Time // of open incidents, not stored yet
	stored    map[string]bool      // events of the journal
	unstored  []schemas.Incident
	seq       int64 // of the journal and the outbox
	handled   time.Time
	pruned    time.Time

	alerts    *prometheus.CounterVec
	changes   prometheus.Counter
	publishes *prometheus.CounterVec
	open      prometheus.Gauge
	signs     prometheus.Gauge
	suspects  prometheus.Gauge
	windows   prometheus.Gauge
	weighed   prometheus.Counter
	last      Stats
}

// New returns a correlator; it does nothing before Run.
func New(cfg Config, inv Inventory, db *sqldb.DB, b bus.Bus, log *slog.Logger, reg prometheus.Registerer) *Correlator {
	c := &Correlator{
		cfg: cfg, inv: inv, db: db, bus: b, log: log, positions: map[int]int64{}, stored: map[string]bool{}, repairs: map[string]time.Time{},
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_correlator_alerts_total", Help: "Alerts read, by what became of them.",
		}, []string{"result"}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_correlator_incident_changes_total", Help: "Changes of incidents that were stored.",
		}),
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_correlator_publishes_total", Help: "Attempts to publish changes of incidents, by result.",
		}, []string{"result"}),
		open:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_correlator_incidents_open", Help: "Incidents that are open."}),
		signs:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_correlator_signs", Help: "Signs of faults that are remembered."}),
		suspects: prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_correlator_suspects", Help: "Faults that are held possible."}),
		windows: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_correlator_maintenance_windows", Help: "Maintenance windows that are open or to come, by resource.",
		}),
		weighed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_correlator_decisions_total", Help: "Groups of signs that were weighed.",
		}),
	}
	if reg != nil {
		reg.MustRegister(c.alerts, c.changes, c.publishes, c.open, c.signs, c.suspects, c.windows, c.weighed)
	}
	return c
}

// Name names the component.
func (c *Correlator) Name() string { return "correlator" }

// Run restores what was known, then follows the topic alerts until ctx is done.
func (c *Correlator) Run(ctx context.Context, ready func()) error {
	var err error
	if c.records, err = propagation.Load(c.cfg.Faults...); err != nil {
		return err
	}
	c.mu.Lock()
	c.model, c.parameters = c.adapted(ctx, c.records)
	err = c.restore(ctx)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	ready()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.tick(ctx); err != nil && ctx.Err() == nil {
			cancel(err)
		}
	})
	wg.Go(func() {
		err := c.bus.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicOutcomes, Group: "correlator", FromNewest: true}, c.acted)
		if err != nil && ctx.Err() == nil {
			cancel(err)
		}
	})
	err = c.bus.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicAlerts, Group: "correlator", MaxBatch: 1024,
		Start: func(_ context.Context, partition int) (int64, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.positions[partition], nil
		},
	}, c.handle)
	cause := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	if err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Prepare reads the fault records of another configuration. What it
// returns decides anew by it, from the events that the open decisions rest on,
// while Run runs.
func (c *Correlator) Prepare(_ context.Context, cfg Config) (apply func(context.Context) error, err error) {
	model, err := propagation.Load(cfg.Faults...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		adapted, v := c.adapted(ctx, model)
		if err := c.swap(ctx, adapted, cfg.CloseAfter); err != nil {
			return err
		}
		c.records, c.parameters = model, v
		return nil
	}, nil
}

// handle takes in a batch of alerts.
func (c *Correlator) handle(ctx context.Context, msgs []bus.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refresh()
	var letters []bus.Message
	for i := range msgs {
		m := &msgs[i]
		if m.Offset < c.positions[m.Partition] {
			continue
		}
		c.positions[m.Partition] = m.Offset + 1
		var a schemas.Alert
		if err := checkAlert(m.Value, &a); err != nil {
			c.alerts.WithLabelValues("bad").Inc()
			letters = append(letters, wire.Letter(*m, err, time.Now()))
			continue
		}
		if c.engine.Add(&a.Event) {
			c.alerts.WithLabelValues("taken").Inc()
			c.journal = append(c.journal, a.Event)
		} else {
			c.alerts.WithLabelValues("ignored").Inc()
		}
	}
	c.handled = time.Now()
	if len(letters) > 0 {
		if err := c.publish(ctx, letters...); err != nil {
			return err
		}
	}
	return c.commit(ctx)
}

// acted takes in what control does: a server that we restart is not crashed.
func (c *Correlator) acted(ctx context.Context, msgs []bus.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range msgs {
		var a schemas.Action
		if err := json.Unmarshal(msgs[i].Value, &a); err != nil {
			c.log.Warn("action not readable", "partition", msgs[i].Partition, "offset", msgs[i].Offset, "error", err)
			c.alerts.WithLabelValues("bad").Inc()
			continue
		}
		if a.State == schemas.ActionDone && a.Mode != schemas.ModeDryRun && a.Mode != schemas.ModeObserve && repairs(a.Kind) {
			if c.engine.Repaired(a.Incident, a.Time) {
				c.repairs[a.Incident] = a.Time
			}
		}
		if ev, ok := planned(&a); ok && c.engine.Add(&ev) {
			c.journal = append(c.journal, ev)
		}
	}
	return c.commit(ctx)
}

// repairs says whether an action of a kind leaves nothing of what was wrong.
func repairs(kind string) bool {
	switch kind {
	case "reset_gpu", "reload_driver", "restart_service", "reboot", "power_cycle", "ac_cycle", "reset_bmc", "reinstall", "replace":
		return true
	}
	return false
}

// planned returns the event that an action amounts to, once it runs.
func planned(a *schemas.Action) (schemas.Event, bool) {
	switch a.Kind {
	case "reboot", "power_cycle", "ac_cycle", "install", "reinstall":
	default:
		return schemas.Event{}, false
	}
	if a.State != schemas.ActionRunning || a.Mode == schemas.ModeDryRun || a.Mode == schemas.ModeObserve || a.Server == "" || a.Time.IsZero() {
		return schemas.Event{}, false
	}
	return schemas.Event{
		ID: schemas.EventID("action", a.ID, strconv.Itoa(a.Attempt)), Time: a.Time, Observed: a.Time, Source: schemas.SourceAgent,
		Resource: a.Server, Type: schemas.EventHostReboot, Code: "planned", Severity: schemas.SeverityInfo,
		Message: a.Kind + " by action " + a.ID,
	}, true
}

func checkAlert(doc []byte, a *schemas.Alert) error {
	if err := json.Unmarshal(doc, a); err != nil {
		return err
	}
	switch {
	case a.ID == "":
		return errors.New("alert without id")
	case a.Resource == "":
		return errors.New("alert without resource")
	case a.Type == "":
		return errors.New("alert without type")
	case a.Observed.IsZero() && a.Time.IsZero():
		return errors.New("alert without time")
	case a.Severity.Rank() < 0:
		return fmt.Errorf("alert with severity %q", a.Severity)
	}
	return nil
}

// tick moves the clock while nothing comes.
func (c *Correlator) tick(ctx context.Context) error {
	t := time.NewTicker(c.cfg.Tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			c.mu.Lock()
			c.refresh()
			// While a backlog is read, the time of its events is the time.
			if now.Sub(c.handled) >= c.cfg.Tick {
				c.engine.Advance(now.UTC())
			}
			if now.Sub(c.relearned) >= learnEvery {
				c.relearned = now
				c.relearn(ctx)
			}
			err := c.commit(ctx)
			if err == nil && now.Sub(c.pruned) >= pruneEvery {
				c.pruned = now
				err = c.prune(ctx)
			}
			c.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
}

// SetUnread sets what says which servers of an inventory, by id, no collector reads from inside (without it, and where it
// returns none, all are taken to be read); it is asked again when the inventory changes. It may be called while Run runs.
func (c *Correlator) SetUnread(of func(*schemas.Topology) []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread = of; c.engine != nil {
		t := c.inv.Snapshot().Topology()
		c.engine.SetUnread(of(&t))
	}
}

// refresh takes over changes of the inventory.
func (c *Correlator) refresh() {
	s := c.inv.Snapshot()
	if s.Version == c.version {
		return
	}
	t := s.Topology()
	if s.Generation != c.resources {
		c.engine.SetTopology(&t)
		if c.unread != nil {
			c.engine.SetUnread(c.unread(&t))
		}
	} else {
		c.engine.SetWorkloads(t.Workloads)
	}
	c.version, c.resources = s.Version, s.Generation
}

// commit stores what was decided and what it rests on, then publishes it.
func (c *Correlator) commit(ctx context.Context) error {
	changes := latest(append(c.unstored, c.engine.Drain()...))
	c.unstored = changes
	for i := range changes {
		if changes[i].Site == "" {
			changes[i].Site = c.cfg.Site
		}
	}
	c.count()
	if len(changes) == 0 && len(c.journal) == 0 && len(c.repairs) == 0 {
		return nil
	}
	// What an incident held that has closed would open it again after a restart.
	var over []string
	if slices.ContainsFunc(changes, func(i schemas.Incident) bool { return i.Closed != nil }) {
		over = c.over()
	}
	msgs := make([]bus.Message, len(changes))
	first := c.seq + 1
	for attempt := 0; ; attempt++ {
		seq := c.seq
		err := c.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := c.putJournal(ctx, tx, &seq); err != nil {
				return err
			}
			if err := unjournal(ctx, tx, over); err != nil {
				return err
			}
			for id, at := range c.repairs {
				if _, err := tx.ExecContext(ctx, `INSERT INTO correlator_repairs (incident, at_ns) VALUES ($1,$2)
ON CONFLICT (incident) DO UPDATE SET at_ns=excluded.at_ns`, id, at.UnixNano()); err != nil {
					return err
				}
			}
			first = seq + 1
			for i := range changes {
				if changes[i].Closed != nil {
					if _, err := tx.ExecContext(ctx, `DELETE FROM correlator_repairs WHERE incident=$1`, changes[i].ID); err != nil {
						return err
					}
				}
				if err := errors.Join(records.PutIncidentIn(ctx, tx, changes[i]), corrections.PutCauseIn(ctx, tx, &changes[i])); err != nil {
					return err
				}
				doc, err := json.Marshal(&changes[i])
				if err != nil {
					return err
				}
				seq++
				if _, err := tx.ExecContext(
					ctx, `INSERT INTO correlator_outbox (seq, incident, doc) VALUES ($1,$2,$3)`, seq, changes[i].ID, string(doc),
				); err != nil {
					return err
				}
				msgs[i] = bus.Message{Topic: schemas.TopicIncidents, Key: changes[i].ID, Value: doc}
			}
			return nil
		})
		if err == nil {
			c.seq = seq
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if attempt+1 == storeAttempts {
			return fmt.Errorf("store incidents: %w", err)
		}
		c.log.Warn("incidents not stored", "error", err, "attempt", attempt+1)
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	for i := range c.journal {
		c.stored[c.journal[i].ID] = true
	}
	for _, id := range over {
		delete(c.stored, id)
	}
	c.journal, c.unstored = c.journal[:0], nil
	clear(c.repairs)
	c.changes.Add(float64(len(changes)))
	if len(changes) == 0 {
		return nil
	}
	if err := c.publish(ctx, msgs...); err != nil {
		return err
	}
	return c.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM correlator_outbox WHERE seq BETWEEN $1 AND $2`, first, c.seq)
		return err
	})
}

// latest keeps the last state of each incident, in the order of the last changes.
func latest(all []schemas.Incident) []schemas.Incident {
	seen := make(map[string]bool, len(all))
	out := all[len(all):]
	for i := len(all) - 1; i >= 0; i-- {
		if !seen[all[i].ID] {
			seen[all[i].ID] = true
			out = append(out, all[i])
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

func (c *Correlator) inTx(ctx context.Context, f func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return c.db.InTx(ctx, func(tx *sql.Tx) error { return f(ctx, tx) })
}

// putJournal stores the events that were taken in, and the positions.
func (c *Correlator) putJournal(ctx context.Context, tx *sql.Tx, seq *int64) error {
	const rows = 100
	for from := 0; from < len(c.journal); from += rows {
		chunk := c.journal[from:min(from+rows, len(c.journal))]
		var q strings.Builder
		q.WriteString(`INSERT INTO correlator_journal (seq, event, doc) VALUES `)
		args := make([]any, 0, 3*len(chunk))
		for i := range chunk {
			doc, err := json.Marshal(&chunk[i])
			if err != nil {
				return err
			}
			*seq++
			if i > 0 {
				q.WriteByte(',')
			}
			fmt.Fprintf(&q, "($%d,$%d,$%d)", len(args)+1, len(args)+2, len(args)+3)
			args = append(args, *seq, chunk[i].ID, string(doc))
		}
		if _, err := tx.ExecContext(ctx, q.String(), args...); err != nil {
			return err
		}
	}
	for p, next := range c.positions {
		if _, err := tx.ExecContext(ctx, `INSERT INTO correlator_positions (part, next_offset) VALUES ($1,$2)
ON CONFLICT (part) DO UPDATE SET next_offset=excluded.next_offset`, p, next); err != nil {
			return err
		}
	}
	return nil
}

// publish tries until it succeeds or ctx is done.
func (c *Correlator) publish(ctx context.Context, msgs ...bus.Message) error {
	for attempt := 0; ; attempt++ {
		try, cancel := context.WithTimeout(ctx, publishWait)
		err := c.bus.Publish(try, msgs...)
		cancel()
		if err == nil {
			c.publishes.WithLabelValues("ok").Inc()
			return nil
		}
		c.publishes.WithLabelValues("error").Inc()
		if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
			return fmt.Errorf("publish incidents: %w", err)
		}
		c.log.Warn("incidents not published", "error", err, "attempt", attempt+1)
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, attempt int) error {
	return run.Sleep(ctx, min(backoffFirst<<min(attempt, 10), backoffLast))
}

// over returns the events that no open decision rests on, of those that are stored or are about to be.
func (c *Correlator) over() (ids []string) {
	live := c.engine.Live()
	for id := range c.stored {
		if !live[id] {
			ids = append(ids, id)
		}
	}
	for i := range c.journal {
		if id := c.journal[i].ID; !live[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// prune forgets the events that no open decision rests on.
func (c *Correlator) prune(ctx context.Context) error {
	for chunk := range slices.Chunk(c.over(), pruneAtOnce) {
		if err := c.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return unjournal(ctx, tx, chunk) }); err != nil {
			return fmt.Errorf("prune correlator journal: %w", err)
		}
		for _, id := range chunk {
			delete(c.stored, id)
		}
	}
	return nil
}

// unjournal takes events out of the journal.
func unjournal(ctx context.Context, tx *sql.Tx, ids []string) error {
	for chunk := range slices.Chunk(ids, pruneAtOnce) {
		var q strings.Builder
		q.WriteString(`DELETE FROM correlator_journal WHERE event IN (`)
		args := make([]any, len(chunk))
		for i, id := range chunk {
			if i > 0 {
				q.WriteByte(',')
			}
			q.WriteByte('$')
			q.WriteString(strconv.Itoa(i + 1))
			args[i] = id
		}
		q.WriteByte(')')
		if _, err := tx.ExecContext(ctx, q.String(), args...); err != nil {
			return err
		}
	}
	return nil
}

// restore reads back what was stored and publishes what may not have been; c.mu
// is held.
func (c *Correlator) restore(ctx context.Context) error {
	s := c.inv.Snapshot()
	t := s.Topology()
	engine := NewEngine(c.model, &t, incidentID())
	engine.SetCloseAfter(c.cfg.CloseAfter)
	engine.SetEvidence(evidenceKept)
	if c.unread != nil {
		engine.SetUnread(c.unread(&t))
	}
	err := scan(ctx, c.db, `SELECT part, next_offset FROM correlator_positions`, func(rows *sql.Rows) error {
		var p int
		var next int64
		if err := rows.Scan(&p, &next); err != nil {
			return err
		}
		c.positions[p] = next
		return nil
	})
	if err != nil {
		return err
	}
	var events []schemas.Event
	err = scan(ctx, c.db, `SELECT seq, doc FROM correlator_journal ORDER BY seq`, func(rows *sql.Rows) error {
		var doc string
		var ev schemas.Event
		if err := rows.Scan(&c.seq, &doc); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(doc), &ev); err != nil {
			return err
		}
		events = append(events, ev)
		c.stored[ev.ID] = true
		return nil
	})
	if err != nil {
		return err
	}
	var open []schemas.Incident
	st := records.New(c.db)
	for f := (records.Filter{Status: records.StatusOpen, Limit: 500}); ; {
		page, next, err := st.Incidents(ctx, f)
		if err != nil {
			return fmt.Errorf("restore incidents: %w", err)
		}
		open = append(open, page...)
		if f.After = next; next == "" {
			break
		}
	}
	var pending []bus.Message
	var last int64
	err = scan(ctx, c.db, `SELECT seq, incident, doc FROM correlator_outbox ORDER BY seq`, func(rows *sql.Rows) error {
		var id, doc string
		if err := rows.Scan(&last, &id, &doc); err != nil {
			return err
		}
		pending = append(pending, bus.Message{Topic: schemas.TopicIncidents, Key: id, Value: []byte(doc)})
		return nil
	})
	if err != nil {
		return err
	}
	c.seq = max(c.seq, last)
	if len(pending) > 0 {
		if err := c.publish(ctx, pending...); err != nil {
			return err
		}
		if err := c.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM correlator_outbox WHERE seq <= $1`, last)
			return err
		}); err != nil {
			return fmt.Errorf("clear correlator outbox: %w", err)
		}
	}
	engine.Restore(events, open)
	err = scan(ctx, c.db, `SELECT incident, at_ns FROM correlator_repairs`, func(rows *sql.Rows) error {
		var id string
		var at int64
		err := rows.Scan(&id, &at)
		engine.Repaired(id, time.Unix(0, at).UTC())
		return err
	})
	if err != nil {
		return err
	}
	c.engine, c.last = engine, Stats{}
	c.version, c.resources = s.Version, s.Generation
	return nil
}

func scan(ctx context.Context, db *sqldb.DB, query string, each func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("restore correlator: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("restore correlator: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("restore correlator: %w", err)
	}
	return nil
}

// incidentID names an incident after its first event, so that the same events
// give the same incident when they are read again.
func incidentID() func(string) string {
	used := map[string]int{}
	return func(first string) string {
		id := "i-" + schemas.EventID("incident", "", first)[:10]
		used[id]++
		if n := used[id]; n > 1 {
			return id + "-" + strconv.Itoa(n)
		}
		return id
	}
}

func (c *Correlator) count() {
	s := c.engine.Stats()
	c.open.Set(float64(s.Open))
	c.signs.Set(float64(s.Signs))
	c.suspects.Set(float64(s.Suspects))
	c.windows.Set(float64(s.Windows))
	c.weighed.Add(float64(s.Solved - c.last.Solved))
	c.last = s
}
