package decode_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/pipeline/decode"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func good() *auspexv1.Batch {
	return &auspexv1.Batch{
		Device: "s1", Collector: "c", Epoch: 1, Sequence: 1,
		Samples: &auspexv1.SampleColumns{
			Symbols: []string{"", "m", "fan", "fan1", "k", "v"},
			Series:  []*auspexv1.Series{{Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 5}}},
			Ref:     []uint32{0, 0}, Delta: []int64{0, 1}, Value: []float64{1, 2},
		},
		Gpus: &auspexv1.GpuColumns{Gpu: []uint32{0, 1}, Delta: []int64{0, 0}, GpuTempCelsius: []float64{40, 41}},
	}
}

func TestContradictionsAreFound(t *testing.T) {
	if err := decode.Check(good()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(*auspexv1.Batch)
		want  string
	}{
		"no device":      {func(b *auspexv1.Batch) { b.Device = "" }, "names no device"},
		"short times":    {func(b *auspexv1.Batch) { b.Samples.Delta = nil }, "2 series references, 0 times, 2 values"},
		"short values":   {func(b *auspexv1.Batch) { b.Samples.Value = b.Samples.Value[:1] }, "1 values"},
		"series beyond":  {func(b *auspexv1.Batch) { b.Samples.Ref[1] = 7 }, "sample 1 refers to series 7 of 1"},
		"symbol beyond":  {func(b *auspexv1.Batch) { b.Samples.Series[0].Metric = 6 }, "series 0 refers beyond 6 symbols"},
		"label beyond":   {func(b *auspexv1.Batch) { b.Samples.Series[0].Labels[1] = 9 }, "series 0"},
		"odd labels":     {func(b *auspexv1.Batch) { b.Samples.Series[0].Labels = []uint32{1} }, "series 0"},
		"short column":   {func(b *auspexv1.Batch) { b.Gpus.GpuTempCelsius = []float64{1} }, "1 values of DCGM_FI_DEV_GPU_TEMP"},
		"short identity": {func(b *auspexv1.Batch) { b.Gpus.Uuid = []string{"a"} }, "1 identities"},
		"GPU times":      {func(b *auspexv1.Batch) { b.Gpus.Delta = nil }, "2 GPU rows, 0 times"},
	} {
		t.Run(name, func(t *testing.T) {
			b := good()
			c.spoil(b)
			err := decode.Check(b)
			if !errors.Is(err, decode.ErrMalformed) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestUndecodableMessagesBecomeDeadLetters(t *testing.T) {
	b, reg := mem.New(2), prometheus.NewRegistry()
	defer func() { _ = b.Close() }()
	d := decode.New("test", b, nil, reg)
	ok, err := good().MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if got, fine := d.Batch(t.Context(), bus.Message{Topic: "telemetry", Key: "s1", Value: ok}); !fine || got.GetDevice() != "s1" {
		t.Fatal(got, fine)
	}
	garbage := bus.Message{Topic: "telemetry", Key: "s1", Value: []byte("\xff\xffgarbage"), Partition: 1, Offset: 42}
	if _, fine := d.Batch(t.Context(), garbage); fine {
		t.Fatal("garbage was decoded")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var letter schemas.DeadLetter
	if err := b.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicDeadletter, Group: "g"}, func(_ context.Context, msgs []bus.Message) error {
		cancel()
		return json.Unmarshal(msgs[0].Value, &letter)
	}); err != nil {
		t.Fatal(err)
	}
	if letter.Origin != "telemetry/1/42 of s1" || letter.Reason == "" || string(letter.Record) != string(garbage.Value) {
		t.Errorf("%+v", letter)
	}
	if n := testutil.CollectAndCount(reg, "auspex_decode_dead_letters_total"); n != 1 {
		t.Errorf("%d series of dead letters", n)
	}
}

func FuzzBatch(f *testing.F) {
	v, _ := good().MarshalVT()
	f.Add(v)
	f.Fuzz(func(t *testing.T, in []byte) {
		b := &auspexv1.Batch{}
		if b.UnmarshalVT(in) != nil || decode.Check(b) != nil {
			return
		}
		s := b.GetSamples()
		for i, r := range s.GetRef() { // whatever passes can be read without looking again
			_ = s.Symbols[s.Series[r].GetMetric()]
			_ = s.Value[i] + float64(s.Delta[i])
		}
	})
}
