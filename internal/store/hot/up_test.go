package hot

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"auspex/internal/cmdb"
	"auspex/schemas/auspexv1"
)

type anywhere struct{}

func (anywhere) Part(device, _, _ string) cmdb.Placement {
	if device == "gone" {
		return cmdb.Placement{}
	}
	return cmdb.Placement{Resource: device, Server: device}
}

func (anywhere) GPU(device string, _ uint32, _, _ string) cmdb.Placement {
	return cmdb.Placement{Server: device}
}
func (anywhere) Generation() uint64 { return 0 }

// A device is up while its samples come in their rhythm, and down when they have
// stopped; one that the inventory has lost is neither.
func TestUpFollowsTheSamplesOfADevice(t *testing.T) {
	w, err := Open(t.TempDir(), DefaultConfig(), anywhere{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	now := time.Now().Truncate(time.Second).Add(-30 * time.Minute)
	w.now = func() time.Time { return now }
	sample := func(device, collector string, observed time.Time) {
		t.Helper()
		b := &auspexv1.Batch{Device: device, Collector: collector, Observed: observed.UnixNano(), Samples: &auspexv1.SampleColumns{
			Symbols: []string{"", "m"}, Series: []*auspexv1.Series{{Metric: 1}}, BaseTime: observed.UnixNano(), Ref: []uint32{0}, Delta: []int64{0},
			Value: []float64{1},
		}}
		if err := w.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 60 { // 15 minutes in beats
		if k < 20 {
			sample("dies", "redfish", now.Add(-2*time.Second)) // its collector's clock is a little behind
			sample("gone", "redfish", now)
		}
		if k%8 == 0 {
			sample("slow", "redfish", now) // every two minutes
		}
		sample("well", "dcgmexporter", now)
		if err := w.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(BeatEvery)
	}
	q, err := w.Querier(0, now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"))
	got := map[string][2]int{}
	for set.Next() {
		var n [2]int
		for it := set.At().Iterator(nil); it.Next() != chunkenc.ValNone; {
			_, v := it.At()
			n[int(v)]++
		}
		l := set.At().Labels()
		if l.Len() != 3 {
			t.Errorf("labels %s", l)
		}
		got[l.Get("instance")] = n
	}
	for device, want := range map[string][2]int{"well": {0, 60}, "slow": {0, 60}} {
		if got[device] != want {
			t.Errorf("%s: %v", device, got[device])
		}
	}
	if dies := got["dies"]; dies[1] < 20 || dies[1] > 26 || dies[0]+dies[1] != 60 {
		t.Errorf("dies: %v", dies)
	}
	if _, ok := got["gone"]; ok || len(got) != 3 {
		t.Errorf("%v", got)
	}
}
