package discover

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bmc"
	"auspex/internal/cmdb"
	"auspex/internal/reasons"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

const (
	lookFor = time.Second      // sweeps that are new
	noteFor = time.Second      // how far one is
	lease   = 10 * time.Second // that another may take one over where nothing is noted
)

// Deps are what a runner works with.
type Deps struct {
	Sweeps    *discoveries.Store
	Inventory *cmdb.Inventory
	// Secret returns the user and the password behind a reference.
	Secret  func(ctx context.Context, ref string) (user, password string, err error)
	TLS     func() (*tls.Config, error) // whom to trust as a controller
	Gate    *bmc.Gate                   // one operation at a time on each controller
	Holder  string                      // of this process
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Runner does the sweeps that are asked for, one at a time.
type Runner struct {
	cfg  Config
	deps Deps

	addresses *prometheus.CounterVec
	conflicts prometheus.Counter
	errors    prometheus.Counter
}

// NewRunner returns a runner; it performs no I/O.
func NewRunner(cfg Config, deps Deps) *Runner {
	r := &Runner{
		cfg: cfg, deps: deps,
		addresses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_discovery_addresses_total",
			Help: "Addresses that sweeps have asked: found, refused (the credential), unreadable, silent.",
		}, []string{"result"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_discovery_conflicts_total", Help: "Conflicts with the inventory that sweeps have opened.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_discovery_errors_total", Help: "Times that a sweep stopped since its store could not be read or written; it goes on later.",
		}),
	}
	for _, result := range []string{schemas.FindFound, schemas.FindRefused, schemas.FindUnreadable, "silent"} {
		r.addresses.WithLabelValues(result)
	}
	if deps.Metrics != nil {
		deps.Metrics.MustRegister(r.addresses, r.conflicts, r.errors)
	}
	return r
}

// Run does sweeps until ctx is done. One that is cut short goes on from where it was noted, here or
// in another process.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(lookFor)
	defer tick.Stop()
	for failing := false; ; {
		d, ok, err := r.deps.Sweeps.Take(ctx, r.deps.Holder, lease)
		if ok && err == nil {
			err = r.sweep(ctx, d)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, discoveries.ErrLost) {
			r.errors.Inc()
			if !failing {
				r.deps.Log.Error("a sweep waits for its store; trying again", "error", err)
			}
		}
		if failing = err != nil; ok && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *Runner) end(ctx context.Context, d *schemas.Discovery, status, reason string) error {
	_, err := r.deps.Sweeps.End(ctx, d.ID, r.deps.Holder, status, reason)
	if err == nil {
		r.deps.Log.Info("sweep has ended", "id", d.ID, "status", status, "reason", reason)
	}
	return err
}

// answer is what came of asking an address.
type answer struct {
	number int
	finds  []schemas.Find
}

