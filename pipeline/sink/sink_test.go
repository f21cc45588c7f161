package sink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/internal/waittest"
	"auspex/pipeline/enrich"
	"auspex/pipeline/sink"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func enricher() *enrich.Enricher {
	inv, _ := cmdb.FromTopology(schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc1", Kind: "site"},
		{ID: "r1", Kind: "rack", Parent: "dc1"},
		{ID: "s1", Kind: "server", Parent: "r1", Attrs: schemas.AttrsOf(map[string]string{"model": "DGX H100"})},
		{ID: "s1/gpu0", Kind: "gpu", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:1b:00.0", "uuid": "GPU-aa"})},
		{ID: "s1/gpu1", Kind: "gpu", Parent: "s1"},
		{ID: "s1/fan1", Kind: "fan", Parent: "s1"},
	}})
	return enrich.New(inv, nil)
}

func history(t testing.TB, e *embedded.Engine) *clickhouse.DB {
	t.Helper()
	cfg := clickhouse.DefaultConfig()
	cfg.Dial = e.Dial
	db, err := clickhouse.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func fast() sink.Config {
	cfg := sink.DefaultConfig()
	cfg.FlushInterval = 20 * time.Millisecond
	return cfg
}

// start runs a sink until stop is called.
func start(t testing.TB, cfg sink.Config, b bus.Bus, db sink.History) (s *sink.Sink, stop func()) {
	t.Helper()
	s, err := sink.New(cfg, b, db, enricher(), nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func() {}) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return s, stop
}

func publish(t testing.TB, b bus.Bus, topic, key string, v any) {
	t.Helper()
	var value []byte
	var err error
	if batch, ok := v.(*auspexv1.Batch); ok {
		value, err = batch.MarshalVT()
	} else {
		value, err = json.Marshal(v)
	}
	if err == nil {
		err = b.Publish(context.Background(), bus.Message{Topic: topic, Key: key, Value: value})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a number in the history.
func eventually(t testing.TB, db *clickhouse.DB, want uint64, query string) {
	t.Helper()
	var got uint64
	waittest.Until(t, func() error {
		if err := db.Conn().QueryRow(context.Background(), query).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			return fmt.Errorf("%s: got %d, want %d", query, got, want)
		}
		return nil
	})
}

func event(id string, at time.Time) *auspexv1.Event {
	ev := schemas.Event{
		ID: id, Time: at, Observed: at, Source: "kmsg", Resource: "s1", Type: "gpu.xid", Code: "79", Severity: "critical", Message: "NVRM: Xid",
		Attrs: map[string]string{"pci": "0000:1b:00.0"},
	}
	return ev.Wire()
}

func TestTelemetryAndEventsAreStoredWithTheirPlace(t *testing.T) {
	e := embeddedtest.Start(t)
	db, b := history(t, e), mem.New(2)
	_, stop := start(t, fast(), b, db)
	at := time.Now().UTC().Truncate(time.Millisecond)
	publish(t, b, schemas.TopicTelemetry, "s1", &auspexv1.Batch{
		Device: "s1", Collector: "dcgmexporter", Observed: at.UnixNano(), Epoch: 1, Sequence: 1,
		Gpus: &auspexv1.GpuColumns{
			Gpu: []uint32{0, 1}, BaseTime: at.UnixNano(), Delta: []int64{0, 1e6}, Uuid: []string{"GPU-aa", ""},
			GpuTempCelsius: []float64{41.5, math.NaN()}, TotalEnergyMillijoules: []float64{1 << 52, 7},
		},
		Samples: &auspexv1.SampleColumns{
			Symbols: []string{"", "auspex_fan_speed_rpm", "fan", "fan1", "zone", "front", "auspex_server_inlet_temperature_celsius"},
			Series:  []*auspexv1.Series{{Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 5}}, {Metric: 6}},
			Ref:     []uint32{0, 1, 0}, BaseTime: at.UnixNano(), Delta: []int64{0, 0, 1e9}, Value: []float64{8000, 22.5, 8010},
		},
	})
	publish(
		t, b, schemas.TopicEvents, "s1",
		&auspexv1.Batch{Device: "s1", Collector: "kmsg", Observed: at.UnixNano(), Events: []*auspexv1.Event{event("e1", at)}},
	)
	eventually(t, db, 1, "SELECT count() FROM events")
	eventually(t, db, 3, "SELECT count() FROM samples")
	eventually(t, db, 2, "SELECT count() FROM gpu")
	stop()
	for _, tc := range []struct{ query, want string }{
		{
			"SELECT toString(groupArray((resource, server, rack, site, model, collector, gpu, uuid, gpu_temp_celsius, total_energy_millijoules, isNaN(sm_clock_mhz)))) FROM (SELECT * FROM gpu ORDER BY gpu)",
			`[('s1/gpu0','s1','r1','dc1','DGX H100','dcgmexporter',0,'GPU-aa',41.5,4503599627370496,1),('s1/gpu1','s1','r1','dc1','DGX H100','dcgmexporter',1,'',nan,7,1)]`,
		},
		{
			"SELECT toString(groupArray((metric, resource, part_kind, part, labels, value))) FROM (SELECT * FROM samples ORDER BY metric, time)",
			`[('auspex_fan_speed_rpm','s1/fan1','fan','fan1','{"zone":"front"}',8000),('auspex_fan_speed_rpm','s1/fan1','fan','fan1','{"zone":"front"}',8010),('auspex_server_inlet_temperature_celsius','s1','','','',22.5)]`,
		},
		{
			"SELECT toString((id, resource, kind, device, rack, type, code, severity, attrs, observed = time)) FROM events",
			`('e1','s1/gpu0','gpu','s1','r1','gpu.xid','79','critical',{'pci':'0000:1b:00.0'},1)`,
		},
	} {
		var got string
		if err := db.Conn().QueryRow(t.Context(), tc.query).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != tc.want {
			t.Errorf("%s\n got %s\nwant %s", tc.query, got, tc.want)
		}
	}
}

func TestEveryStateOfARecordIsARow(t *testing.T) {
	e := embeddedtest.Start(t)
	db, b := history(t, e), mem.New(2)
	start(t, fast(), b, db)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	closed := at.Add(time.Minute)
	publish(t, b, schemas.TopicIncidents, "i1", schemas.Incident{
		ID: "i1", Opened: at, Updated: at, At: at, RootCause: schemas.Cause{Resource: "pdu", Fault: "power.feed_loss", Confidence: .9},
		Events: []string{"a", "b"}, Affected: []string{"s1"}, Revision: 1,
	})
	publish(
		t, b, schemas.TopicIncidents, "i1", schemas.Incident{ID: "i1", Opened: at, Updated: closed, At: closed, Closed: &closed, Revision: 2},
	)
	publish(t, b, schemas.TopicIncidents, "i2", map[string]any{"id": ""})
	if err := b.Publish(t.Context(), bus.Message{Topic: schemas.TopicIncidents, Key: "x", Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	publish(t, b, schemas.TopicPredictions, "s1", schemas.Prediction{ID: "p1", Time: at, Resource: "s1/fan1", ETAP50: &closed, Limit: 3000})
	publish(t, b, schemas.TopicOutcomes, "s1", schemas.Action{ID: "a1", Time: at, Server: "s1", Kind: "drain", State: "done", Rung: 1})
	eventually(t, db, 2, "SELECT count() FROM incidents")
	eventually(
		t, db, 1, "SELECT count() FROM incidents WHERE closed IS NULL AND events = 2 AND affected = ['s1'] AND fault = 'power.feed_loss'",
	)
	eventually(t, db, 1, `SELECT count() FROM predictions WHERE eta_p10 IS NULL AND eta_p50 = '2026-01-02 03:05:05' AND "limit" = 3000`)
	eventually(t, db, 1, "SELECT count() FROM actions WHERE JSONExtractString(doc, 'kind') = 'drain' AND kind = 'drain'")
	letters := make(chan string, 8)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	go func() {
		_ = b.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicDeadletter, Group: "test"}, func(_ context.Context, msgs []bus.Message) error {
			for _, m := range msgs {
				var l schemas.DeadLetter
				_ = json.Unmarshal(m.Value, &l)
				letters <- l.Reason
			}
			return nil
		})
	}()
	got := map[string]bool{<-letters: true, <-letters: true}
	if diff := cmp.Diff(map[string]bool{
		"record of incidents: id is missing": true, "record of incidents: unexpected end of JSON input": true,
	}, got); diff != "" {
		t.Error(diff)
	}
	cancel()
}

func TestAnEventThatWasReadTwiceIsStoredOnce(t *testing.T) {
	for _, remember := range []int{1000, 1} { // known from memory, or asked of the table
		t.Run(fmt.Sprintf("remembering %d", remember), func(t *testing.T) {
			e := embeddedtest.Start(t)
			db, b := history(t, e), mem.New(2)
			cfg := fast()
			cfg.RememberIDs = remember
			at := time.Now().UTC()
			for round := range 3 {
				_, stop := start(t, cfg, b, db)
				for i := range 10 {
					publish(t, b, schemas.TopicEvents, "s1", &auspexv1.Batch{
						Device: "s1", Collector: "kmsg", Observed: at.UnixNano(),
						Events: []*auspexv1.Event{event(fmt.Sprint("e", i), at), event(fmt.Sprint("e", i+round), at)},
					})
				}
				eventually(t, db, uint64(10+round), "SELECT count(DISTINCT id) FROM events")
				stop()
			}
			eventually(t, db, 12, "SELECT count() FROM events")
		})
	}
}

func TestABatchThatWasSentTwiceIsStoredOnce(t *testing.T) {
	e := embeddedtest.Start(t)
	db, b := history(t, e), mem.New(1)
	start(t, fast(), b, db)
	at := time.Now().UTC()
	for _, seq := range []uint64{1, 2, 1, 3} {
		publish(t, b, schemas.TopicTelemetry, "s1", &auspexv1.Batch{
			Device: "s1", Collector: "c", Epoch: 9, Sequence: seq, Observed: at.UnixNano(),
			Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, BaseTime: at.UnixNano(), Delta: []int64{0}, XidLast: []float64{float64(seq)}},
		})
	}
	eventually(t, db, 3, "SELECT toUInt64(max(xid_last)) FROM gpu")
	eventually(t, db, 3, "SELECT count() FROM gpu")
}

