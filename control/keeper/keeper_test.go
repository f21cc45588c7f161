package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"auspex/control"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/store/configs"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// rack is a server with two GPUs, as a node agent tells them, and a control that does what it is asked for.
type rack struct {
	control.Remediator // sets nothing: requests go to control

	t     *testing.T
	db    *sqldb.DB
	store *configs.Store
	gpus  []string // their ids
	bus   bus.Bus

	mu      sync.Mutex
	now     time.Time
	set     map[string]map[string]string // by GPU
	err     error
	reads   int
	asked   []schemas.Intent
	actions map[string]schemas.Action
	lost    bool // requests are lost on the way
	events  []schemas.Event
}

func newRack(t *testing.T) *rack {
	t.Helper()
	r := &rack{t: t, db: sqltest.Open(t), now: time.Now(), bus: mem.New(1), actions: map[string]schemas.Action{}, set: map[string]map[string]string{
		"a/gpu0": {"power_limit": "700"}, "a/gpu1": {"power_limit": "700"},
	}}
	inv, e := cmdb.New(cmdb.DefaultConfig(), r.db, nil, nil), estate.New(r.db)
	inv.Follow(e)
	top := schemas.Topology{Resources: []schemas.Resource{
		{ID: "a", Kind: schemas.KindServer}, {ID: "a/gpu0", Kind: schemas.KindGPU, Parent: "a"}, {ID: "a/gpu1", Kind: schemas.KindGPU, Parent: "a"},
	}}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	r.store = configs.New(r.db)
	for _, name := range []string{"a/gpu0", "a/gpu1"} {
		g, err := e.GPU(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		r.gpus = append(r.gpus, g.ID)
		r.put(g.ID, 500)
	}
	return r
}

func (r *rack) put(gpu string, watts float64) {
	r.t.Helper()
	if _, err := r.store.PutGPU(r.t.Context(), "li", gpu, 0, func(c *schemas.GPUConfig) { c.PowerLimit = &watts }); err != nil {
		r.t.Fatal(err)
	}
}

// Read implements control.Reader.
func (r *rack) Read(_ context.Context, s control.Step) (map[string]control.Reading, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	out := map[string]control.Reading{}
	for gpu, has := range r.set {
		out[gpu] = control.Reading{Has: maps.Clone(has)}
	}
	if s.Server != "a" || s.Target != "a" || len(s.With) == 0 {
		r.t.Errorf("%+v", s)
	}
	return out, r.err
}

// keeper keeps for this rack; its clock is the rack's.
func (r *rack) keeper() *Keeper {
	r.t.Helper()
	cfg := DefaultConfig()
	cfg.Enforce = true
	k, err := New(cfg, Deps{
		Log: slog.New(slog.DiscardHandler), Store: r.store, Bus: r.bus, Remediators: map[string]control.Remediator{configs.SetGPU: r}, CallTime: time.Minute,
		Now: func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }, Mode: func(context.Context, string, string) (string, error) { return schemas.ModeEnforce, nil },
		Ask: func(_ context.Context, in schemas.Intent) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.asked = append(r.asked, in); r.lost {
				return nil
			}
			maps.Copy(r.set[in.Target], in.With)
			r.actions[in.ID] = schemas.Action{ID: in.ID, Server: in.Server, State: schemas.ActionDone}
			return nil
		},
		Action: func(_ context.Context, id string) (schemas.Action, bool, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			a, ok := r.actions[id]
			return a, ok, nil
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// pass has a time pass in steps, and the keeper do what is due.
func (r *rack) pass(k *Keeper, d, each time.Duration) {
	r.t.Helper()
	for end := r.now.Add(d); r.now.Before(end); {
		if err := k.learn(r.t.Context(), r.now.Add(-overlap), nil); err != nil {
			r.t.Fatal(err)
		}
		for _, name := range k.due() {
			k.visit(r.t.Context(), name)
		}
		r.mu.Lock()
		r.now = r.now.Add(each)
		r.mu.Unlock()
	}
}

func (r *rack) state(i int) schemas.ConfigState {
	r.t.Helper()
	st, _, err := r.store.State(r.t.Context(), r.gpus[i])
	if err != nil {
		r.t.Fatal(err)
	}
	return st.ConfigState
}

// hear collects the events that are on the bus.
func (r *rack) hear() {
	ctx := r.t.Context()
	go func() {
		_ = bus.Follow(ctx, r.bus, bus.Subscription{Topic: schemas.TopicEvents, Group: "test"}, slog.New(slog.DiscardHandler), func(_ context.Context, msgs []bus.Message) error {
			for _, m := range msgs {
				var b auspexv1.Batch
				if err := wire.Decode(m.Value, &b); err != nil || m.Key != "a" {
					return fmt.Errorf("%s: %w", m.Key, err)
				}
				r.mu.Lock()
				for _, e := range b.GetEvents() {
					r.events = append(r.events, schemas.EventFromWire(e))
				}
				r.mu.Unlock()
			}
			return nil
		})
	}()
}

func TestAKeeperAppliesReadsAndTellsDrifts(t *testing.T) {
	r := newRack(t)
	r.hear()
	k := r.keeper()
	r.pass(k, 5*time.Minute, time.Second)
	if len(r.asked) != 2 || r.state(0).State != schemas.ConfigInForce || r.state(1).State != schemas.ConfigInForce {
		t.Fatalf("%d requests, %+v", len(r.asked), r.state(0))
	}
	for _, in := range r.asked {
		if in.Kind != configs.SetGPU || in.Server != "a" || in.With["power_limit"] != "500" || in.Actor != actor || in.Verb != schemas.IntentRequest {
			t.Errorf("%+v", in)
		}
	}
	reads := r.reads
	r.pass(k, 100*time.Minute, 10*time.Second)
	if n := r.reads - reads; n > 11 {
		t.Errorf("%d readings of a server in 100 minutes where nothing happens", n)
	}
	r.set["a/gpu1"]["power_limit"] = "650"
	batch := auspexv1.Batch{Device: "a", Collector: "kmsg", Events: []*auspexv1.Event{{Type: schemas.EventHostReboot}}}
	value, err := batch.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.onEvents(t.Context(), []bus.Message{{Key: "a", Value: value}, {Key: "b", Value: value}}); err != nil {
		t.Fatal(err)
	}
	r.pass(k, 2*time.Minute, time.Second)
	if len(r.asked) != 3 || r.asked[2].Target != "a/gpu1" || r.set["a/gpu1"]["power_limit"] != "500" {
		t.Errorf("after a restart %+v", r.asked[2:])
	}
	waittest.For(t, "the events of the drift", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.events) == 2
	})
	for i, state := range []string{schemas.StateRaised, schemas.StateCleared} {
		ev := r.events[i]
		if ev.Type != schemas.EventConfigDrift || ev.State != state || ev.Resource != "a/gpu1" || ev.Code != "power_limit" || ev.Attr("desired") != "500" ||
			ev.Attr("found") != "650" || ev.Attr("by") != "li" || ev.Attr("version") != "1" || ev.Source != schemas.SourceControl {
			t.Errorf("%+v", ev)
		}
	}
}

func TestAStoredVersionIsAppliedAtOnce(t *testing.T) {
	r := newRack(t)
	k := r.keeper()
	r.pass(k, time.Minute, time.Second)
	r.put(r.gpus[0], 400)
	r.pass(k, 10*time.Second, time.Second)
	if st := r.state(0); st.Applied != 2 || st.State != schemas.ConfigInForce || r.set["a/gpu0"]["power_limit"] != "400" {
		t.Errorf("%+v", st)
	}
}

func TestARestartAsksForNothingTwice(t *testing.T) {
	r := newRack(t)
	r.lost = true
	r.pass(r.keeper(), 10*time.Second, time.Second)
	if len(r.asked) != 1 || r.state(0).Operation != r.asked[0].ID {
		t.Fatalf("%+v", r.asked)
	}
	// The next process knows what was asked for, and asks again under the same id once control has made nothing of it.
	k := r.keeper()
	stored, err := r.store.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]configs.Standing{}
	for _, st := range stored {
		known[st.Subject] = st
	}
	if err := k.learn(t.Context(), time.Time{}, known); err != nil {
		t.Fatal(err)
	}
	r.lost = false
	r.pass(k, 3*time.Minute, time.Second)
	ids := map[string]bool{}
	for _, in := range r.asked {
		ids[in.ID] = true
	}
	if len(ids) != 2 || r.state(0).State != schemas.ConfigInForce || r.state(1).State != schemas.ConfigInForce {
		t.Errorf("%d requests of %d ids; %+v", len(r.asked), len(ids), r.state(0))
	}
}

