package correlator

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

type truth struct {
	NoiseEvents  int      `json:"noise_events"`
	SharedEvents []string `json:"shared_events"`
	Incidents    []struct {
		ID         string   `json:"id"`
		RepeatOf   string   `json:"repeat_of"`
		RootScored *bool    `json:"root_scored"`
		Events     []string `json:"events"`
		Accept     []struct {
			Resource string `json:"resource"`
			Fault    string `json:"fault"`
		} `json:"accept"`
	} `json:"incidents"`
}

// tally sums over draws: root causes, B-cubed per event, incidents about nothing.
type tally struct {
	scored, hit, class         int
	precision, recall          float64
	covered, events            float64
	falses, noise              int
	confident, right, incident float64
	brier                      float64
	bins                       [10]struct{ n, confident, right float64 } // by confidence
}

func unpack(t *testing.T, path string, read func(*json.Decoder) error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := read(json.NewDecoder(z)); err != nil {
		t.Fatal(err)
	}
}

// storm is a recorded draw: an inventory, what was said, and what really happened.
type storm struct {
	name     string
	topology schemas.Topology
	events   []schemas.Event
	truth    truth
}

func recorded(t *testing.T) []storm {
	t.Helper()
	dirs, err := filepath.Glob("testdata/storms/*-*")
	if err != nil || len(dirs) != 12 {
		t.Fatalf("%d draws, error %v", len(dirs), err)
	}
	storms := make([]storm, len(dirs))
	for i, dir := range dirs {
		st := &storms[i]
		st.name = filepath.Base(dir)
		unpack(t, filepath.Join(dir, "topology.json.gz"), func(d *json.Decoder) error { return d.Decode(&st.topology) })
		unpack(t, filepath.Join(dir, "truth.json.gz"), func(d *json.Decoder) error { return d.Decode(&st.truth) })
		unpack(t, filepath.Join(dir, "events.jsonl.gz"), func(d *json.Decoder) error {
			for d.More() {
				var ev schemas.Event
				if err := d.Decode(&ev); err != nil {
					return err
				}
				st.events = append(st.events, ev)
			}
			return nil
		})
	}
	return storms
}

// lose drops a share of the events, here and in the truth: what nobody saw
// belongs to no incident, and a fault of which nothing is left is none.
func (st *storm) lose(share float64, seed uint64) storm {
	rng := rand.New(rand.NewPCG(seed, 0x1055))
	lost := map[string]bool{}
	out := *st
	out.events, out.truth.Incidents = nil, nil
	for i := range st.events { // a copy that is delivered again is lost with the first
		id := st.events[i].ID
		gone, met := lost[id]
		if !met {
			gone = rng.Float64() < share
			lost[id] = gone
		}
		if !gone {
			out.events = append(out.events, st.events[i])
		}
	}
	for _, f := range st.truth.Incidents {
		f.Events = slices.DeleteFunc(slices.Clone(f.Events), func(id string) bool { return lost[id] })
		if len(f.Events) > 0 {
			out.truth.Incidents = append(out.truth.Incidents, f)
		}
	}
	return out
}

