package rootcause

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// small is a site of a few services, with noise: front calls mid and side, mid calls db.
type small struct {
	nodes []string
	edges [][2]string
}

var shop = small{
	nodes: []string{"front", "mid", "side", "db", "batch"},
	edges: [][2]string{{"front", "mid"}, {"front", "side"}, {"mid", "db"}, {"batch", "db"}},
}

const rows = 240

// own is the usual time of each node alone, in seconds.
var own = map[string]float64{"front": 0.02, "mid": 0.01, "side": 0.015, "db": 0.005, "batch": 0.03}

// metrics draws n rows; change alters what the nodes have of their own in a row.
func (s small) metrics(seed uint64, n int, change func(row int, node string, own, fails, calls *float64)) *Table {
	r := rand.New(rand.NewPCG(seed, 1))
	t := &Table{Path: "drawn", Columns: map[Column][]float64{}}
	for k := range n {
		t.Times = append(t.Times, float64(k*60))
		calls := map[string]float64{"front": 400, "mid": 0, "side": 0, "db": 0, "batch": 50}
		latency, fails := map[string]float64{}, map[string]float64{}
		for _, name := range s.nodes {
			o, f, c := own[name]*math.Exp(r.NormFloat64()*0.05), 0.0, calls[name]*math.Exp(r.NormFloat64()*0.03)
			if change != nil {
				change(k, name, &o, &f, &c)
			}
			latency[name], fails[name], calls[name] = o, f, math.Round(c)
			for _, e := range s.edges {
				if e[0] == name {
					calls[e[1]] += calls[name]
				}
			}
		}
		for _, name := range slices.Backward(s.nodes) {
			for _, e := range s.edges {
				if e[0] == name {
					latency[name] += latency[e[1]]
					fails[name] = 1 - (1-fails[name])*(1-fails[e[1]])
				}
			}
		}
		for _, name := range s.nodes {
			for metric, v := range map[string]float64{"latency": latency[name], "requests": calls[name], "availability": 100 * (1 - fails[name])} {
				c := Column{name, metric, "Average"}
				t.Columns[c] = append(t.Columns[c], v)
			}
		}
	}
	return t
}

