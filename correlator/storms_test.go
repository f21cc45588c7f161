package correlator

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/auspex-dev/auspex/schemas"
	"github.com/auspex-dev/auspex/schemas/faults/propagation"
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
}

func unpack(t *testing.T, path string, into any) {
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
	if err := json.NewDecoder(z).Decode(into); err != nil {
		t.Fatal(err)
	}
}

func replayDraw(t *testing.T, dir string) []schemas.Incident {
	t.Helper()
	var topology schemas.Topology
	unpack(t, filepath.Join(dir, "topology.json.gz"), &topology)
	f, err := os.Open(filepath.Join(dir, "events.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(propagation.Default(), &topology, nil)
	for sc := bufio.NewScanner(z); sc.Scan(); {
		var ev schemas.Event
		if err := json.Unmarshal(sc.Bytes(), &ev); err != nil {
			t.Fatal(err)
		}
		e.Add(&ev)
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	var final []schemas.Incident
	for _, inc := range last(e.Drain()) {
		if inc.MergedInto == "" {
			final = append(final, inc)
		}
	}
	return final
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
		if lead >= 0 {
			for _, a := range tr.Incidents[lead].Accept {
				if a.Resource == inc.RootCause.Resource {
					y.right++
					break
				}
			}
		}
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
	dirs, err := filepath.Glob("testdata/storms/*-*")
	if err != nil || len(dirs) != 12 {
		t.Fatalf("%d draws, error %v", len(dirs), err)
	}
	var y tally
	for _, dir := range dirs {
		var tr truth
		unpack(t, filepath.Join(dir, "truth.json.gz"), &tr)
		y.add(&tr, replayDraw(t, dir))
	}
	top1 := float64(y.hit) / float64(y.scored)
	p, r := y.precision/y.covered, y.recall/y.events
	f1 := 2 * p * r / (p + r)
	falses := 1000 * float64(y.falses) / float64(y.noise)
	off := (y.confident - y.right) / y.incident
	t.Logf("root %.3f, root and fault %.3f, B-cubed F1 %.3f, false incidents per 1000 noise events %.2f, confidence less share right %+.3f",
		top1, float64(y.class)/float64(y.scored), f1, falses, off)
	if top1 < 0.96 {
		t.Errorf("the root cause is right in %.3f of faults", top1)
	}
	if f1 < 0.98 {
		t.Errorf("B-cubed F1 of the grouping is %.3f", f1)
	}
	if falses > 5 {
		t.Errorf("%.1f false incidents per 1000 noise events", falses)
	}
	if off < -0.1 || off > 0.1 {
		t.Errorf("the mean confidence is off by %+.3f", off)
	}
}
