package dedup_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"auspex/pipeline/dedup"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestWindowForgetsByAgeAndByNumber(t *testing.T) {
	w := dedup.New(time.Hour, 1000)
	w.Add("a", t0)
	w.Add("a", t0.Add(50*time.Minute)) // is not younger for it
	if !w.Seen("a", t0.Add(59*time.Minute)) {
		t.Error("forgotten within the window")
	}
	if w.Seen("a", t0.Add(61*time.Minute)) {
		t.Error("remembered beyond the window")
	}
	for i := range 2500 {
		w.Add(strconv.Itoa(i), t0.Add(2*time.Hour))
	}
	if w.Len() != 1000 || w.Seen("1499", t0.Add(2*time.Hour)) || !w.Seen("1500", t0.Add(2*time.Hour)) || !w.Seen("2499", t0.Add(2*time.Hour)) {
		t.Errorf("%d ids, want the last 1000", w.Len())
	}
}

func TestBatchesKnowWhatAProducerRepeats(t *testing.T) {
	b := dedup.NewBatches()
	b.Add("s1", "ipmi", 7, 3)
	for _, c := range []struct {
		device, collector string
		epoch, seq        uint64
		want              bool
	}{
		{"s1", "ipmi", 7, 3, true},
		{"s1", "ipmi", 7, 2, false}, // came later than its successor, not twice
		{"s1", "ipmi", 7, 4, false},
		{"s1", "ipmi", 8, 1, false},
		{"s1", "kmsg", 7, 3, false},
		{"s2", "ipmi", 7, 3, false},
		{"s1", "ipmi", 0, 0, false},
	} {
		if got := b.Seen(c.device, c.collector, c.epoch, c.seq); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	b.Add("s1", "ipmi", 7, 200)
	b.Add("s1", "ipmi", 7, 190)
	if !b.Seen("s1", "ipmi", 7, 190) || b.Seen("s1", "ipmi", 7, 191) || !b.Seen("s1", "ipmi", 7, 200) {
		t.Error("batches out of order are mixed up")
	}
	b.Add("s1", "ipmi", 8, 1)
	if b.Seen("s1", "ipmi", 8, 2) || !b.Seen("s1", "ipmi", 8, 1) {
		t.Error("a new epoch does not begin anew")
	}
}

func BenchmarkWindow(b *testing.B) {
	w := dedup.New(time.Hour, 1<<18)
	ids := make([]string, 1<<19)
	for i := range ids {
		ids[i] = fmt.Sprintf("%016x", i*7919)
	}
	b.ReportAllocs()
	for i := range b.N {
		id := ids[i&(1<<19-1)]
		if !w.Seen(id, t0) {
			w.Add(id, t0)
		}
	}
}
