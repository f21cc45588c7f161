package collectors

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// wired keeps the last batch as it went on the wire.
type wired struct {
	t    *testing.T
	last *auspexv1.Batch
}

func (w *wired) Emit(_ context.Context, b *auspexv1.Batch) error {
	raw, err := b.MarshalVT()
	if err != nil {
		return err
	}
	w.last = &auspexv1.Batch{}
	return w.last.UnmarshalVT(raw)
}

// board is a batch of a device with sensors and their thresholds.
func board(t *testing.T, device string, sensors int) (*Batch, *wired) {
	b, out := NewBatch(device, "test"), &wired{t: t}
	speak(b, sensors)
	if err := b.Emit(t.Context(), out, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	return b, out
}

func speak(b *Batch, sensors int) {
	now := time.Unix(1, 0)
	for i := range sensors {
		ref := b.Series("temp", "cpu", fmt.Sprint("cpu", i), "sensor", fmt.Sprint("T", i))
		b.Sample(ref, now, float64(i))
		b.Thresholds(ref, now, Threshold{Bound: schemas.UpperCritical, Value: 90})
	}
}

func TestBatchesOfOneModelHoldItsNamesOnce(t *testing.T) {
	a, first := board(t, "a", 24)
	b, second := board(t, "b", 24)
	if a.names != b.names {
		t.Fatal("two devices with the same series hold them twice")
	}
	second.last.Device = "a"
	if d := cmp.Diff(first.last, second.last, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	c, _ := board(t, "c", 23)
	if c.names == a.names {
		t.Error("a device has series of another model")
	}
	// What one of them learns is not said of the others.
	b.Sample(b.Series("more", "", ""), time.Unix(2, 0), 1)
	if err := b.Emit(t.Context(), second, time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	a.Sample(a.Series("other", "", ""), time.Unix(2, 0), 2)
	if err := a.Emit(t.Context(), first, time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	for out, want := range map[*wired]string{first: "other", second: "more"} {
		s := out.last.Samples
		if got := s.Symbols[s.Series[s.Ref[0]].Metric]; got != want || len(s.Series) != 49 {
			t.Errorf("%s of %d series, want %s of 49", got, len(s.Series), want)
		}
	}
	// Thresholds are given by each device for itself.
	f := c.Fork("f")
	speak(f, 23)
	if err := f.Emit(t.Context(), second, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n := len(second.last.Samples.Ref); n != 46 || f.names != c.names {
		t.Errorf("%d samples of a device that was not read before, want 46", n)
	}
	runtime.KeepAlive(b)
}

func TestNamesThatChangeAllTheTimeAreNotLookedFor(t *testing.T) {
	b, out := board(t, "churn", 1)
	for i := range 200 {
		b.Sample(b.Series(fmt.Sprint("m", i), "", ""), time.Unix(1, 0), 1)
		if err := b.Emit(t.Context(), out, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if b.names.looks > maxLooks {
		t.Errorf("looked %d times", b.names.looks)
	}
}

func TestNamesThatNobodyUsesAreForgotten(t *testing.T) {
	held := func() int {
		commonLexicons.mu.Lock()
		defer commonLexicons.mu.Unlock()
		return len(commonLexicons.held)
	}
	before := held()
	func() {
		for i := range 20 {
			board(t, "gone", 100+i)
		}
	}()
	for deadline := time.Now().Add(time.Minute); held() > before; runtime.Gosched() {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%d are held, %d before", held(), before)
		}
	}
}

func TestSamplesWithEncodedNamesAreTheSameMessage(t *testing.T) {
	a, _ := board(t, "a", 24)
	n := a.names
	if n.wire == nil {
		t.Fatal("not encoded")
	}
	s := &auspexv1.SampleColumns{Symbols: n.symbols, Series: n.list, Ref: []uint32{3, 1}, BaseTime: 5, Delta: []int64{0, -1}, Value: []float64{1, 2}}
	raw, err := withEncoded(s, n.wire).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	var got auspexv1.SampleColumns
	if err := got.UnmarshalVT(raw); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, &got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

func TestABatchThatIsHandedOverKeepsItsNamesWhileOthersCome(t *testing.T) {
	for _, looks := range []int{0, maxLooks} { // its names are shared, and they are not
		b, _ := board(t, "switch", 3)
		b.own().looks = looks
		speak(b, 4)
		to := b.Hand(nil)
		if shared := b.names == to.names; shared != (looks == 0) {
			t.Errorf("after %d looks names are shared: %t", looks, shared)
		}
		done := make(chan error, 1)
		out := &wired{t: t}
		go func() { done <- to.Emit(t.Context(), out, time.Unix(2, 0)) }()
		speak(b, 40)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		samples := out.last.Samples // the readings of four, and the threshold of the new one
		if len(samples.Series) != 8 || len(samples.Ref) != 5 || samples.Symbols[samples.Series[samples.Ref[3]].Part] != "cpu3" {
			t.Errorf("%d series, %d samples", len(samples.Series), len(samples.Ref))
		}
		if err := b.Emit(t.Context(), out, time.Unix(3, 0)); err != nil {
			t.Fatal(err)
		}
		if samples = out.last.Samples; len(samples.Series) != 80 || len(samples.Ref) != 40+36 {
			t.Errorf("%d series, %d samples in the next", len(samples.Series), len(samples.Ref))
		}
		if again := b.Hand(to); again != to || len(again.samples.Ref) != 0 {
			t.Error("it is not used again")
		}
	}
}