func TestTwoKeepersAskOnce(t *testing.T) {
	r := newRack(t)
	r.lost = true
	one, other := r.keeper(), r.keeper()
	var all sync.WaitGroup
	for _, k := range []*Keeper{one, other} {
		if err := k.learn(t.Context(), time.Time{}, map[string]configs.Standing{}); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { k.visit(t.Context(), "a") })
	}
	all.Wait()
	if len(r.asked) != 1 && (len(r.asked) != 2 || r.asked[0].Target == r.asked[1].Target) {
		t.Errorf("%+v", r.asked)
	}
	st, known, err := r.store.State(t.Context(), r.gpus[0])
	if err != nil || !known {
		t.Fatal(err)
	}
	st.Revision--
	if err := r.store.PutState(t.Context(), &st); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
}

func TestAServerThatDoesNotAnswerIsReadLessOften(t *testing.T) {
	r := newRack(t)
	k := r.keeper()
	r.err = errors.New("no route to host")
	r.pass(k, time.Hour, time.Second)
	if r.reads < 5 || r.reads > 12 {
		t.Errorf("%d readings in an hour", r.reads)
	}
	if st := r.state(0); st.State != schemas.ConfigPending || st.Unread == "" || len(r.asked) != 0 {
		t.Errorf("%+v", st)
	}
	// Whoever did something to it knows that it answers.
	doc, err := json.Marshal(schemas.Action{Server: "a", Kind: "reboot", State: schemas.ActionDone})
	if err != nil {
		t.Fatal(err)
	}
	r.err = nil
	if err := k.onOutcomes(t.Context(), []bus.Message{{Key: "a", Value: doc}}); err != nil {
		t.Fatal(err)
	}
	r.pass(k, time.Minute, time.Second)
	if r.state(0).State != schemas.ConfigInForce {
		t.Errorf("%+v", r.state(0))
	}
}

func TestAServerThatLeavesTheInventoryIsForgotten(t *testing.T) {
	r := newRack(t)
	k := r.keeper()
	r.pass(k, time.Minute, time.Second)
	if _, err := r.db.ExecContext(t.Context(), `UPDATE servers SET present=FALSE`); err != nil {
		t.Fatal(err)
	}
	if err := k.learn(t.Context(), time.Time{}, nil); err != nil || k.has("a") {
		t.Error(err, k.has("a"))
	}
}