// sweep asks the addresses of a sweep that are left. Its configuration is that of this process: it
// goes nowhere else, whoever asked.
func (r *Runner) sweep(ctx context.Context, d schemas.Discovery) error {
	addresses, err := r.cfg.Plan(d.Ranges, append(d.RedfishPorts[:len(d.RedfishPorts):len(d.RedfishPorts)], d.IPMIPorts...)...)
	if err != nil {
		return r.end(ctx, &d, schemas.DiscoveryFailed, reasons.Text(reasons.NotAllowed, reasons.Args{"error": err.Error()}))
	}
	a := asker{timeout: r.cfg.Timeout, readTime: r.cfg.ReadTime}
	if a.tls, err = r.deps.TLS(); err != nil {
		return r.end(ctx, &d, schemas.DiscoveryFailed, reasons.Text(reasons.NoTrust, reasons.Args{"error": err.Error()}))
	}
	if d.Credential != "" {
		if a.user, a.password, err = r.deps.Secret(ctx, d.Credential); err != nil {
			return r.end(ctx, &d, schemas.DiscoveryFailed, reasons.Text(reasons.NoCredential, reasons.Args{"credential": d.Credential}))
		}
	}
	known := &seen{serials: map[string]schemas.Find{}}
	done, err := r.before(ctx, d.ID, known)
	if err != nil {
		return err
	}
	for n := range min(d.Asked, len(addresses)) {
		done[n] = true
	}
	var left []int // done is the collector's from here on
	for n := range addresses {
		if !done[n] {
			left = append(left, n)
		}
	}
	index := NewIndex(r.deps.Inventory.Snapshot())
	a.turn = func(ctx context.Context, protocol, address string) (func(), error) {
		server := index.At(protocol, address)
		if server == "" || r.deps.Gate == nil {
			return func() {}, nil
		}
		return r.deps.Gate.Acquire(ctx, server)
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	todo, answers := make(chan int), make(chan answer)
	all.Go(func() {
		defer close(todo)
		pace := time.NewTicker(time.Duration(float64(time.Second) / r.cfg.Rate))
		defer pace.Stop()
		for _, n := range left {
			select {
			case todo <- n:
			case <-ctx.Done():
				return
			}
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
		}
	})
	for range r.cfg.Workers {
		all.Go(func() {
			for n := range todo {
				finds, err := a.ask(ctx, addresses[n], d.RedfishPorts, d.IPMIPorts)
				if err != nil {
					return
				}
				select {
				case answers <- answer{n, finds}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return r.collect(ctx, &d, addresses, done, answers, known)
}

// before reads what a sweep has found up to now.
func (r *Runner) before(ctx context.Context, id string, known *seen) (done map[int]bool, err error) {
	done = make(map[int]bool)
	for after := ""; ; {
		finds, next, err := r.deps.Sweeps.Finds(ctx, id, "", after, 1000)
		if err != nil {
			return nil, err
		}
		for i := range finds {
			done[finds[i].Number] = true
			known.twice(&finds[i])
		}
		if after = next; next == "" {
			return done, nil
		}
	}
}

// collect notes what comes of the addresses of a sweep, what answers at once and silence every
// second, until all have been asked.
func (r *Runner) collect(
	ctx context.Context, d *schemas.Discovery, addresses []netip.Addr, done map[int]bool, answers <-chan answer, known *seen,
) error {
	asked := 0
	for done[asked] {
		asked++
	}
	tick := time.NewTicker(noteFor)
	defer tick.Stop()
	for asked < len(addresses) {
		var finds []schemas.Find
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case got := <-answers:
			for i := range got.finds {
				f := &got.finds[i]
				f.ID, f.Number, f.SeenAt = sqldb.NewID(ctx), got.number, time.Now().UTC()
				r.addresses.WithLabelValues(f.Result).Inc()
			}
			if len(got.finds) == 0 {
				r.addresses.WithLabelValues("silent").Inc()
			}
			finds = got.finds
			done[got.number] = true
			for done[asked] {
				asked++
			}
			if len(finds) == 0 && asked < len(addresses) {
				continue
			}
		}
		if err := r.note(ctx, d.ID, asked, finds, known); err != nil {
			return err
		}
	}
	return r.end(ctx, d, schemas.DiscoveryCompleted, "")
}

// note keeps how far a sweep is, what has answered, and what that contradicts.
func (r *Runner) note(ctx context.Context, id string, asked int, finds []schemas.Find, known *seen) error {
	var all []schemas.Conflict
	var servers []string
	if len(finds) > 0 {
		index := NewIndex(r.deps.Inventory.Snapshot())
		for i := range finds {
			f := &finds[i]
			all = append(all, index.Conflicts(f)...)
			server, _ := index.match(f)
			for _, c := range known.twice(f) {
				c.Resource = cmp.Or(server, c.Resource)
				all = append(all, c)
			}
			if server != "" && f.Result == schemas.FindFound {
				servers = append(servers, server)
			}
		}
		if err := r.since(ctx, all); err != nil {
			return err
		}
	}
	opened := 0
	now := time.Now()
	err := r.deps.Sweeps.Note(ctx, id, r.deps.Holder, lease, asked, finds, func(ctx context.Context, tx *sql.Tx) (err error) {
		for i := range servers {
			if err := conflicts.Settle(ctx, tx, now, servers[i], finds[0].Protocol, all); err != nil {
				return err
			}
		}
		opened, err = conflicts.Seen(ctx, tx, now, all...)
		return err
	})
	if err == nil && opened > 0 {
		r.conflicts.Add(float64(opened))
	}
	return err
}

// since says when the inventory came to say what it says.
func (r *Runner) since(ctx context.Context, all []schemas.Conflict) error {
	var names []string
	for i := range all {
		if all[i].Left.Source == Inventory {
			names = append(names, all[i].Resource)
		}
	}
	latest, err := r.deps.Inventory.Latest(ctx, names)
	if err != nil {
		return err
	}
	for i := range all {
		if s := &all[i].Left; s.Source == Inventory {
			s.Time = latest[all[i].Resource].Time.UTC()
		}
	}
	return nil
}

// seen are the serial numbers of a sweep.
type seen struct{ serials map[string]schemas.Find }

// twice is the conflict of a find with an earlier one of the sweep that tells the same serial number
// and is not the same machine: one that has two addresses tells the same UUID at both.
func (s *seen) twice(f *schemas.Find) []schemas.Conflict {
	if f.Result != schemas.FindFound || !identifies(f.SerialNumber) {
		return nil
	}
	key := norm(f.SerialNumber)
	first, there := s.serials[key]
	if !there {
		s.serials[key] = *f
		return nil
	}
	if first.Address == f.Address || f.UUID != "" && like(first.UUID, f.UUID) {
		return nil
	}
	return []schemas.Conflict{{
		Kind: schemas.ConflictSerialTwice, Resource: first.Address, Field: schemas.AttrSerial,
		Left:  schemas.ConflictSide{Source: first.Protocol, Value: first.SerialNumber, Resource: first.Address, Time: first.SeenAt},
		Right: schemas.ConflictSide{Source: f.Protocol, Value: f.SerialNumber, Resource: f.Address, Time: f.SeenAt},
	}}
}
