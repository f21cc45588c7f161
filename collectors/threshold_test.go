package collectors

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func limitOf(b schemas.Bound, v float64) Threshold { return Threshold{Bound: b, Value: v} }

// recorder keeps what was emitted as "metric part labels = value".
type recorder struct {
	err   error
	lines []string
}

func (r *recorder) Emit(_ context.Context, b *auspexv1.Batch) error {
	if r.err != nil {
		return r.err
	}
	c := b.Samples
	for i, ref := range c.GetRef() {
		s := c.Series[ref]
		line := c.Symbols[s.Metric] + " " + c.Symbols[s.PartKind] + " " + c.Symbols[s.Part]
		var lineSb34 strings.Builder
		for _, l := range s.Labels {
			lineSb34.WriteString(" " + c.Symbols[l])
		}
		line += lineSb34.String()
		r.lines = append(r.lines, fmt.Sprintf("%s = %g", line, c.Value[i]))
	}
	return nil
}

func (r *recorder) take() []string {
	out := r.lines
	r.lines = nil
	return out
}

func TestThresholdsGoBesideTheReadingOnceAndOnChange(t *testing.T) {
	b, out := NewBatch("s", "x"), &recorder{}
	fan := b.Series("auspex_fan_speed_rpm", "fan", "fan1", "sensor", "FAN 1")
	now := time.Unix(1_700_000_000, 0)
	low := 480.0
	poll := func() []string {
		b.Sample(fan, now, 9000)
		b.Thresholds(fan, now, limitOf(schemas.LowerCritical, low), limitOf(schemas.UpperFatal, math.NaN()))
		b.ThresholdsOf("DCGM_FI_DEV_GPU_TEMP", "gpu", "gpu0", now, limitOf(schemas.UpperCritical, 87))
		if err := b.Emit(t.Context(), out, now); err != nil {
			b.Discard()
		}
		return out.take()
	}
	const (
		reading = "auspex_fan_speed_rpm fan fan1 sensor FAN 1 = 9000"
		limit   = "auspex_fan_speed_rpm_threshold fan fan1 sensor FAN 1 bound lower_critical = "
		gpu     = "DCGM_FI_DEV_GPU_TEMP_threshold gpu gpu0 bound upper_critical = 87"
	)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"with the first reading", func() {}, []string{reading, limit + "480", gpu}},
		{"not again at the next", func() { now = now.Add(10 * time.Second) }, []string{reading}},
		{"when it changes", func() { now, low = now.Add(10*time.Second), 600 }, []string{reading, limit + "600"}},
		{"again after a while", func() { now = now.Add(thresholdEvery) }, []string{reading, limit + "600", gpu}},
		{"a poll that was not taken", func() { now, low, out.err = now.Add(time.Second), 500, errors.New("full") }, nil},
		{"comes again with the next", func() { now, out.err = now.Add(time.Second), nil }, []string{reading, limit + "500"}},
		{"a clock that went back", func() { now = now.Add(-time.Hour) }, []string{reading, limit + "500", gpu}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, poll()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestThresholdsOfASeriesBeyondTheBoundAreLeftOut(t *testing.T) {
	b := NewBatch("s", "x")
	b.Thresholds(Refused, time.Unix(1, 0), limitOf(schemas.LowerCritical, 480))
	if n, _ := b.Len(); n != 0 {
		t.Errorf("%d samples of a series that was refused", n)
	}
}

// A threshold is stamped as its reading is, so that it is in every look-back in which the
// reading is: no two of the same come further apart than the interval allows.
func TestThresholdsAreSeenWhileReadingsAre(t *testing.T) {
	b, out := NewBatch("s", "x"), &recorder{}
	fan := b.Series("m", "", "")
	last, now := time.Time{}, time.Unix(1_700_000_000, 0)
	for range 500 {
		b.Sample(fan, now, 1)
		b.Thresholds(fan, now, limitOf(schemas.UpperCritical, 90))
		if err := b.Emit(t.Context(), out, now); err != nil {
			t.Fatal(err)
		}
		if len(out.take()) == 2 {
			last = now
		}
		if gap := now.Sub(last); gap >= thresholdEvery {
			t.Fatalf("nothing said of the threshold for %s", gap)
		}
		now = now.Add(7 * time.Second)
	}
}

func TestBoundsThatContradictEachOtherAreLeftOut(t *testing.T) {
	all := map[schemas.Bound]float64{schemas.LowerCritical: 10, schemas.LowerCaution: 20, schemas.UpperCaution: 15, schemas.UpperCritical: 80}
	var bounds []Threshold
	for b, v := range all {
		bounds = append(bounds, limitOf(b, v))
	}
	b, out := NewBatch("s", "x"), &recorder{}
	b.ThresholdsOf("m", "", "", time.Unix(1, 0), bounds...)
	b.ThresholdsOf("zeros", "", "", time.Unix(1, 0), limitOf(schemas.LowerCritical, 0), limitOf(schemas.UpperCritical, 0))
	if err := b.Emit(t.Context(), out, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	got := out.take()
	slices.Sort(got)
	want := []string{"m_threshold   bound lower_critical = 10", "m_threshold   bound upper_critical = 80"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