// flaky loses answers and requests.
type flaky struct {
	*clickhouse.DB
	mu   sync.Mutex
	n    int
	down bool
}

var errLost = errors.New("connection reset")

func (f *flaky) Insert(ctx context.Context, table, token string, columns []clickhouse.Column) error {
	f.mu.Lock()
	f.n++
	n, down := f.n, f.down
	f.mu.Unlock()
	if down || n%3 == 0 {
		return errLost
	}
	if err := f.DB.Insert(ctx, table, token, columns); err != nil || n%3 == 1 {
		return errors.Join(err, errLost) // written, but nobody knows
	}
	return nil
}

func (f *flaky) set(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

func TestLostAnswersAndAnOutageCostNothing(t *testing.T) {
	e := embeddedtest.Start(t)
	b := mem.New(2)
	db := &flaky{DB: history(t, e)}
	cfg := fast()
	cfg.MaxRows = 7 // many blocks
	s, _ := start(t, cfg, b, db)
	at := time.Now().UTC()
	n := 0
	send := func() {
		for range 10 {
			n++
			publish(
				t, b, schemas.TopicEvents, fmt.Sprint("s", n%5),
				&auspexv1.Batch{Device: "s1", Observed: at.UnixNano(), Events: []*auspexv1.Event{event(fmt.Sprint("e", n), at)}},
			)
		}
	}
	send()
	eventually(t, db.DB, 10, "SELECT count() FROM events")
	db.set(true)
	send()
	waittest.For(t, "health tells of it", func() bool { return s.Health() != nil })
	if err := s.Health(); !errors.Is(err, errLost) {
		t.Error(err)
	}
	db.set(false)
	eventually(t, db.DB, 20, "SELECT count() FROM events")
	waittest.Until(t, s.Health)
	eventually(t, db.DB, 20, "SELECT count(DISTINCT id) FROM events")
	eventually(t, db.DB, 20, "SELECT count() FROM events")
}

func TestAMessageOfTwoDaysMakesOnePart(t *testing.T) {
	e := embeddedtest.Start(t)
	db, b := history(t, e), mem.New(1)
	_, stop := start(t, fast(), b, db)
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	publish(t, b, schemas.TopicEvents, "s1", &auspexv1.Batch{
		Device: "s1", Observed: midnight.UnixNano(), Events: []*auspexv1.Event{event("a", midnight.Add(-time.Second)), event("b", midnight)},
	})
	publish(t, b, schemas.TopicEvents, "s1", &auspexv1.Batch{
		Device: "s1", Observed: midnight.Add(-time.Minute).UnixNano(), Events: []*auspexv1.Event{event("c", midnight.Add(-time.Minute))},
	})
	eventually(t, db, 3, "SELECT count() FROM events")
	stop()
	eventually(t, db, 2, "SELECT count() FROM system.parts WHERE table = 'events' AND database = 'auspex' AND active")
	eventually(t, db, 1, "SELECT toUInt64(uniqExact(toDate(observed))) FROM events WHERE id IN ('a', 'b')")
}

func TestABusThatWasBegunAnewIsReadFromItsStart(t *testing.T) {
	e := embeddedtest.Start(t)
	db := history(t, e)
	at := time.Now().UTC()
	n := 0
	for round, count := range []int{5, 3, 1} {
		b := mem.New(1)
		for range count {
			n++
			publish(t, b, schemas.TopicTelemetry, "s1", &auspexv1.Batch{
				Device: "s1", Observed: at.UnixNano(),
				Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, BaseTime: at.UnixNano(), Delta: []int64{int64(n) * 1e9}, XidLast: []float64{float64(n)}},
			})
		}
		for range 2 { // a restart on the same log stores nothing again
			_, stop := start(t, fast(), b, db)
			eventually(t, db, uint64(n), "SELECT count() FROM gpu")
			stop()
		}
		eventually(t, db, uint64(n), "SELECT count() FROM gpu")
		eventually(t, db, uint64(round), "SELECT toUInt64(max(bitShiftRight(bus_offset, 40))) FROM gpu")
	}
}

