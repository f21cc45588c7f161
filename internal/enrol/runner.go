package enrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"auspex/internal/cmdb"
	"auspex/internal/store/join"
)

// Config says how often agents are looked at.
type Config struct {
	// Disabled reads no descriptions.
	Disabled bool `yaml:"disabled"`
	// Interval is how often an agent is asked whether its description has changed. It is
	// read when that, its boot or the inventory has.
	Interval time.Duration `yaml:"interval"`
	// Timeout bounds connecting and answering.
	Timeout time.Duration `yaml:"timeout"`
}

// DefaultConfig asks every ten minutes.
func DefaultConfig() Config { return Config{Interval: 10 * time.Minute, Timeout: 10 * time.Second} }

// Validate names the first key at fault.
func (c *Config) Validate() error {
	switch {
	case c.Interval < time.Second:
		return fmt.Errorf("interval is %s; it must be at least 1s", c.Interval)
	case c.Timeout <= 0:
		return fmt.Errorf("timeout is %s; it must be positive", c.Timeout)
	}
	return nil
}

// Agents are those that can be read now.
type Agents interface {
	Agents() []Who
	// Dial connects to one. Calls get a context that shows who asks.
	Dial(ctx context.Context, who Who) (context.Context, *grpc.ClientConn, error)
}

const (
	workers  = 8
	lookFor  = 2 * time.Second  // agents that are new
	settling = 30 * time.Second // after a change: a server that boots finds its parts one by one
)

// Runner reads the descriptions of agents and offers what they propose.
type Runner struct {
	cfg    Config
	agents Agents
	inv    *cmdb.Inventory
	store  *Store
	join   *join.Store
	bounds cmdb.Bounds
	log    *slog.Logger

	mu    sync.Mutex
	known map[Who]*watched

	reads     *prometheus.CounterVec
	proposals *prometheus.CounterVec
}

// watched is what is known of one agent.
type watched struct {
	due          time.Time
	busy, gone   bool
	digest, boot string
	generation   uint64
	wait         time.Duration
	said         string // the error that was logged last
	noted        Agent  // what was kept of it last
}

// NewRunner returns a runner; it performs no I/O.
func NewRunner(
	cfg Config, agents Agents, inv *cmdb.Inventory, store *Store, machines *join.Store, bounds cmdb.Bounds, log *slog.Logger, reg prometheus.Registerer,
) *Runner {
	r := &Runner{
		cfg: cfg, agents: agents, inv: inv, store: store, join: machines, bounds: bounds, log: log, known: map[Who]*watched{},
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_enrol_reads_total",
			Help: "Looks at agents: same (nothing has changed), read, silent (it has no description), refused (one that nobody could keep), error.",
		}, []string{"result"}),
		proposals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_enrol_proposals_total",
			Help: "What descriptions that were read came to: equal, offered, accepted (at once, by its token), declined (before), refused.",
		}, []string{"result"}),
	}
	for _, x := range []string{"same", "read", "silent", "refused", "error"} {
		r.reads.WithLabelValues(x)
	}
	for _, x := range []string{"equal", "offered", "accepted", "declined", "refused"} {
		r.proposals.WithLabelValues(x)
	}
	if reg != nil {
		reg.MustRegister(r.reads, r.proposals)
	}
	return r
}

