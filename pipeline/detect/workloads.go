package detect

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/schemas"
)

// WorkloadInventory takes what runs where.
type WorkloadInventory interface {
	Snapshot() *cmdb.Snapshot
	PutWorkloads(ctx context.Context, ws ...schemas.Workload) error
}

// Windows takes over the maintenance windows that the scheduler tells of.
type Windows interface {
	Import(ctx context.Context, windows ...schemas.Maintenance) error
}

// Workloads reads the scheduler's events and keeps the inventory's workloads, and the
// list of maintenance windows.
type Workloads struct {
	bus    bus.Bus
	inv    WorkloadInventory
	list   Windows
	decode *wire.Decoder
	log    *slog.Logger
	mu     sync.Mutex                     // batches of several partitions come at the same time
	held   map[string]map[string][]string // GPUs by pod (namespace/name), by server, as agents say it

	changes *prometheus.CounterVec
}

// NewWorkloads returns the component that feeds events of type workload.state
// into the inventory. It performs no I/O.
func NewWorkloads(b bus.Bus, inv WorkloadInventory, list Windows, log *slog.Logger, reg prometheus.Registerer) *Workloads {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Workloads{
		bus: b, inv: inv, list: list, log: log, decode: wire.New("workloads", b, log, reg), held: map[string]map[string][]string{},
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_detect_workload_events_total", Help: "Workload states read from scheduler events.",
		}, []string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(w.changes)
	}
	return w
}

// Name names the component.
func (w *Workloads) Name() string { return "workloads" }

// Run reads until ctx is done.
func (w *Workloads) Run(ctx context.Context, ready func()) error {
	ready()
	return bus.Follow(ctx, w.bus, bus.Subscription{Topic: schemas.TopicEvents, Group: "workloads"}, w.log, w.handle)
}

func (w *Workloads) handle(ctx context.Context, msgs []bus.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var put []schemas.Workload
	var windows []schemas.Maintenance
	at := map[string]int{}
	for _, m := range msgs {
		b, ok := w.decode.Batch(ctx, m)
		if !ok {
			continue
		}
		for _, e := range b.GetEvents() {
			switch e.GetType() {
			case schemas.EventMaintenanceDeclared, schemas.EventMaintenanceEnded:
				if ev := schemas.EventFromWire(e); ev.Source == schemas.SourceScheduler {
					if m, err := schemas.MaintenanceOf(&ev); err == nil {
						windows = append(windows, m)
					}
				}
				continue
			case schemas.EventWorkloadState, schemas.EventWorkloadDevices:
			default:
				continue
			}
			ev := schemas.EventFromWire(e)
			speaks := schemas.SourceScheduler
			if ev.Type == schemas.EventWorkloadDevices {
				speaks = schemas.SourceAgent
			}
			if ev.External() || ev.Source != speaks { // who may post events, or has one server, may not say which jobs run where
				w.changes.WithLabelValues("posted").Inc()
				continue
			}
			var changed []schemas.Workload
			if ev.Type == schemas.EventWorkloadDevices {
				changed = w.devices(&ev, put)
			} else if job, ok := w.workload(&ev, put, at); ok {
				changed = append(changed, job)
			}
			for _, job := range changed {
				if i, seen := at[job.ID]; seen {
					put[i] = job
					continue
				}
				at[job.ID] = len(put)
				put = append(put, job)
			}
		}
	}
	if len(windows) > 0 && w.list != nil {
		if err := w.list.Import(ctx, windows...); err != nil {
			return err
		}
	}
	if len(put) == 0 {
		return nil
	}
	// A failed write breaks the subscription off, and it begins here again.
	if err := w.inv.PutWorkloads(ctx, put...); err != nil {
		if !errors.Is(err, context.Canceled) {
			w.changes.WithLabelValues("error").Add(float64(len(put)))
		}
		return err
	}
	w.changes.WithLabelValues("ok").Add(float64(len(put)))
	return nil
}

// notStarted lists the states of a job that has no place yet (Slurm, squeue(1),
// job state codes).
var notStarted = map[string]bool{
	"PENDING": true, "CONFIGURING": true, "REQUEUED": true, "REQUEUE_HOLD": true, "REQUEUE_FED": true, "SPECIAL_EXIT": true,
}

// running lists the states of a job that holds its nodes.
var running = map[string]bool{
	"RUNNING": true, "COMPLETING": true, "SUSPENDED": true, "STOPPED": true, "RESIZING": true, "SIGNALING": true, "STAGE_OUT": true,
}

// workload reads a workload.state event. What the event leaves out is kept as it
// was known.
func (w *Workloads) workload(ev *schemas.Event, pending []schemas.Workload, at map[string]int) (schemas.Workload, bool) {
	id := ev.Attr("workload")
	if id == "" {
		id = ev.Resource
	}
	state := strings.ToUpper(ev.Code)
	if id == "" || state == "" || notStarted[state] {
		w.changes.WithLabelValues("ignored").Inc()
		return schemas.Workload{}, false
	}
	snap := w.inv.Snapshot()
	job, known := snap.Workload(id)
	if i, ok := at[id]; ok {
		job, known = pending[i], true
	}
	attrs := map[string]string{"state": state}
	for k, v := range job.Attrs {
		if _, ok := attrs[k]; !ok {
			attrs[k] = v
		}
	}
	for _, k := range []string{"owner", "name", "partition", "account", schemas.AttrPods} {
		if v := ev.Attr(k); v != "" {
			attrs[k] = v
		}
	}
	job.ID, job.Attrs = id, attrs
	if r := w.resources(snap, ev); len(r) > 0 {
		job.Resources = w.narrow(snap, &job, r)
	}
	if start, ok := w.time(ev, "start"); ok {
		job.Start = start
	} else if !known {
		job.Start = ev.Time
	}
	if running[state] {
		job.End = time.Time{}
		return job, true
	}
	end, ok := w.time(ev, "end")
	if !ok {
		end = ev.Time
	}
	job.End = end
	if job.End.Before(job.Start) {
		job.End = job.Start
	}
	return job, true
}

func (w *Workloads) time(ev *schemas.Event, key string) (time.Time, bool) {
	v := ev.Attr(key)
	if v == "" {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil || t.Unix() <= 0 {
		w.changes.WithLabelValues("bad_time").Inc()
		return time.Time{}, false
	}
	return t.UTC(), true
}

// resources prefers GPUs to their servers, and leaves out what the inventory
// does not know.
func (w *Workloads) resources(snap *cmdb.Snapshot, ev *schemas.Event) []string {
	var out []string
	gpus := map[string]bool{} // servers whose GPUs are named
	add := func(id string) bool {
		id = strings.TrimSpace(id)
		if id == "" {
			return false
		}
		if _, ok := snap.Resource(id); !ok {
			w.changes.WithLabelValues("unknown_resource").Inc()
			return false
		}
		out = append(out, id)
		return true
	}
	for id := range strings.SplitSeq(ev.Attr("gpus"), ",") {
		if add(id) {
			gpus[snap.Server(strings.TrimSpace(id))] = true
		}
	}
	for id := range strings.SplitSeq(ev.Attr("nodes"), ",") {
		if !gpus[strings.TrimSpace(id)] {
			add(id)
		}
	}
	return out
}
