package predictor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/predictor/messages"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type placer struct{}

func (placer) Part(device, kind, part string) cmdb.Placement {
	return cmdb.Placement{Resource: device + "/" + part, Kind: kind, Server: device, Site: "dc1"}
}

func (placer) GPU(device string, index uint32, _, _ string) cmdb.Placement {
	return placer{}.Part(device, "gpu", fmt.Sprint("gpu", index))
}

var began = time.Now().Add(-time.Hour).Truncate(time.Second)

// fans is a batch with a speed for each fan of a server.
func fans(server, collector string, at time.Duration, rpm ...float64) *auspexv1.Batch {
	c := &auspexv1.SampleColumns{Symbols: []string{"", "auspex_fan_speed_rpm", "fan"}, BaseTime: began.Add(at).UnixNano()}
	for i, v := range rpm {
		c.Series = append(c.Series, &auspexv1.Series{Metric: 1, PartKind: 2, Part: uint32(len(c.Symbols))})
		c.Symbols = append(c.Symbols, fmt.Sprint("fan", i+1))
		c.Ref, c.Delta, c.Value = append(c.Ref, uint32(i)), append(c.Delta, 0), append(c.Value, v)
	}
	return &auspexv1.Batch{Device: server, Collector: collector, Samples: c}
}

// stand runs a predictor on a bus and a database of its own.
type stand struct {
	t    *testing.T
	bus  *mem.Bus
	db   *sqldb.DB
	recs *records.Store
	sent []*auspexv1.Batch
	stop func()
}

func newStand(t *testing.T) *stand {
	t.Helper()
	db := sqltest.Open(t)
	s := &stand{t: t, bus: mem.New(2), db: db, recs: records.New(db)}
	t.Cleanup(func() { _ = s.bus.Close() })
	return s
}

// begin runs a predictor whose state is written to db.
func (s *stand) begin(db *sqldb.DB) (*Predictor, func()) {
	s.t.Helper()
	p, err := New(DefaultConfig(), Deps{Bus: s.bus, Placer: placer{}, Records: s.recs, DB: db, Metrics: prometheus.NewRegistry()})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- p.Run(ctx, func() { close(ready) }) }()
	<-ready
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return p, stop
}

// read waits until a predictor has read all that was sent.
func (s *stand) read(p *Predictor) {
	s.t.Helper()
	waittest.For(s.t, "the telemetry is read", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n, waits := int64(0), len(p.engine.changed)
		for _, next := range p.next {
			n += next
		}
		return n == int64(len(s.sent)) && waits == 0
	})
	p.flushing.Lock()   // what is being told is told
	p.flushing.Unlock() //nolint:staticcheck // it is the wait that counts
}

