package wire_test

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
	"auspex/internal/bus/wire"
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
	if err := wire.Check(good()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(*auspexv1.Batch)
		want  string
	}{
		"no device":      {func(b *auspexv1.Batch) { b.Device = "" }, "no device"},
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
			err := wire.Check(b)
			if !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestUndecodableMessagesBecomeDeadLetters(t *testing.T) {
	b, reg := mem.New(2), prometheus.NewRegistry()
	defer func() { _ = b.Close() }()
	d := wire.New("test", b, nil, reg)
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
	if err := b.Subscribe(ctx, bus.Subscription{
		Topic: schemas.TopicDeadletter, Group: "g",
	}, func(_ context.Context, msgs []bus.Message) error {
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

func TestReadersOfATopicWriteTheSameLetter(t *testing.T) {
	m := bus.Message{Topic: "alerts", Key: "s1", Value: []byte(`{"id":`), Partition: 1, Offset: 42}
	type thing struct{ ID string }
	ids := map[string]bool{}
	for _, reader := range []string{"history", "notify"} {
		b := mem.New(1)
		if v, ok := wire.Record[thing](t.Context(), wire.New(reader, b, nil, nil), m, nil); ok {
			t.Fatalf("read %+v", v)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.Subscribe(ctx, bus.Subscription{
			Topic: schemas.TopicDeadletter, Group: "g",
		}, func(_ context.Context, msgs []bus.Message) error {
			cancel()
			var l schemas.DeadLetter
			err := json.Unmarshal(msgs[0].Value, &l)
			ids[l.ID] = true
			return err
		}); err != nil {
			t.Fatal(err)
		}
		_ = b.Close()
	}
	if len(ids) != 1 {
		t.Errorf("letters %v", ids)
	}
}

func TestARecordIsCheckedAsItsReaderAsks(t *testing.T) {
	type thing struct{ ID string }
	named := func(x *thing) error {
		if x.ID == "" {
			return errors.New("without id")
		}
		return nil
	}
	for in, ok := range map[string]bool{`{"id":"x"}`: true, `{"id":""}`: false, `{`: false, ``: false} {
		b := mem.New(1)
		if v, got := wire.Record(t.Context(), wire.New("r", b, nil, nil), bus.Message{Topic: "incidents", Value: []byte(in)}, named); got != ok ||
			ok && v.ID != "x" {
			t.Errorf("%q: %+v, %v", in, v, got)
		}
		_ = b.Close()
	}
}

func FuzzBatch(f *testing.F) {
	v, _ := good().MarshalVT()
	f.Add(v)
	f.Fuzz(func(t *testing.T, in []byte) {
		b := &auspexv1.Batch{}
		if b.UnmarshalVT(in) != nil || wire.Check(b) != nil {
			return
		}
		s := b.GetSamples()
		for i, r := range s.GetRef() { // whatever passes can be read without looking again
			_ = s.Symbols[s.Series[r].GetMetric()]
			_ = s.Value[i] + float64(s.Delta[i])
		}
	})
}