// BenchmarkTelemetry reports GPU rows of 34 metrics a second, from the bus to the
// engine, the engine's work included.
func BenchmarkTelemetry(b *testing.B) {
	e := embeddedtest.Start(b)
	db, on := history(b, e), mem.New(4)
	at := time.Now()
	batch := &auspexv1.Batch{
		Device: "s1", Collector: "dcgmexporter", Observed: at.UnixNano(), Gpus: &auspexv1.GpuColumns{BaseTime: at.UnixNano()},
	}
	for i := range uint32(8) {
		batch.Gpus.Gpu = append(batch.Gpus.Gpu, i)
		batch.Gpus.Delta = append(batch.Gpus.Delta, 0)
		for m, metric := range schemas.GPUMetrics {
			c := metric.Get(batch.Gpus)
			*c = append(*c, math.Sqrt(float64(int(i)*m)))
		}
	}
	for i := range b.N {
		batch.Device = fmt.Sprint("s", i%64)
		publish(b, on, schemas.TopicTelemetry, batch.Device, batch)
	}
	b.ResetTimer()
	_, stop := start(b, fast(), on, db)
	for n := uint64(0); n < uint64(8*b.N); time.Sleep(5 * time.Millisecond) { // asking costs time of what is measured
		if err := db.Conn().QueryRow(b.Context(), "SELECT count() FROM gpu").Scan(&n); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	stop()
	b.ReportMetric(float64(8*b.N)/b.Elapsed().Seconds(), "rows/s")
}