// published is how many changes of predictions were published.
func (s *stand) published() int {
	s.t.Helper()
	mark := fmt.Sprint("mark-", len(s.sent), time.Now().UnixNano())
	n := 0
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.bus.Publish(ctx, bus.Message{Topic: schemas.TopicPredictions, Key: "gpu-r01-01", Value: []byte(mark)}); err != nil {
		s.t.Fatal(err)
	}
	err := s.bus.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicPredictions, Start: func(context.Context, int) (int64, error) { return 0, nil },
	}, func(_ context.Context, msgs []bus.Message) error {
		for _, m := range msgs {
			switch {
			case string(m.Value) == mark:
				cancel()
			case !strings.HasPrefix(string(m.Value), "mark-"):
				n++
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stand) start(r Records) {
	s.t.Helper()
	p, err := New(DefaultConfig(), Deps{Bus: s.bus, Placer: placer{}, Records: r, DB: s.db, Metrics: prometheus.NewRegistry()})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- p.Run(ctx, func() { close(ready) }) }()
	<-ready
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
}

func (s *stand) send(bs ...*auspexv1.Batch) {
	s.t.Helper()
	for _, b := range bs {
		v, err := b.MarshalVT()
		if err != nil {
			s.t.Fatal(err)
		}
		s.sent = append(s.sent, b)
		if err := s.bus.Publish(s.t.Context(), bus.Message{Topic: schemas.TopicTelemetry, Key: b.Device, Value: v}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// await returns the newest prediction once it has a state.
func (s *stand) await(state string) schemas.Prediction {
	s.t.Helper()
	var ps []schemas.Prediction
	waittest.Until(s.t, func() (err error) {
		if ps, _, err = s.recs.Predictions(s.t.Context(), records.Filter{}); err != nil {
			s.t.Fatal(err)
		}
		if len(ps) == 0 || ps[0].State != state {
			return fmt.Errorf("no prediction became %s: %+v", state, ps)
		}
		return nil
	})
	return ps[0]
}

// wear sends readings of eight fans, the third of which wears, while the load of
// the server goes up and down.
func (s *stand) wear(from, to time.Duration) {
	s.t.Helper()
	for at := from; at < to; at += 10 * time.Second {
		duty := 9000.0
		if int(at.Minutes())%2 == 1 {
			duty = 10500
		}
		rpm := make([]float64, 8)
		for i := range rpm {
			rpm[i] = duty + float64((int(at.Seconds())/10*7+i*13)%9)
		}
		rpm[2] *= 1 - at.Seconds()/1800
		s.send(fans("gpu-r01-01", "redfish", at, rpm...))
	}
}

// healthy sends readings of eight fans that turn alike.
func (s *stand) healthy(from, to time.Duration, speed float64) {
	s.t.Helper()
	for at := from; at < to; at += 10 * time.Second {
		n := float64(int(at.Seconds()) / 10 % 5)
		s.send(fans("gpu-r01-01", "redfish", at, speed+n, speed+3-n, speed+1+n, speed+2, speed+4-n, speed+1, speed, speed+2+n))
	}
}

func TestWornFanIsToldAndComesTrue(t *testing.T) {
	s := newStand(t)
	s.start(s.recs)
	s.wear(0, 4*time.Minute)
	p := s.await(schemas.PredictionOpen)
	if p.Resource != "gpu-r01-01/fan3" || p.Metric != "auspex_fan_speed_rpm" || p.Failure != "cooling.fan_failure" || !p.Below ||
		p.Limit < 5400 || p.Limit > 6310 {
		t.Errorf("prediction %+v", p)
	}
	if p.ETAP10 == nil || p.ETAP10.After(*p.ETAP90) || p.Probability < 0.5 || p.SlopePerHour >= 0 || p.Site != "dc1" {
		t.Errorf("prediction %+v", p)
	}
	// Six tenths of what its neighbours turn at.
	sentence := fmt.Sprintf("fan3 of gpu-r01-01 falls below %s rpm (a default: the device gives no limit) in about ", messages.Number(p.Limit))
	if !strings.HasPrefix(p.Explanation, sentence) || p.Sentence.ID != messages.Of(messages.Falls, schemas.LimitDefault) ||
		p.LimitSource != schemas.LimitDefault {
		t.Errorf("said %q", p.Explanation)
	}
	s.wear(4*time.Minute, 18*time.Minute)
	if q := s.await(schemas.PredictionCameTrue); q.ID != p.ID {
		t.Errorf("%s came true, %s was told", q.ID, p.ID)
	}
	all, _, err := s.recs.Predictions(t.Context(), records.Filter{})
	if err != nil || len(all) != 1 {
		t.Errorf("%d predictions, %v", len(all), err)
	}
}

func TestRestartGoesOnWhereItStopped(t *testing.T) {
	s := newStand(t)
	s.start(s.recs)
	s.wear(0, 4*time.Minute)
	p := s.await(schemas.PredictionOpen)
	s.stop()
	s.start(s.recs)
	s.wear(4*time.Minute, 18*time.Minute)
	if q := s.await(schemas.PredictionCameTrue); q.ID != p.ID {
		t.Errorf("after the restart %s came true, before it %s was told", q.ID, p.ID)
	}
}

func TestExchangedFanEndsItsPrediction(t *testing.T) {
	s := newStand(t)
	s.start(s.recs)
	s.wear(0, 5*time.Minute)
	p := s.await(schemas.PredictionOpen)
	s.healthy(5*time.Minute, 15*time.Minute, 9000)
	if q := s.await(schemas.PredictionAverted); q.ID != p.ID {
		t.Errorf("%s ended, %s was told", q.ID, p.ID)
	}
}

// TestFanExchangedWhileAwayIsAverted exchanges the fan while the predictor is not
// there to see it, and the server then runs at another speed.
func TestFanExchangedWhileAwayIsAverted(t *testing.T) {
	for _, away := range []time.Duration{10 * time.Second, 3 * time.Minute, 2 * time.Hour} {
		for _, rpm := range []float64{7500, 9000, 12000} {
			t.Run(fmt.Sprint(away, " ", rpm), func(t *testing.T) {
				s := newStand(t)
				s.start(s.recs)
				s.wear(0, 5*time.Minute)
				p := s.await(schemas.PredictionOpen)
				s.stop()
				s.start(s.recs)
				s.healthy(5*time.Minute+away, 35*time.Minute+away, rpm)
				if q := s.await(schemas.PredictionAverted); q.ID != p.ID {
					t.Errorf("%s ended, %s was told", q.ID, p.ID)
				}
			})
		}
	}
}

// TestCrashLosesNothing ends a predictor without a last word, after it has read
// more than it had written, and holds what the next one knows against one that
// never ended.
func TestCrashLosesNothing(t *testing.T) {
	for _, last := range []time.Duration{7 * time.Minute, 14 * time.Minute} { // the prediction stands; it has come true
		t.Run(last.String(), func(t *testing.T) {
			s := newStand(t)
			p, stop := s.begin(s.db)
			s.wear(0, 2*time.Minute)
			s.read(p)
			if err := p.save(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.wear(2*time.Minute, last)
			s.read(p)
			s.await(map[bool]string{true: schemas.PredictionOpen, false: schemas.PredictionCameTrue}[last < 10*time.Minute])
			before, _, err := s.recs.Predictions(t.Context(), records.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			crash(p)
			stop()

			published := s.published()
			p, _ = s.begin(s.db)
			s.read(p)
			after, _, err := s.recs.Predictions(t.Context(), records.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error("predictions (-before the crash +after):", diff)
			}
			if n := s.published(); n != published {
				t.Errorf("%d changes of predictions were told, %d before the crash", n, published)
			}
			whole, err := New(DefaultConfig(), Deps{Bus: s.bus, Placer: placer{}, Records: records.New(s.db)})
			if err != nil {
				t.Fatal(err)
			}
			s.read(p)
			for _, b := range s.sent {
				whole.engine.Batch(b)
			}
			if diff := cmp.Diff(known(whole), known(p)); diff != "" {
				t.Error("state of the series (-without +after the crash):", diff)
			}
		})
	}
}

// hot is a row of a GPU that is cooled worse from day to day, under a load that
// comes and goes.
func hot(at time.Duration) *auspexv1.Batch {
	quarters := int(at / (15 * time.Minute))
	load := float64(quarters / 30 * 7 % 11)
	power := 250 + 30*load + float64(quarters*13%9)
	temp := 30 + power*(0.04+0.00007*at.Hours()) + float64(quarters*5%3)
	return &auspexv1.Batch{Device: "gpu-r01-01", Collector: "dcgm", Gpus: &auspexv1.GpuColumns{
		Gpu: []uint32{0}, BaseTime: began.Add(at).UnixNano(), Delta: []int64{0}, GpuTempCelsius: []float64{temp},
		PowerUsageWatts: []float64{power}, GpuUtilPercent: []float64{9 * load},
	}}
}

// builtinEngine follows the built-in limits.
func builtinEngine(t *testing.T) *engine {
	t.Helper()
	limits, err := ReadLimits("")
	if err != nil {
		t.Fatal(err)
	}
	return newEngine(DefaultConfig(), limits, placer{})
}

// TestWhatTheLoadExplainsSurvives takes an engine over from what was written a
// while before it ended, after its series have learnt what drives them.
func TestWhatTheLoadExplainsSurvives(t *testing.T) {
	const quarter, day = 15 * time.Minute, 24 * time.Hour
	whole, after := builtinEngine(t), builtinEngine(t)
	states := map[string][]byte{}
	for at := time.Duration(0); at < 12*day; at += quarter {
		if at == 11*day {
			for _, s := range whole.states() {
				states[s.id] = s.state
			}
		}
		whole.Batch(hot(at))
	}
	after.saved = states
	for at := 10 * day; at < 12*day; at += quarter { // the position is older than some of the states
		after.Batch(hot(at))
	}
	temp := hashOf("DCGM_FI_DEV_GPU_TEMP", "gpu", "gpu0")
	follows := func(e *engine) []byte {
		for _, s := range e.devices[deviceKey{"gpu-r01-01", "dcgm"}].all {
			if strings.HasSuffix(s.id, "/"+strconv.FormatUint(temp, 16)) {
				return s.state()
			}
		}
		t.Fatal("the temperature is not followed")
		return nil
	}
	if !bytes.Equal(follows(whole), follows(after)) {
		t.Error("what was read again is not what would have been known without the crash")
	}
	if short := len(
		builtinEngine(t).track(deviceKey{}, &device{}, whole.gpu[1].limit, 1, cmdb.Placement{}, "").state(),
	); len(follows(whole)) < short+1000 {
		t.Error("no load was learnt")
	}
}

func TestStateIsTakenWholeOrNotAtAll(t *testing.T) {
	e := builtinEngine(t)
	for at := time.Duration(0); at < 10*time.Minute; at += 10 * time.Second {
		e.Batch(fans("a", "redfish", at, 9000-at.Seconds(), 9010, 9020, 9000, 9010))
	}
	for at := time.Duration(0); at < 8*24*time.Hour; at += 15 * time.Minute {
		e.Batch(hot(at))
	}
	followed := slices.Concat(e.devices[deviceKey{"a", "redfish"}].all[:1], e.devices[deviceKey{"gpu-r01-01", "dcgm"}].all)
	blank := builtinEngine(t)
	for _, worn := range followed {
		whole := worn.state()
		fresh := func() *tracked {
			return blank.track(deviceKey{}, &device{}, worn.limit, 1, worn.place, worn.part)
		}
		nothing := fresh().state()
		for n := range len(whole) {
			s := fresh()
			if s.restore(whole[:n]); !bytes.Equal(s.state(), nothing) {
				t.Fatalf("%s: took %d of %d bytes", worn.limit.Metric, n, len(whole))
			}
			bad := slices.Clone(whole)
			bad[n] ^= 1 << (n % 8)
			if s.restore(bad); !bytes.Equal(s.state(), nothing) {
				t.Fatalf("%s: took a state whose byte %d is wrong", worn.limit.Metric, n)
			}
		}
		s := fresh()
		if s.restore(whole); !bytes.Equal(s.state(), whole) {
			t.Errorf("%s: a state is not what it was after it was read", worn.limit.Metric)
		}
	}
}

// known is the state of every series of a predictor.
func known(p *Predictor) map[string][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string][]byte{}
	for _, d := range p.engine.devices {
		for _, t := range d.all {
			out[t.id] = t.state()
		}
	}
	return out
}

// crash lets a predictor write nothing more.
func crash(p *Predictor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.d.DB = nil
}

// flaky fails a few times before it writes.
type flaky struct {
	*records.Store
	mu   sync.Mutex
	left int
}

func (f *flaky) PutPrediction(ctx context.Context, p schemas.Prediction) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left >= 0 {
		return errors.New("the disk is full")
	}
	return f.Store.PutPrediction(ctx, p)
}

func TestPredictionWaitsForTheStore(t *testing.T) {
	s := newStand(t)
	s.start(&flaky{Store: s.recs, left: 3})
	s.wear(0, 6*time.Minute)
	p := s.await(schemas.PredictionOpen)
	got := make(chan schemas.Prediction, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := s.bus.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicPredictions, Group: "test",
	}, func(_ context.Context, msgs []bus.Message) error {
		var q schemas.Prediction
		if err := json.Unmarshal(msgs[0].Value, &q); err != nil {
			return err
		}
		select {
		case got <- q:
		default:
		}
		cancel()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if q := <-got; q.ID != p.ID {
		t.Errorf("published %s, kept %s", q.ID, p.ID)
	}
}

// deafBus takes nothing, and lets everybody wait.
type deafBus struct{ bus.Bus }

func (deafBus) Publish(ctx context.Context, _ ...bus.Message) error {
	<-ctx.Done()
	return ctx.Err()
}

func (deafBus) Subscribe(ctx context.Context, _ bus.Subscription, _ bus.Handler) error {
	<-ctx.Done()
	return nil
}

// noRecords keeps nothing.
type noRecords struct{}

func (noRecords) PutPrediction(context.Context, schemas.Prediction) error { return nil }

func (noRecords) Predictions(context.Context, records.Filter) ([]schemas.Prediction, string, error) {
	return nil, "", nil
}

// TestABatchThatContradictsItselfStopsNothing: its series refer to names that it
// does not hold.
func TestABatchThatContradictsItselfStopsNothing(t *testing.T) {
	s := newStand(t)
	bad := &auspexv1.Batch{Device: "gpu-r01-01", Samples: &auspexv1.SampleColumns{
		Symbols: []string{""}, Series: []*auspexv1.Series{{Metric: 7}}, Ref: []uint32{0, 3}, Delta: []int64{0, 0}, Value: []float64{1, 2},
	}}
	v, err := bad.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bus.Publish(t.Context(), bus.Message{Topic: schemas.TopicTelemetry, Key: bad.GetDevice(), Value: v}); err != nil {
		t.Fatal(err)
	}
	s.sent = append(s.sent, bad)
	p, stop := s.begin(s.db)
	s.read(p)
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	letters := 0
	err = s.bus.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicDeadletter, Group: "test",
	}, func(_ context.Context, msgs []bus.Message) error {
		letters += len(msgs)
		cancel()
		return nil
	})
	if err != nil || letters != 1 {
		t.Errorf("%d dead letters, %v", letters, err)
	}
}

func TestAStopDoesNotWaitForABusThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(DefaultConfig(), Deps{Bus: deafBus{}, Placer: placer{}, Records: noRecords{}})
		if err != nil {
			t.Fatal(err)
		}
		p.engine.changed["prd-1"] = schemas.Prediction{ID: "prd-1", State: schemas.PredictionOpen}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx, func() {}) }()
		time.Sleep(5 * time.Second) // it tries to tell
		cancel()
		began := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > endTime {
			t.Errorf("ended %s after it was told to", took)
		}
	})
}

