package learn

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/internal/textfile"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// numbers reads a packed CSV file of whole numbers.
func numbers(t *testing.T, name string) [][]int {
	t.Helper()
	f, err := textfile.Open(filepath.Join("testdata", "huawei-alarms", name+".csv.gz"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]int
	for _, line := range lines[1:] {
		var row []int
		for _, cell := range line {
			n, err := strconv.Atoi(cell)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, n)
		}
		out = append(out, row)
	}
	return out
}

type pair struct{ cause, effect string }

// score is the competition's: (hits - false ones) / true edges.
func score(found []Proposal, truth map[pair]bool) (g float64, hits, wrong int) {
	for _, p := range found {
		if truth[pair{p.Cause, p.Effect}] {
			hits++
		} else {
			wrong++
		}
	}
	return float64(max(hits-wrong, 0)) / float64(len(truth)), hits, wrong
}

func propose(t *testing.T, s *Site) []Proposal {
	t.Helper()
	found, err := s.Propose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var origin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// A recorded network: nothing in the method was fitted to its graph. What is lost, and
// what the inventory does not know, costs some edges and makes few false ones.
func TestTheGraphOfRecordedAlarmsIsFound(t *testing.T) {
	racetest.OneGoroutine(t)
	alarms, links := numbers(t, "alarm"), numbers(t, "topology")
	truth := map[pair]bool{}
	for _, r := range numbers(t, "true_graph") {
		truth[pair{fmt.Sprint("alarm.", r[0]), fmt.Sprint("alarm.", r[1])}] = true
	}
	for _, c := range []struct {
		name        string
		lost, wrong float64 // share of the alarms, and of the links
		least       float64
	}{
		{"all of it", 0, 0, 0.95},
		{"3 of 10 alarms lost", 0.3, 0, 0.85},
		{"1 of 20 links missing and as many wrong", 0, 0.05, 0.85},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var inventory schemas.Topology
			for d := range 46 {
				inventory.Resources = append(inventory.Resources, schemas.Resource{ID: fmt.Sprint("d", d), Kind: schemas.KindSwitch})
			}
			for _, r := range links {
				if rng.Float64() < c.wrong {
					r = []int{rng.IntN(45), rng.IntN(45)}
				}
				inventory.Links = append(inventory.Links, schemas.Link{
					Kind: schemas.LinkNetwork, From: fmt.Sprint("d", r[0]), To: fmt.Sprint("d", r[1]),
				})
			}
			s := NewSite(&inventory, propagation.Default())
			for i, r := range alarms {
				if rng.Float64() >= c.lost {
					s.Add(&schemas.Event{
						ID: strconv.Itoa(i), Type: fmt.Sprint("alarm.", r[1]), Resource: fmt.Sprint("d", r[2]),
						Severity: schemas.SeverityWarning, Observed: origin.Add(time.Duration(r[0]) * time.Second),
					})
				}
			}
			found := propose(t, s)
			g, hits, wrong := score(found, truth)
			t.Logf("%d of %d edges, %d false, g-score %.3f", hits, len(truth), wrong, g)
			if g < c.least {
				t.Errorf("g-score %.3f, want %.2f", g, c.least)
			}
		})
	}
}

// fabric is a site of racks with a switch and a power feed each.
func fabric(racks, servers int) *schemas.Topology {
	t := &schemas.Topology{}
	for r := range racks {
		leaf, feed := fmt.Sprint("leaf", r), fmt.Sprint("feed", r)
		t.Resources = append(t.Resources, schemas.Resource{ID: leaf, Kind: schemas.KindSwitch}, schemas.Resource{ID: feed, Kind: schemas.KindPDU})
		for n := range servers {
			id := fmt.Sprintf("s%d.%d", r, n)
			t.Resources = append(t.Resources,
				schemas.Resource{ID: id, Kind: schemas.KindServer},
				schemas.Resource{ID: id + "/nic", Kind: schemas.KindNIC, Parent: id},
				schemas.Resource{ID: id + "/psu", Kind: schemas.KindPSU, Parent: id},
			)
			t.Links = append(t.Links,
				schemas.Link{Kind: schemas.LinkNetwork, From: id + "/nic", To: leaf},
				schemas.Link{Kind: schemas.LinkPowers, From: feed, To: id + "/psu"},
			)
		}
	}
	return t
}

// played is a site on which kinds bring about others, over one relation each, with
// lags whose shape is not the model's.
type played struct {
	truth map[pair]bool
	site  *Site
}

