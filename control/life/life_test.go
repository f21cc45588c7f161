package life_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/control"
	"auspex/control/life"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// placer names parts as the collectors do, and counts what it is asked.
type placer struct {
	mu    sync.Mutex
	asked int
}

func (p *placer) Part(device, kind, part string) cmdb.Placement {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if part == "" {
		return cmdb.Placement{Resource: device, Kind: schemas.KindServer}
	}
	return cmdb.Placement{Resource: device + "/" + part, Kind: kind}
}

func (p *placer) GPU(device string, index uint32, _, _ string) cmdb.Placement {
	return p.Part(device, schemas.KindGPU, "gpu"+strconv.Itoa(int(index)))
}

func (p *placer) Event(ev *schemas.Event) cmdb.Placement {
	return p.Part(ev.Resource, schemas.KindGPU, ev.Attrs["part"])
}

type ear struct {
	mu       sync.Mutex
	observed []control.Observation
	grown    chan struct{}
}

func (e *ear) observe(h control.Observation) {
	e.mu.Lock()
	e.observed = append(e.observed, h)
	e.mu.Unlock()
	select {
	case e.grown <- struct{}{}:
	default:
	}
}

func (e *ear) all() []control.Observation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]control.Observation(nil), e.observed...)
}

// follow listens to a device on a bus until the test ends; it returns when the
// first message after the beginning was heard.
func follow(t *testing.T, b *mem.Bus, p *placer, device string) (e *ear, end func() error, done <-chan error) {
	t.Helper()
	e = &ear{grown: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (life.Bus{Bus: b, Placer: p}).Follow(ctx, device, e.observe) }()
	follows := func(topic string, w *auspexv1.Batch) {
		for { // it begins at the newest message: what comes before is not its
			publish(t, b, topic, w)
			select {
			case <-e.grown:
				return
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	follows(schemas.TopicTelemetry, &auspexv1.Batch{
		Device: device, Collector: "first", Gpus: &auspexv1.GpuColumns{Gpu: []uint32{9}, Delta: []int64{0}, GpuTempCelsius: []float64{1}},
	})
	follows(schemas.TopicEvents, &auspexv1.Batch{Device: device, Collector: "first", Events: []*auspexv1.Event{{Id: "first", Resource: device}}})
	return e, func() error { cancel(); return <-ended }, ended
}

func publish(t *testing.T, b *mem.Bus, topic string, w *auspexv1.Batch) {
	t.Helper()
	v, err := w.MarshalVT()
	if err == nil {
		err = b.Publish(t.Context(), bus.Message{Topic: topic, Key: w.GetDevice(), Value: v})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsReadOfADeviceIsHeardOnceAPartAndBatch(t *testing.T) {
	b := mem.New(4)
	defer func() { _ = b.Close() }()
	p := &placer{}
	e, end, _ := follow(t, b, p, "s1")
	nan := math.NaN()
	publish(t, b, schemas.TopicTelemetry, &auspexv1.Batch{
		Device: "s1", Collector: "dcgmexporter", Observed: 5000,
		Gpus: &auspexv1.GpuColumns{
			Gpu: []uint32{0, 1, 2}, BaseTime: 4000, Delta: []int64{1, 2, 3},
			GpuTempCelsius: []float64{40, nan, nan}, XidLast: []float64{0, 79, nan}, // GPU 1 is gone: the driver only remembers why
		},
		Samples: &auspexv1.SampleColumns{
			Symbols: []string{"", "auspex_fan_speed_rpm", "fan", "fan1", "auspex_fan_speed_rpm_threshold", "fan2", "fan3"},
			Series: []*auspexv1.Series{
				{Metric: 1, PartKind: 2, Part: 3}, {Metric: 4, PartKind: 2, Part: 5}, {Metric: 1, PartKind: 2, Part: 6},
			},
			Ref: []uint32{0, 0, 1, 2}, BaseTime: 3000, Delta: []int64{5, 9, 1, 1}, Value: []float64{4000, 4001, 900, nan},
		},
	})
	publish(t, b, schemas.TopicEvents, &auspexv1.Batch{Device: "s1", Collector: "kmsg", Observed: 6000, Events: []*auspexv1.Event{
		{Id: "e", Time: 5500, Resource: "s1", Type: "gpu.xid", Severity: "critical", Attrs: map[string]string{"part": "gpu0"}},
	}})
	got := map[string]control.Observation{}
	for len(got) < 3 {
		select {
		case <-e.grown:
		case <-time.After(time.Minute):
			t.Fatalf("heard %v", e.all())
		}
		for _, h := range e.all() {
			if h.Collector != "first" {
				key := h.Resource
				if h.Event != nil {
					key += " " + h.Event.Type
				}
				got[key] = h
			}
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	for key, want := range map[string][2]int64{"s1/gpu0": {4001, 5000}, "s1/fan1": {3009, 5000}, "s1/gpu0 gpu.xid": {5500, 6000}} {
		h, ok := got[key]
		if !ok || h.Time.UnixNano() != want[0] || h.Observed.UnixNano() != want[1] {
			t.Errorf("%s: %+v", key, h)
		}
		delete(got, key)
	}
	for key := range got {
		t.Errorf("%s was heard and did not speak", key)
	}
}

// What the driver remembers of errors is no reading of the part; each number comes
// under a name of its own, so that the vigil sees which of them moves.
func TestNumbersComeWithTheirSeries(t *testing.T) {
	got := map[string]float64{}
	life.ReadTo(life.Bus{Placer: &placer{}}, &auspexv1.Batch{
		Device: "s1", Collector: "c", Observed: 1,
		Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, Delta: []int64{0}, GpuTempCelsius: []float64{40}, XidLast: []float64{79}},
		Samples: &auspexv1.SampleColumns{
			Symbols: []string{"", "DCGM_EXP_XID_ERRORS_COUNT", "gpu", "gpu1", "auspex_gpu_power_watts", "sensor", "a", "b"},
			Series: []*auspexv1.Series{
				{Metric: 1, PartKind: 2, Part: 3},
				{Metric: 4, PartKind: 2, Part: 3, Labels: []uint32{5, 6}},
				{Metric: 4, PartKind: 2, Part: 3, Labels: []uint32{5, 7}},
			},
			Ref: []uint32{0, 1, 2}, Delta: []int64{0, 0, 0}, Value: []float64{7, 100, 200},
		},
	}, func(h control.Observation) {
		for _, v := range h.Values {
			got[h.Resource+" "+strings.ReplaceAll(v.Series, "\x00", " ")] = v.Number
		}
	})
	want := map[string]float64{
		"s1/gpu0 DCGM_FI_DEV_GPU_TEMP": 40, "s1/gpu1 auspex_gpu_power_watts sensor a": 100, "s1/gpu1 auspex_gpu_power_watts sensor b": 200,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Nothing of other devices is decoded, though they share the partition.
func TestOtherDevicesAreSkippedBeforeTheyAreDecoded(t *testing.T) {
	b := mem.New(1)
	defer func() { _ = b.Close() }()
	p := &placer{}
	e, end, _ := follow(t, b, p, "s1")
	p.mu.Lock()
	before := p.asked
	p.mu.Unlock()
	for i := range 100 {
		publish(t, b, schemas.TopicTelemetry, &auspexv1.Batch{
			Device: "s" + strconv.Itoa(2+i), Collector: "c",
			Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, Delta: []int64{0}, GpuTempCelsius: []float64{1}},
		})
	}
	if err := b.Publish(t.Context(), bus.Message{Topic: schemas.TopicTelemetry, Key: "s1", Value: []byte("\xff\xff")}); err != nil {
		t.Fatal(err) // what is malformed says nothing, and ends nothing
	}
	publish(t, b, schemas.TopicTelemetry, &auspexv1.Batch{
		Device: "s1", Collector: "last", Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, Delta: []int64{0}, GpuTempCelsius: []float64{1}},
	})
	for end := time.Now().Add(time.Minute); ; {
		if all := e.all(); len(all) > 0 && all[len(all)-1].Collector == "last" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the last was not heard")
		}
		select {
		case <-e.grown:
		case <-time.After(time.Second):
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if n := p.asked - before; n != 1 {
		t.Errorf("%d parts were placed, want 1", n)
	}
}

func TestABusThatBreaksOffIsAnErrorSinceSomethingMayBeMissed(t *testing.T) {
	b := mem.New(2)
	p := &placer{}
	_, _, done := follow(t, b, p, "s1")
	_ = b.Close()
	if err := <-done; !errors.Is(err, bus.ErrClosed) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	w := &auspexv1.Batch{
		Device: "s1", Collector: "c", Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0}, Delta: []int64{0}, GpuTempCelsius: []float64{1}},
	}
	v, _ := w.MarshalVT()
	f.Add(v)
	f.Fuzz(func(_ *testing.T, in []byte) {
		var w auspexv1.Batch
		if w.UnmarshalVT(in) == nil {
			life.Read(life.Bus{Placer: &placer{}}, &w)
		}
	})
}