func TestSilentSeriesExpires(t *testing.T) {
	e := builtinEngine(t)
	key := openKey{"a/fan1", "auspex_fan_speed_rpm"}
	e.open[key] = &opened{prediction: schemas.Prediction{
		ID: "prd-1", State: schemas.PredictionOpen, Time: began, Resource: "a/fan1", Server: "a", Metric: key.metric,
	}}
	now := began.Add(time.Hour)
	e.Expire(now) // its series may just not have been read since the restart
	if len(e.changed) != 0 {
		t.Fatal("expired at once")
	}
	e.Expire(now.Add(16 * time.Minute))
	if got := e.changed["prd-1"].State; got != schemas.PredictionExpired {
		t.Errorf("state %q", got)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	limits, err := ReadLimits("")
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.MaxSeries = 5
	e := newEngine(cfg, limits, placer{})
	e.Batch(fans("a", "redfish", 0, 9000, 9000, 9000, 9000, 9000, 9000, 9000, 9000))
	if e.n != 5 {
		t.Errorf("%d series, want 5", e.n)
	}
}

func TestMalformedColumnsDoNoHarm(t *testing.T) {
	e := builtinEngine(t)
	b := fans("a", "redfish", 0, 9000, 9000)
	b.Samples.Ref = []uint32{7, 1}
	b.Samples.Delta = b.Samples.Delta[:1]
	b.Samples.Series[0].Metric = 99
	b.Gpus = &auspexv1.GpuColumns{Gpu: []uint32{0, 1}, Delta: []int64{0}, GpuTempCelsius: nil, MemoryTempCelsius: []float64{}}
	e.Batch(b)
	e.Batch(&auspexv1.Batch{Device: "a"})
}

func TestLimitsFileNamesItsErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no limit", "limits: [{metric: m, horizon: 1h}]", "needs either above or below"},
		{"both", "limits: [{metric: m, above: 1, below: 2, horizon: 1h}]", "needs either above or below"},
		{"no horizon", "limits: [{metric: m, above: 1}]", "horizon must be positive"},
		{"unknown key", "limits: [{metric: m, abov: 1}]", "abov"},
		{"peers of a negative limit", "limits: [{metric: m, below: -1, peers: true, horizon: 1h}]", "must be positive"},
		{"good", "limits: [{metric: m, below: -1, horizon: 1h}]", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.yaml")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadLimits(path)
			if tc.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func FuzzParseLimits(f *testing.F) {
	f.Add(builtin)
	f.Fuzz(func(t *testing.T, b []byte) {
		ls, err := parseLimits(b)
		if err != nil {
			return
		}
		for i := range ls {
			ls[i].value()
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	rpm := []float64{9000, 9010, 9020, 9000, 9010, 9020, 9000, 9010}
	rows := &auspexv1.GpuColumns{}
	for gpu := range uint32(8) {
		rows.Gpu, rows.Delta = append(rows.Gpu, gpu), append(rows.Delta, 0)
		for _, m := range schemas.GPUMetrics {
			c := m.Get(rows)
			*c = append(*c, 40+float64(gpu))
		}
	}
	for _, bc := range []struct {
		name    string
		samples int // with a limit
		batch   *auspexv1.Batch
		next    func(*auspexv1.Batch)
	}{
		{"fans", len(rpm), fans("a", "redfish", 0, rpm...), func(b *auspexv1.Batch) { b.Samples.BaseTime += int64(10 * time.Second) }},
		{"gpus", 4 * 8, &auspexv1.Batch{Device: "a", Collector: "dcgm", Gpus: rows}, func(b *auspexv1.Batch) {
			b.Gpus.BaseTime += int64(10 * time.Second)
			for i := range b.Gpus.Gpu { // a load that comes and goes
				load := float64(b.Gpus.BaseTime/int64(10*time.Minute)%7) + float64(i)
				b.Gpus.PowerUsageWatts[i], b.Gpus.GpuTempCelsius[i], b.Gpus.MemoryTempCelsius[i] = 300+50*load, 40+3*load, 50+3*load
			}
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			limits, err := ReadLimits("")
			if err != nil {
				b.Fatal(err)
			}
			e := newEngine(DefaultConfig(), limits, placer{})
			b.ReportAllocs()
			for b.Loop() {
				bc.next(bc.batch)
				e.Batch(bc.batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bc.samples), "ns/sample")
		})
	}
}