// replay returns the final incidents of a draw.
func (st *storm) replay() []schemas.Incident {
	e := NewEngine(propagation.Default(), &st.topology, nil)
	var all []schemas.Incident
	for i := range st.events {
		e.Add(&st.events[i])
		all = append(all, e.Drain()...)
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	return slices.DeleteFunc(last(append(all, e.Drain()...)), func(inc schemas.Incident) bool { return inc.MergedInto != "" })
}

func (y *tally) add(tr *truth, final []schemas.Incident) {
	shared := map[string]bool{}
	for _, id := range tr.SharedEvents {
		shared[id] = true
	}
	owner, family := map[string]int{}, map[string]int{}
	group := make([]int, len(tr.Incidents))
	size := make([]int, len(tr.Incidents))
	for k, f := range tr.Incidents {
		family[f.ID] = k
		group[k] = k
		if r, ok := family[f.RepeatOf]; ok { // the same fault again: merging is neither right nor wrong
			group[k] = group[r]
		}
		for _, id := range f.Events {
			if !shared[id] {
				owner[id] = k
				size[k]++
			}
		}
	}
	y.noise += tr.NoiseEvents
	best := make([]*schemas.Incident, len(tr.Incidents))
	most := make([]int, len(tr.Incidents))
	for i := range final {
		inc := &final[i]
		count := map[int]int{}
		noise, faulty := 0, 0
		for _, id := range inc.Events {
			if k, ok := owner[id]; ok {
				count[k]++
				faulty++
			} else if !shared[id] {
				noise++
			}
		}
		lead := -1
		for k, v := range count {
			siblings := 0
			for o, w := range count {
				if o != k && group[o] == group[k] {
					siblings += w
				}
			}
			y.precision += float64(v*v) / float64(max(1, faulty+noise-siblings))
			y.recall += float64(v*v) / float64(size[k])
			y.covered += float64(v)
			if v > most[k] {
				best[k], most[k] = inc, v
			}
			if lead < 0 || v > count[lead] || v == count[lead] && k < lead {
				lead = k
			}
		}
		if inc.RootCause.Fault == "unknown" {
			continue
		}
		if 2*faulty < faulty+noise {
			y.falses++
			lead = -1
		}
		y.incident++
		y.confident += inc.RootCause.Confidence
		right := 0.0
		if lead >= 0 {
			for _, a := range tr.Incidents[lead].Accept {
				if a.Resource == inc.RootCause.Resource {
					right = 1
				}
			}
		}
		p := inc.RootCause.Confidence
		y.right += right
		y.brier += (p - right) * (p - right)
		b := &y.bins[min(9, int(p*10))]
		b.n, b.confident, b.right = b.n+1, b.confident+p, b.right+right
	}
	for k, f := range tr.Incidents {
		y.events += float64(size[k])
		if f.RootScored != nil && !*f.RootScored {
			continue
		}
		y.scored++
		if best[k] == nil || best[k].RootCause.Fault == "unknown" {
			continue
		}
		hit, class := false, false
		for _, a := range f.Accept {
			if a.Resource == best[k].RootCause.Resource {
				hit = true
				class = class || a.Fault == best[k].RootCause.Fault
			}
		}
		if hit {
			y.hit++
		}
		if class {
			y.class++
		}
	}
}

// The figures are what the recorded storms are solved with, less a little; the
// project asks for .85, .95 and 60.
func TestRecordedStorms(t *testing.T) {
	if testing.Short() {
		t.Skip("figures of one goroutine, which the race detector has nothing to say of")
	}
	draws := recorded(t)
	for _, c := range []struct {
		name             string
		lost             float64 // share of the events that do not come through
		top1, f1, falses float64
	}{
		{"everything arrives", 0, 0.96, 0.98, 5},
		{"one event in ten is lost", 0.1, 0.94, 0.97, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var y tally
			for i := range draws {
				st := draws[i].lose(c.lost, 1)
				y.add(&st.truth, st.replay())
			}
			top1, f1 := float64(y.hit)/float64(y.scored), y.f1()
			falses := 1000 * float64(y.falses) / float64(y.noise)
			off := (y.confident - y.right) / y.incident
			t.Logf("root %.3f, root and fault %.3f, B-cubed F1 %.3f, false incidents per 1000 noise events %.2f, confidence less share right %+.3f, calibration error %.3f, Brier %.3f",
				top1, float64(y.class)/float64(y.scored), f1, falses, off, y.ece(), y.brier/y.incident)
			if top1 < c.top1 {
				t.Errorf("the root cause is right in %.3f of faults", top1)
			}
			if f1 < c.f1 {
				t.Errorf("B-cubed F1 of the grouping is %.3f", f1)
			}
			if falses > c.falses {
				t.Errorf("%.1f false incidents per 1000 noise events", falses)
			}
			if off < -0.1 || off > 0.1 {
				t.Errorf("the mean confidence is off by %+.3f", off)
			}
		})
	}
}

// ece is the expected calibration error in ten bins of confidence.
func (y *tally) ece() float64 {
	off := 0.0
	for _, b := range y.bins {
		off += math.Abs(b.confident-b.right) / y.incident
	}
	return off
}

// f1 is the B-cubed F1 of the grouping.
func (y *tally) f1() float64 {
	p, r := y.precision/y.covered, y.recall/y.events
	return 2 * p * r / (p + r)
}