func (s small) site(t *testing.T) *Site {
	t.Helper()
	g, err := NewGraph(s.nodes, s.edges)
	if err != nil {
		t.Fatal(err)
	}
	site, err := NewSite(g, s.metrics(1, rows, nil), DefaultRoles())
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// anomalous are the rows of an issue of ten in which something is wrong.
func anomalous(row int) bool { return row >= 5 && row < 8 }

func first(t *testing.T, s *Site, table *Table, metric string) *Verdict {
	t.Helper()
	v, err := s.Rank(table, Target{"front", metric, "Average", 5 * 60})
	if err != nil {
		t.Fatal(err)
	}
	sum := v.Unknown + v.Others
	for _, c := range v.Causes {
		sum += c.Probability
	}
	if math.Abs(sum-1) > 1e-9 || v.Unknown < 0 {
		t.Errorf("probabilities add up to %v, unknown %v", sum, v.Unknown)
	}
	return v
}

func TestTheExcessStaysWhereItBegan(t *testing.T) {
	for _, c := range []struct {
		name, want, metric string
		change             func(row int, node string, own, fails, calls *float64)
	}{
		{"the target itself", "front", "latency", func(k int, n string, own, _, _ *float64) {
			if anomalous(k) && n == "front" {
				*own += 0.05
			}
		}},
		{"below a callee", "db", "latency", func(k int, n string, own, _, _ *float64) {
			if anomalous(k) && n == "db" {
				*own += 0.05
			}
		}},
		{"errors on the way", "mid", "availability", func(k int, n string, _, fails, _ *float64) {
			if anomalous(k) && n == "mid" {
				*fails = 0.1
			}
		}},
		{"of two, the one that has the amount", "side", "latency", func(k int, n string, own, _, _ *float64) {
			if anomalous(k) && n == "side" {
				*own += 0.05
			}
			if anomalous(k) && n == "db" {
				*own += 0.002
			}
		}},
		{"load that another caller sends", "batch", "latency", func(k int, n string, own, _, calls *float64) {
			if anomalous(k) && n == "batch" {
				*calls *= 40
			}
			if anomalous(k) && n == "db" {
				*own += 0.05
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := first(t, shop.site(t), shop.metrics(7, 10, c.change), c.metric)
			if v.Causes[0].Node != c.want || v.Causes[0].Probability < 0.6 {
				t.Errorf("want %s: %+v", c.want, v.Causes)
			}
			if v.Against != "window" || v.From.Unix() != 300 || v.To.Unix() != 420 {
				t.Errorf("rows %s to %s, against %s", v.From, v.To, v.Against)
			}
		})
	}
}

var slowDB = func(k int, n string, own, _, _ *float64) {
	if anomalous(k) && n == "db" {
		*own += 0.05
	}
}

// TestNamesAndUnitsMeanNothing: only amounts and the graph do.
func TestNamesAndUnitsMeanNothing(t *testing.T) {
	site, issue := shop.site(t), shop.metrics(7, 10, slowDB)
	want := first(t, site, issue, "latency")
	renamed := map[string]string{"front": "z", "mid": "y", "side": "x", "db": "w", "batch": "v"}
	change := func(old *Table) *Table {
		out := &Table{Path: old.Path, Times: old.Times, Columns: map[Column][]float64{}}
		for c, values := range old.Columns {
			scale := 1.0
			switch c.Metric {
			case "latency":
				scale = 1000 // milliseconds
			case "availability":
				scale = 0.01 // shares
			}
			c.Node = renamed[c.Node]
			out.Columns[c] = each(values, func(_ int, v float64) float64 { return v * scale })
		}
		return out
	}
	var nodes []string
	var edges [][2]string
	for _, n := range shop.nodes {
		nodes = append(nodes, renamed[n])
	}
	for _, e := range shop.edges {
		edges = append(edges, [2]string{renamed[e[0]], renamed[e[1]]})
	}
	g, err := NewGraph(nodes, edges)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSite(g, change(site.normal), DefaultRoles())
	if err != nil {
		t.Fatal(err)
	}
	got, err := other.Rank(change(issue), Target{"z", "latency", "Average", 300})
	if err != nil {
		t.Fatal(err)
	}
	for k, c := range want.Causes {
		if got.Causes[k].Node != renamed[c.Node] || math.Abs(got.Causes[k].Probability-c.Probability) > 1e-6 {
			t.Errorf("%d: %s %v, want %s %v", k, got.Causes[k].Node, got.Causes[k].Probability, renamed[c.Node], c.Probability)
		}
	}
}

// TestASiteThatHasChanged since its normal operation was recorded: everything is faster
// or slower, and one part the other way or much more so.
func TestASiteThatHasChanged(t *testing.T) {
	for _, scale := range []struct{ all, side float64 }{{0.5, 2}, {2, 5}} {
		issue := shop.metrics(7, 10, slowDB)
		for c, values := range issue.Columns {
			if c.Metric == "latency" {
				f := scale.all
				if c.Node == "side" {
					f = scale.side
				}
				issue.Columns[c] = each(values, func(_ int, v float64) float64 { return v * f })
			}
		}
		if v := first(t, shop.site(t), issue, "latency"); v.Causes[0].Node != "db" || v.Against != "window" {
			t.Errorf("%+v against %s: %+v", scale, v.Against, v.Causes)
		}
	}
}

// TestAWindowWithinTheTrouble has no other rows to compare with.
func TestAWindowWithinTheTrouble(t *testing.T) {
	issue := shop.metrics(7, 4, func(_ int, n string, own, _, _ *float64) {
		if n == "db" {
			*own += 0.05
		}
	})
	v, err := shop.site(t).Rank(issue, Target{"front", "latency", "Average", 60})
	if err != nil {
		t.Fatal(err)
	}
	if v.Against != "normal" || v.Causes[0].Node != "db" {
		t.Errorf("against %s: %+v", v.Against, v.Causes)
	}
}

// TestSilenceIsASign: who reports no longer is behind those who wait for it.
func TestSilenceIsASign(t *testing.T) {
	issue := shop.metrics(7, 10, func(k int, n string, own, fails, _ *float64) {
		if anomalous(k) && n == "mid" {
			*own, *fails = *own+1, 0.98
		}
	})
	for c, values := range issue.Columns {
		if c.Node == "db" {
			for k := range values {
				if anomalous(k) {
					values[k] = math.NaN()
				}
			}
		}
	}
	for _, metric := range []string{"latency", "availability"} {
		if v := first(t, shop.site(t), issue, metric); v.Causes[0].Node != "db" {
			t.Errorf("%s: %+v", metric, v.Causes)
		}
	}
}

// TestSilenceOutweighsOneView: the caller's own view of some calls to the node that is
// silent is a leaf of the graph, and fails as they do.
func TestSilenceOutweighsOneView(t *testing.T) {
	s := small{
		nodes: []string{"front", "mid", "view", "side", "db", "batch"},
		edges: append(slices.Clone(shop.edges), [2]string{"mid", "view"}),
	}
	down := func(k int, n string, own, fails, _ *float64) {
		if anomalous(k) && (n == "mid" || n == "view") {
			*own, *fails = *own+1, 0.98
		}
	}
	issue := s.metrics(7, 10, down)
	for c, values := range issue.Columns {
		for k := range values {
			if c.Node == "db" && anomalous(k) {
				values[k] = math.NaN()
			}
			if c.Node == "view" && c.Metric == "requests" {
				values[k] = math.Round(values[k] / 3)
			}
		}
	}
	site := s.site(t)
	for c, values := range site.normal.Columns {
		if c.Node == "view" && c.Metric == "requests" {
			site.normal.Columns[c] = each(values, func(_ int, v float64) float64 { return math.Round(v / 3) })
		}
	}
	v := first(t, site, issue, "availability")
	if v.Causes[0].Node != "db" || v.Causes[0].Probability < 0.8 {
		t.Errorf("%+v", v.Causes)
	}
}

// TestAServiceWithoutMetrics is seen through: what it calls can be blamed.
func TestAServiceWithoutMetrics(t *testing.T) {
	blind := func(table *Table) *Table {
		for c := range table.Columns {
			if c.Node == "mid" {
				delete(table.Columns, c)
			}
		}
		return table
	}
	g, err := NewGraph(shop.nodes, shop.edges)
	if err != nil {
		t.Fatal(err)
	}
	site, err := NewSite(g, blind(shop.metrics(1, rows, nil)), DefaultRoles())
	if err != nil {
		t.Fatal(err)
	}
	if v := first(t, site, blind(shop.metrics(7, 10, slowDB)), "latency"); v.Causes[0].Node != "db" {
		t.Errorf("%+v", v.Causes)
	}
}

// TestACalmServiceBetween passes trouble on and shows none of it itself.
func TestACalmServiceBetween(t *testing.T) {
	issue := shop.metrics(7, 10, slowDB)
	for c, values := range shop.metrics(7, 10, nil).Columns {
		if c.Node == "mid" {
			issue.Columns[c] = values
		}
	}
	if v := first(t, shop.site(t), issue, "latency"); v.Causes[0].Node != "db" {
		t.Errorf("%+v", v.Causes)
	}
}

// TestMetricsWithoutARole: where nothing is known but that numbers moved, the graph says
// who is behind whom.
func TestMetricsWithoutARole(t *testing.T) {
	g, err := NewGraph([]string{"job", "mount", "disk", "switch"}, [][2]string{{"job", "mount"}, {"mount", "disk"}, {"mount", "switch"}})
	if err != nil {
		t.Fatal(err)
	}
	draw := func(seed uint64, n int, broken bool) *Table {
		r := rand.New(rand.NewPCG(seed, 2))
		table := &Table{Path: "drawn", Columns: map[Column][]float64{}}
		for k := range n {
			table.Times = append(table.Times, float64(k*60))
			for _, c := range []Column{{"job", "queue", ""}, {"mount", "waiting", ""}, {"disk", "await", ""}, {"switch", "drops", ""}} {
				v := 10 + r.NormFloat64()
				if broken && anomalous(k) && c.Node != "switch" {
					v += 20
				}
				table.Columns[c] = append(table.Columns[c], v)
			}
		}
		return table
	}
	site, err := NewSite(g, draw(1, rows, false), DefaultRoles())
	if err != nil {
		t.Fatal(err)
	}
	v, err := site.Rank(draw(3, 10, true), Target{"job", "queue", "", 300})
	if err != nil {
		t.Fatal(err)
	}
	if v.Causes[0].Node != "disk" || !slices.Equal(v.Causes[0].Path, []string{"job", "mount", "disk"}) {
		t.Errorf("%+v", v.Causes)
	}
}

// TestCirclesEnd: services that call one another.
func TestCirclesEnd(t *testing.T) {
	s := shop
	g, err := NewGraph(s.nodes, append(slices.Clone(s.edges), [2]string{"db", "front"}, [2]string{"mid", "side"}, [2]string{"side", "mid"}))
	if err != nil {
		t.Fatal(err)
	}
	if g.Circle() == nil {
		t.Error("no circle found")
	}
	site, err := NewSite(g, s.metrics(1, rows, nil), DefaultRoles())
	if err != nil {
		t.Fatal(err)
	}
	if v := first(t, site, s.metrics(7, 10, slowDB), "latency"); v.Causes[0].Node != "db" {
		t.Errorf("%+v", v.Causes)
	}
}