// Run looks at agents until ctx is done.
func (r *Runner) Run(ctx context.Context) {
	todo := make(chan Who)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for who := range todo {
				r.look(ctx, who)
			}
		})
	}
	defer all.Wait()
	defer close(todo)
	tick := time.NewTicker(lookFor)
	defer tick.Stop()
	for {
		for _, who := range r.due() {
			select {
			case todo <- who:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// due returns those that have to be looked at now, and marks them as busy.
func (r *Runner) due() (out []Who) {
	agents, now := r.agents.Agents(), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.known {
		w.gone = true
	}
	for _, who := range agents {
		w := r.known[who]
		if w == nil {
			w = &watched{}
			r.known[who] = w
		}
		if w.gone = false; !w.busy && !now.Before(w.due) {
			w.busy = true
			out = append(out, who)
		}
	}
	for who, w := range r.known {
		if w.gone && !w.busy {
			delete(r.known, who)
		}
	}
	return out
}

// look reads an agent's description if it is another than last time.
func (r *Runner) look(ctx context.Context, who Who) {
	r.mu.Lock()
	w := *r.known[who]
	r.mu.Unlock()
	asked, done := context.WithTimeout(ctx, r.cfg.Timeout)
	changed, result, err := r.read(asked, who, &w)
	done()
	if ctx.Err() != nil {
		return
	}
	r.reads.WithLabelValues(result).Inc()
	switch {
	case err != nil && err.Error() != w.said:
		w.said = err.Error()
		r.log.Warn("an agent's description is not read", "server", who.Server, "machine", who.Machine, "error", err)
	case err == nil:
		w.said = ""
	}
	// What has just changed may go on changing; what failed may be starting.
	if w.wait = min(max(2*w.wait, settling), r.cfg.Interval); changed {
		w.wait = min(settling, r.cfg.Interval)
	}
	w.due = time.Now().Add(w.wait + rand.N(w.wait/8+1))
	w.busy = false
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.known[who] = w
}

func (r *Runner) read(ctx context.Context, who Who, w *watched) (changed bool, result string, err error) {
	ctx, conn, err := r.agents.Dial(ctx, who)
	if err != nil {
		return false, "error", err
	}
	defer func() { _ = conn.Close() }()
	client := gpb.NewGNMIClient(conn)
	seen := Agent{Server: who.Server, Machine: who.Machine, Token: who.Token, Address: who.Address}
	digest, boot, err := Digest(ctx, client)
	snap := r.inv.Snapshot()
	switch {
	case errors.Is(err, ErrDescription):
		return false, "refused", errors.Join(err, r.note(ctx, w, seen, err))
	case err != nil:
		return false, "error", err
	case digest == "":
		return false, "silent", nil
	case digest == w.digest && boot == w.boot && snap.Generation == w.generation:
		return false, "same", nil
	}
	changed = digest != w.digest || boot != w.boot
	d, err := Describe(ctx, client)
	if err == nil {
		seen.Version = d.Version
		err = r.propose(ctx, snap, who, d)
	}
	if err == nil || errors.Is(err, ErrDescription) {
		err = errors.Join(err, r.note(ctx, w, seen, err))
	}
	if errors.Is(err, ErrDescription) {
		w.digest, w.boot, w.generation = digest, boot, snap.Generation // it is not read again before it changes
		r.proposals.WithLabelValues("refused").Inc()
		return changed, "refused", err
	}
	if err != nil {
		return false, "error", err
	}
	w.digest, w.boot, w.generation = d.Digest, d.Boot, snap.Generation
	return changed, "read", nil
}

// note keeps what was read of an agent, where that is new.
func (r *Runner) note(ctx context.Context, w *watched, seen Agent, cause error) error {
	if cause != nil {
		seen.Refused = strings.TrimPrefix(cause.Error(), ErrDescription.Error()+": ")
	}
	if seen == w.noted {
		return nil
	}
	if err := r.store.Note(ctx, &seen); err != nil {
		return err
	}
	w.noted = seen
	return nil
}

func (r *Runner) propose(ctx context.Context, snap *cmdb.Snapshot, who Who, d *Description) error {
	p := Compare(snap, who, d)
	if len(p.Differences) == 0 {
		r.proposals.WithLabelValues("equal").Inc()
		return r.store.Settle(ctx, p)
	}
	state, err := r.store.Offer(ctx, p)
	if err != nil {
		return err
	}
	if state != Open {
		r.proposals.WithLabelValues(state).Inc()
		return nil
	}
	if who.Machine != "" && p.Conflicts == 0 {
		_, token, err := r.join.Machine(ctx, who.Machine)
		if err != nil {
			return err
		}
		if token.Accept {
			if _, err := r.store.Accept(ctx, r.inv, r.join, p.ID, Decision{By: "join token " + token.Name, Bounds: r.bounds}); err != nil {
				return err
			}
			r.proposals.WithLabelValues("accepted").Inc()
			r.log.Info("what a machine says of itself is in the inventory", "server", p.Server, "machine", who.Machine, "token", token.Name)
			return nil
		}
	}
	r.proposals.WithLabelValues("offered").Inc()
	return nil
}