func play(seed uint64, edges int) played {
	const racks, servers, kinds, days = 6, 8, 24, 20
	rng := rand.New(rand.NewPCG(seed, 7))
	p := played{truth: map[pair]bool{}, site: NewSite(fabric(racks, servers), propagation.Default())}
	type edge struct {
		effect, over int
		share, lag   float64
	}
	from := make([][]edge, kinds)
	for len(p.truth) < edges {
		a, b := rng.IntN(kinds), rng.IntN(kinds)
		if k := (pair{kind(a), kind(b)}); a < b && !p.truth[k] { // no circles: a cause has the smaller number
			p.truth[k] = true
			from[a] = append(from[a], edge{b, rng.IntN(3), 0.3 + 0.6*rng.Float64(), math.Pow(10, rng.Float64()*2.3+0.2)})
		}
	}
	var happen func(k, rack, server int, at float64)
	happen = func(k, rack, server int, at float64) {
		resource := fmt.Sprintf("s%d.%d", rack, server)
		switch server {
		case -1:
			resource = fmt.Sprint("leaf", rack)
		case -2:
			resource = fmt.Sprint("feed", rack)
		}
		p.site.Add(&schemas.Event{
			Type: kind(k), Resource: resource, Severity: schemas.SeverityError,
			Observed: origin.Add(time.Duration(at * float64(time.Second))),
		})
		for _, e := range from[k] {
			if rng.Float64() > e.share {
				continue
			}
			to := server
			switch {
			case server < 0 && e.over > 0: // from the switch or the feed to some of the rack
				to = rng.IntN(servers)
			case server >= 0 && e.over == 1:
				to = -1
			}
			happen(e.effect, rack, to, at+e.lag*(0.4+1.2*rng.Float64()))
		}
	}
	for range 3000 {
		happen(rng.IntN(kinds), rng.IntN(racks), rng.IntN(servers+2)-2, rng.Float64()*days*86400)
	}
	return p
}

func kind(k int) string { return fmt.Sprint("kind.", k) }

func TestDrawnSitesAreLearnt(t *testing.T) {
	truth, hits, wrong := 0, 0, 0
	for seed := range uint64(4) {
		p := play(seed, 20)
		_, h, w := score(propose(t, p.site), p.truth)
		truth, hits, wrong = truth+len(p.truth), hits+h, wrong+w
	}
	t.Logf("%d of %d edges, %d false", hits, truth, wrong)
	if recall, precision := float64(hits)/float64(truth), float64(hits)/float64(hits+wrong); recall < 0.85 || precision < 0.85 {
		t.Errorf("recall %.2f, precision %.2f", recall, precision)
	}
}

func TestChanceIsProposedAsNothing(t *testing.T) {
	for seed := range uint64(4) {
		if found := propose(t, play(seed, 0).site); len(found) > 1 {
			t.Errorf("seed %d: %+v", seed, found)
		}
	}
}

func TestWhatIsNotInTheInventoryHasAPlaceOfItsOwn(t *testing.T) {
	s := NewSite(&schemas.Topology{
		Resources: []schemas.Resource{{ID: "a", Parent: "b", Kind: schemas.KindRack}, {ID: "b", Parent: "a", Kind: schemas.KindRack}},
		Links:     []schemas.Link{{Kind: schemas.LinkPowers, From: "nowhere", To: "a"}, {Kind: schemas.LinkCools, From: "a", To: "b"}},
	}, propagation.Default())
	for i := range 40 {
		at := origin.Add(time.Duration(i) * 3 * time.Hour)
		s.Add(&schemas.Event{Type: "x", Resource: "ghost", Severity: schemas.SeverityError, Time: at})
		s.Add(&schemas.Event{Type: "y", Resource: "ghost", Severity: schemas.SeverityError, Time: at.Add(3 * time.Second)})
		s.Add(&schemas.Event{Type: "z", Resource: "other", Severity: schemas.SeverityInfo, Time: at.Add(4 * time.Second)})
		s.Add(&schemas.Event{Type: "y", Resource: "ghost", State: schemas.StateCleared, Severity: schemas.SeverityError, Time: at})
	}
	found := propose(t, s)
	if len(found) != 1 || found[0].Cause != "x" || found[0].Effect != "y" || found[0].Over[0].Relation != "self" || found[0].Times != 40 {
		t.Errorf("got %+v", found)
	}
}

// However many of its effects came: one storm is one occasion.
func TestWhatWasSeenOnceIsNotProposed(t *testing.T) {
	for times, want := range map[int]int{1: 0, 2: 0, 3: 1} {
		s := NewSite(fabric(6, 8), propagation.Default())
		for n := range times {
			for k := range 40 {
				at := origin.Add(time.Duration(n)*24*time.Hour + time.Duration(20*k)*time.Second)
				host := fmt.Sprintf("s%d.%d", k%6, k%8)
				s.Add(&schemas.Event{Type: "x", Resource: host, Severity: schemas.SeverityError, Time: at})
				s.Add(&schemas.Event{Type: "y", Resource: host, Severity: schemas.SeverityError, Time: at.Add(3 * time.Second)})
			}
		}
		got := 0
		for _, p := range propose(t, s) {
			if p.Cause == "x" && p.Effect == "y" {
				got++
			}
		}
		if got != want {
			t.Errorf("%d storms: %d proposals, want %d", times, got, want)
		}
	}
}

func TestNothingSeenNothingProposed(t *testing.T) {
	if found := propose(t, NewSite(&schemas.Topology{}, propagation.Default())); len(found) != 0 {
		t.Errorf("got %+v", found)
	}
}

func TestLearningEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := play(1, 5).site.Propose(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
