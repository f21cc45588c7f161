package detect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/pipeline/detect"
	"auspex/pipeline/enrich"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inventory(t testing.TB) *cmdb.Inventory {
	t.Helper()
	i, problems := cmdb.FromTopology(schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc1", Kind: "site"},
		{ID: "r1", Kind: "rack", Parent: "dc1"},
		{ID: "s1", Kind: "server", Parent: "r1", Attrs: schemas.AttrsOf(map[string]string{"model": "DGX"})},
		{ID: "s1/gpu0", Kind: "gpu", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:1b:00.0"})},
		{ID: "s1/gpu1", Kind: "gpu", Parent: "s1"},
		{ID: "s1/psu0", Kind: "psu", Parent: "s1"},
		{ID: "s2", Kind: "server", Parent: "r1"},
	}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return i
}

func openRecords(t *testing.T) *records.Store {
	t.Helper()
	return records.New(sqltest.Open(t))
}

type component interface {
	Run(ctx context.Context, ready func()) error
}

// start runs a component until the test ends.
func start(t *testing.T, c component) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- c.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatalf("not ready: %v", err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("component ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

var now = time.Now().UTC().Truncate(time.Millisecond)

var sequence uint64

func batch(device string, events ...schemas.Event) *auspexv1.Batch {
	sequence++
	b := &auspexv1.Batch{Device: device, Collector: "test", Epoch: 1, Sequence: sequence, Observed: now.UnixNano()}
	for i := range events {
		if events[i].Time.IsZero() {
			events[i].Time, events[i].Observed = now, now
		}
		b.Events = append(b.Events, events[i].Wire())
	}
	return b
}

func send(t *testing.T, p bus.Publisher, b *auspexv1.Batch) {
	t.Helper()
	v, err := b.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), bus.Message{Topic: schemas.TopicEvents, Key: b.GetDevice(), Value: v}); err != nil {
		t.Fatal(err)
	}
}

// alerts reads the topic alerts until there are n.
func alerts(t *testing.T, b bus.Subscriber, n int) []schemas.Alert {
	t.Helper()
	return collect[schemas.Alert](t, b, schemas.TopicAlerts, n, func(v []byte) ([]schemas.Alert, error) {
		var a schemas.Alert
		err := json.Unmarshal(v, &a)
		return []schemas.Alert{a}, err
	})
}

func collect[T any](t *testing.T, b bus.Subscriber, topic string, n int, parse func([]byte) ([]T, error)) []T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var out []T
	err := b.Subscribe(ctx, bus.Subscription{Topic: topic, Start: func(context.Context, int) (int64, error) { return 0, nil }},
		func(_ context.Context, msgs []bus.Message) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				vs, err := parse(m.Value)
				if err != nil {
					return err
				}
				out = append(out, vs...)
			}
			if len(out) >= n {
				time.AfterFunc(30*time.Millisecond, cancel)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != n {
		t.Fatalf("%d records on %s, want %d: %+v", len(out), topic, n, out)
	}
	return out
}

func TestEventsBecomeAlertsOnce(t *testing.T) {
	b, rec := mem.New(2), openRecords(t)
	t.Cleanup(func() { _ = b.Close() })
	start(t, detect.New(detect.DefaultConfig(), b, enrich.New(inventory(t), nil), rec, nil, nil))
	xid := schemas.Event{
		ID: "e1", Source: "kmsg", Resource: "s1", Type: "gpu.xid", Code: "79", Severity: "critical", Message: "fell off",
		Attrs: map[string]string{"pci": "PCI:0000:1b:00", "action": "RESET_GPU"},
	}
	first := batch("s1", xid, schemas.Event{ID: "i1", Resource: "s1", Type: "bmc.sel", Severity: "info"})
	send(t, b, first)
	// the producer's retry
	send(t, b, first)
	// read again after a crash
	send(t, b, batch("s1", xid))
	// state, not trouble
	send(t, b, batch("sched", schemas.Event{ID: "w1", Resource: "job-1", Type: "workload.state", Code: "FAILED", Severity: "error"}))
	if err := b.Publish(t.Context(), bus.Message{Topic: schemas.TopicEvents, Key: "s1", Value: []byte("\xffgarbage")}); err != nil {
		t.Fatal(err)
	}
	send(t, b, batch("s1", schemas.Event{ID: "r1", Source: "kmsg", Resource: "s1", Type: "host.reboot", Severity: "info"}))
	got := alerts(t, b, 2)
	if got[0].ID != "e1" {
		got[0], got[1] = got[1], got[0]
	}
	want := schemas.Alert{
		Event: schemas.Event{
			ID: "e1", Time: now, Observed: now, Source: "kmsg", Resource: "s1/gpu0", Type: "gpu.xid", Code: "79", Severity: "critical",
			Message: "fell off",
			Attrs:   map[string]string{"pci": "PCI:0000:1b:00", "action": "RESET_GPU", "device": "s1"},
		},
		Site: "dc1", Server: "s1", Rack: "r1", Rule: "event/gpu.xid", Status: "firing",
		Labels: map[string]string{
			"alertname": "gpu.xid", "resource": "s1/gpu0", "severity": "critical", "source": "kmsg", "code": "79", "kind": "gpu", "server": "s1",
			"rack": "r1", "site": "dc1", "model": "DGX",
		},
		Annotations: map[string]string{"summary": "fell off", "action": "RESET_GPU"},
	}
	if d := cmp.Diff(want, got[0], cmpopts.IgnoreFields(schemas.Alert{}, "Fingerprint")); d != "" || got[0].Fingerprint == "" {
		t.Error(d)
	}
	if got[1].Type != "host.reboot" {
		t.Errorf("a reboot is not admitted: %+v", got[1])
	}
	stored, ok, err := rec.Alert(t.Context(), "e1")
	if d := cmp.Diff(got[0], stored); !ok || err != nil || d != "" {
		t.Errorf("stored: %v %v %s", ok, err, d)
	}
	collect[schemas.DeadLetter](t, b, schemas.TopicDeadletter, 1, func(v []byte) ([]schemas.DeadLetter, error) {
		var l schemas.DeadLetter
		err := json.Unmarshal(v, &l)
		return []schemas.DeadLetter{l}, err
	})
}

// What a caller posts as an alert is one whatever its severity, ends when its end is posted, and ends nothing that
// a collector of ours saw.
func TestPostedAlertsAreAdmitted(t *testing.T) {
	b, rec := mem.New(2), openRecords(t)
	t.Cleanup(func() { _ = b.Close() })
	start(t, detect.New(detect.DefaultConfig(), b, enrich.New(inventory(t), nil), rec, nil, nil))
	post := func(id, state, alert string) schemas.Event {
		ev := schemas.Event{
			ID: id, Source: schemas.SourceAPI, Resource: "s1/gpu0", Type: "gpu.thermal", Severity: "info", State: state,
			Attrs: map[string]string{schemas.AttrExternal: "true"},
		}
		if alert != "" {
			ev.Attrs[schemas.AttrAlert] = alert
		}
		return ev
	}
	seen := schemas.Event{ID: "k", Source: schemas.SourceDCGM, Resource: "s1/gpu0", Type: "gpu.thermal", Severity: "error", State: "raised"}
	send(t, b, batch("s1", seen))
	send(t, b, batch("s1", post("e", "", "")))
	send(t, b, batch("s1", post("a", "raised", "true")))
	send(t, b, batch("s1", post("a", "raised", "true")))
	send(t, b, batch("s1", post("z", "cleared", "true")))
	if got := alerts(t, b, 3); got[0].ID != "k" || got[1].ID != "a" || got[2].ID != "z" {
		t.Errorf("%+v", got)
	}
	for id, want := range map[string]string{"k": schemas.AlertFiring, "a": schemas.AlertResolved} {
		if a, found, err := rec.Alert(t.Context(), id); !found || err != nil || a.Status != want {
			t.Errorf("%s: %+v %v", id, a, err)
		}
	}
}

func TestTheEndOfAConditionResolvesItsAlertAlsoAfterARestart(t *testing.T) {
	b, rec := mem.New(2), openRecords(t)
	t.Cleanup(func() { _ = b.Close() })
	e := enrich.New(inventory(t), nil)
	stop := start(t, detect.New(detect.DefaultConfig(), b, e, rec, nil, nil))
	lost := schemas.Event{
		ID: "a", Source: "ipmi", Resource: "s1", Type: "psu.input_lost", Code: "08h/03h", Severity: "error", State: "raised",
		Attrs: map[string]string{"sensor": "PSU0 Input"},
	}
	send(t, b, batch("s1", lost))
	raised := alerts(t, b, 1)[0]
	stop()
	start(t, detect.New(detect.DefaultConfig(), b, e, rec, nil, nil))
	back := lost
	back.ID, back.State, back.Severity, back.Code = "b", "cleared", "info", "other"
	send(t, b, batch("s1", back))
	both := alerts(t, b, 2)
	if c := both[1]; c.Status != "resolved" || c.Fingerprint != raised.Fingerprint || c.Resource != "s1/psu0" {
		t.Errorf("the end: %+v", c)
	}
	if a, _, err := rec.Alert(t.Context(), "a"); err != nil || a.Status != "resolved" {
		t.Errorf("the alert is %s, %v", a.Status, err)
	}
}

// Of things that the inventory does not have apart, the end of one condition is not that of another.
func TestConditionsOfOneServerEndEachForItself(t *testing.T) {
	for what, apart := range map[string]func(ev *schemas.Event, which string){
		"units": func(ev *schemas.Event, which string) { ev.Type, ev.Code = schemas.EventServiceFailed, which },
		"disks": func(ev *schemas.Event, which string) { ev.Type = schemas.EventDiskMissing; ev.SetAttr("serial", which) },
		"settings": func(ev *schemas.Event, which string) {
			ev.Type, ev.Code = schemas.EventConfigDrift, "bios"
			ev.SetAttr("setting", which)
		},
		"nodes of a domain": func(ev *schemas.Event, which string) { ev.Type = schemas.EventIMEXDomain; ev.SetAttr("peer", which) },
	} {
		t.Run(what, func(t *testing.T) {
			b := mem.New(2)
			t.Cleanup(func() { _ = b.Close() })
			start(t, detect.New(detect.DefaultConfig(), b, enrich.New(inventory(t), nil), openRecords(t), nil, nil))
			event := func(id, which, state string) schemas.Event {
				ev := schemas.Event{ID: id, Source: "agent", Resource: "s1", Severity: "error", State: state}
				apart(&ev, which)
				return ev
			}
			send(t, b, batch("s1", event("a", "one", "raised"), event("b", "two", "raised"), event("c", "two", "cleared")))
			got := alerts(t, b, 3)
			if got[0].Fingerprint == got[1].Fingerprint || got[1].Fingerprint != got[2].Fingerprint {
				t.Errorf("%+v", got)
			}
		})
	}
}

// flaky fails to publish alerts a few times, and to write them always.
type flaky struct {
	bus.Bus
	*records.Store
	mu   sync.Mutex
	left int
}

func (f *flaky) Publish(ctx context.Context, msgs ...bus.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left >= 0 && msgs[0].Topic == schemas.TopicAlerts {
		return errors.New("bus is full")
	}
	return f.Bus.Publish(ctx, msgs...)
}

func (f *flaky) PutAlerts(context.Context, []schemas.Alert) error { return errors.New("disk is full") }

func TestAlertsSurviveABusAndAStoreThatFail(t *testing.T) {
	b := mem.New(1)
	t.Cleanup(func() { _ = b.Close() })
	send(t, b, batch("s1", schemas.Event{ID: "a", Resource: "s1", Type: "host.oom", Severity: "error"}))
	f := &flaky{Bus: b, Store: openRecords(t), left: 3}
	start(t, detect.New(detect.DefaultConfig(), f, enrich.New(inventory(t), nil), f, nil, nil))
	alerts(t, b, 1)
}

// awayStore does not take alerts while it is away.
type awayStore struct {
	*records.Store
	away atomic.Bool
}

func (s *awayStore) PutAlerts(ctx context.Context, as []schemas.Alert) error {
	if s.away.Load() {
		return errors.New("connection refused")
	}
	return s.Store.PutAlerts(ctx, as)
}

func TestAlertsOfAnOutageOfTheStoreAreWrittenAfterIt(t *testing.T) {
	b := mem.New(2)
	t.Cleanup(func() { _ = b.Close() })
	rec := &awayStore{Store: openRecords(t)}
	cfg := detect.DefaultConfig()
	cfg.MomentTTL = 400 * time.Millisecond // and a sweep four times in it
	start(t, detect.New(cfg, b, enrich.New(inventory(t), nil), rec, nil, nil))
	rec.away.Store(true)
	raised := schemas.Event{
		ID: "a", Source: "ipmi", Resource: "s1", Type: "psu.input_lost", Severity: "error", State: "raised",
		Attrs: map[string]string{"sensor": "PSU0 Input"},
	}
	cleared := raised
	cleared.ID, cleared.State = "b", "cleared"
	send(t, b, batch("s1", raised, cleared))
	send(t, b, batch("s1", schemas.Event{ID: "c", Source: "kmsg", Resource: "s1", Type: "host.oom", Severity: "error"}))
	alerts(t, b, 3) // the bus has them meanwhile
	rec.away.Store(false)
	want := map[string]string{"a": "resolved", "b": "resolved", "c": "resolved"} // the end, and the end of the moment
	waittest.Until(t, func() error {
		got := map[string]string{}
		as, _, err := rec.Alerts(t.Context(), records.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range as {
			got[a.ID] = a.Status
			if a.Status == schemas.AlertResolved && a.ResolvedAt.IsZero() {
				got[a.ID] += " at no time"
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			return errors.New(d)
		}
		return nil
	})
}

func TestMomentsStopFiringAfterAWhile(t *testing.T) {
	b, rec := mem.New(1), openRecords(t)
	t.Cleanup(func() { _ = b.Close() })
	cfg := detect.DefaultConfig()
	cfg.MomentTTL = 20 * time.Millisecond
	start(t, detect.New(cfg, b, enrich.New(inventory(t), nil), rec, nil, nil))
	send(t, b, batch("s1", schemas.Event{ID: "a", Resource: "s1", Type: "host.oom", Severity: "error"},
		schemas.Event{ID: "b", Resource: "s1", Type: "psu.failure", Severity: "error", State: "raised"}))
	alerts(t, b, 2)
	waittest.Until(t, func() error {
		a, _, err := rec.Alert(t.Context(), "a")
		if err == nil && a.Status != "resolved" {
			err = fmt.Errorf("still %s", a.Status)
		}
		return err
	})
	if a, _, _ := rec.Alert(t.Context(), "b"); a.Status != "firing" {
		t.Errorf("a condition without an end is %s", a.Status)
	}
}

func TestSchedulerEventsBecomeWorkloads(t *testing.T) {
	b, inv := mem.New(2), inventory(t)
	t.Cleanup(func() { _ = b.Close() })
	start(t, detect.NewWorkloads(b, inv, nil, nil, nil))
	job := func(state string, attrs map[string]string) schemas.Event {
		return schemas.Event{
			ID: "j" + state, Source: "scheduler", Resource: "job-1", Type: "workload.state", Code: state, Severity: "info", Attrs: attrs,
		}
	}
	changed := inv.Changed()
	posted := job("RUNNING", map[string]string{"workload": "job-2", "nodes": "s1", schemas.AttrExternal: "true"})
	posted.ID = "posted"
	send(t, b, batch("sched", job("PENDING", nil)))
	send(t, b, batch("sched", posted))
	send(t, b, batch("sched", job("RUNNING", map[string]string{
		"workload": "job-1", "owner": "ada", "nodes": "s1,s2,s9", "gpus": "s1/gpu0,s1/gpu1", "start": "2026-01-01T00:00:00Z",
	})))
	<-changed
	want := schemas.Workload{
		ID: "job-1", Resources: []string{"s1/gpu0", "s1/gpu1", "s2"}, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Attrs: map[string]string{"owner": "ada", "state": "RUNNING"},
	}
	w, _ := inv.Snapshot().Workload("job-1")
	if d := cmp.Diff(want, w); d != "" {
		t.Error(d)
	}
	if w, known := inv.Snapshot().Workload("job-2"); known {
		t.Errorf("a job of somebody who may post events: %+v", w)
	}
	changed = inv.Changed()
	send(t, b, batch("sched", job("FAILED", map[string]string{"end": now.Format(time.RFC3339Nano), "start": "never"})))
	<-changed
	want.End, want.Attrs["state"] = now, "FAILED"
	w, _ = inv.Snapshot().Workload("job-1")
	if d := cmp.Diff(want, w); d != "" {
		t.Error(d)
	}
}

// devices is what an agent says of its server's pods.
func devices(server, pods string) schemas.Event {
	return schemas.Event{
		ID: server + pods, Source: "agent", Resource: server, Type: "workload.devices", Severity: "info", Attrs: map[string]string{"pods": pods},
	}
}

// A scheduler names servers and pods, and the servers' agents which GPUs those hold: in whatever order
// they come, a workload is on GPUs.
func TestAgentsSayWhichGPUsThePodsOfAWorkloadHold(t *testing.T) {
	b, inv := mem.New(1), inventory(t)
	t.Cleanup(func() { _ = b.Close() })
	start(t, detect.NewWorkloads(b, inv, nil, nil, nil))
	state := func(id, code, pods string) schemas.Event {
		return schemas.Event{ID: "k" + id + code + pods, Source: "scheduler", Resource: id, Type: "workload.state", Code: code, Severity: "info", Attrs: map[string]string{
			"workload": id, "account": "ml", "nodes": "s1,s2", "pods": pods, "start": "2026-01-01T00:00:00Z",
		}}
	}
	on := func(id string, want ...string) {
		t.Helper()
		waittest.Until(t, func() error {
			w, _ := inv.Snapshot().Workload(id)
			if d := cmp.Diff(want, w.Resources); d != "" {
				return errors.New(d)
			}
			return nil
		})
	}
	send(t, b, batch("k8s", state("train", "RUNNING", "a,b")))
	on("train", "s1", "s2")
	send(t, b, batch("s1", devices("s1", "lab/a=1,ml/a=0,ml/c=1")))
	on("train", "s1/gpu0", "s2")
	send(t, b, batch("s1", devices("s1", "ml/a=0+1,ml/b=9")))
	on("train", "s1/gpu0", "s1/gpu1", "s2")
	send(t, b, batch("k8s", state("train", "RUNNING", "a,b,d"))) // told anew, it stays so
	send(t, b, batch("k8s", state("other", "RUNNING", "b"), state("later", "RUNNING", "a")))
	on("train", "s1/gpu0", "s1/gpu1", "s2")
	on("other", "s1", "s2") // its pod's GPU is not in the inventory
	on("later", "s1/gpu0", "s1/gpu1", "s2")
	forged, posted := devices("s1", "ml/a=1"), devices("s1", "ml/a=1")
	forged.Source, posted.Attrs[schemas.AttrExternal] = "nvml", "true"
	send(t, b, batch("s1", forged, posted, devices("s1", "ml/d=1")))
	on("train", "s1/gpu1", "s2")
	on("later", "s1", "s2")
	send(t, b, batch("k8s", state("train", "COMPLETED", "")))
	send(t, b, batch("s1", devices("s1", ""), devices("s2", "ml/a=0")))
	on("later", "s1", "s2")
	on("train", "s1/gpu1", "s2") // what it had when it ended
	// Another process knows what was written, and not yet what agents say.
	send(t, b, batch("s1", devices("s1", "ml/a=1")))
	on("later", "s1/gpu1", "s2")
	b2 := mem.New(1)
	t.Cleanup(func() { _ = b2.Close() })
	start(t, detect.NewWorkloads(b2, inv, nil, nil, nil))
	send(t, b2, batch("k8s", state("later", "RUNNING", "a,z"), state("after", "RUNNING", "a")))
	on("after", "s1", "s2")
	on("later", "s1/gpu1", "s2")
	lie := state("after", "FAILED", "a")
	lie.Source = "agent"
	send(t, b2, batch("s1", lie, devices("s1", "ml/a=0")))
	on("after", "s1/gpu0", "s2")
	if w, _ := inv.Snapshot().Workload("after"); !w.End.IsZero() {
		t.Error("an agent has ended a workload")
	}
}

// windows takes over what it is told.
type windows chan []schemas.Maintenance

func (w windows) Import(_ context.Context, all ...schemas.Maintenance) error {
	w <- all
	return nil
}

// Reservations of the scheduler are taken over; what is declared here is in the store already.
func TestReservationsOfTheSchedulerBecomeWindows(t *testing.T) {
	b, got := mem.New(2), make(windows, 4)
	t.Cleanup(func() { _ = b.Close() })
	start(t, detect.NewWorkloads(b, inventory(t), got, nil, nil))
	m := schemas.Maintenance{
		ID: "mw-1", Resources: []string{"s1"}, Work: schemas.WorkMaintenance, By: "li", Source: schemas.SourceOperator, Declared: now,
		From: now, Until: now.Add(time.Hour),
	}
	send(t, b, batch("s1", m.Events()...))
	m.ID, m.Resources, m.Source = "slurm-1", []string{"s1", "s2"}, schemas.SourceScheduler
	send(t, b, batch("s1", m.Events()...))
	if all := <-got; len(all) != 2 || all[0].ID != "slurm-1" || all[1].Resources[0] != "s2" {
		t.Errorf("%+v", all)
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for _, change := range []func(*detect.Config){
		func(c *detect.Config) { c.MinSeverity = "loud" },
		func(c *detect.Config) { c.Remember = 0 },
		func(c *detect.Config) { c.MomentTTL = -1 },
	} {
		c := detect.DefaultConfig()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("accepted %+v", c)
		}
	}
	if err := detect.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func BenchmarkDetect(b *testing.B) {
	bs := mem.New(1)
	defer func() { _ = bs.Close() }()
	inv, _ := cmdb.FromTopology(schemas.Topology{
		Resources: []schemas.Resource{{ID: "s1", Kind: "server"}, {ID: "s1/gpu0", Kind: "gpu", Parent: "s1"}},
	})
	d := detect.New(detect.DefaultConfig(), bs, enrich.New(inv, nil), nothing{}, nil, nil)
	var msgs []bus.Message
	for i := range b.N {
		e := schemas.Event{
			ID: schemas.EventID("s1", "", strconv.Itoa(i)), Time: now, Observed: now, Resource: "s1", Type: "gpu.xid", Code: "79",
			Severity: "critical",
			Attrs:    map[string]string{"gpu": "0"},
		}
		v, _ := (&auspexv1.Batch{Device: "s1", Collector: "c", Events: []*auspexv1.Event{e.Wire()}}).MarshalVT()
		msgs = append(msgs, bus.Message{Topic: schemas.TopicEvents, Key: "s1", Value: v})
	}
	_ = bs.Publish(b.Context(), msgs...)
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func() {}) }()
	var n int
	_ = bs.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicAlerts, Start: func(context.Context, int) (int64, error) { return 0, nil },
	}, func(_ context.Context, m []bus.Message) error {
		if n += len(m); n >= b.N {
			cancel()
		}
		return nil
	})
	<-done
}

type nothing struct{}

func (nothing) PutAlerts(context.Context, []schemas.Alert) error { return nil }
func (nothing) Alerts(context.Context, records.Filter) ([]schemas.Alert, string, error) {
	return nil, "", nil
}
