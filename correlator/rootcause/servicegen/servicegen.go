// Package servicegen draws sites of services that call one another, records their
// metrics in normal operation, and lets one of them fail at a time: to see how well the
// first cause is found where it is known. It computes calls one by one along the graph
// and knows nothing of how causes are ranked.
package servicegen

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"auspex/internal/usage"
)

// Faults are the kinds of trouble that a service can have.
var Faults = []string{
	"delay",      // its calls take longer, all of them
	"path-delay", // those of one caller alone
	"errors",     // a share of its calls fails
	"saturation", // it is slow, and some calls fail
	"leak",       // it gets slower from row to row, and then fails
	"down",       // it answers no longer and reports no longer
	"wrong-call", // it calls something that was not there before, which fails
	"load",       // a second entry sends several times the load, which a shared service cannot take
}

// Options says what to draw.
type Options struct {
	Seed   uint64
	Issues int    // a site
	Fault  string // one of Faults; empty draws
}

type call struct {
	to      int
	ratio   float64 // calls for each call of the caller
	waits   bool    // for the answer
	passes  float64 // share of its failures that fail the caller
	seen    int     // the node under which the caller sees some of these calls; -1: none
	visible float64 // share of the calls that is seen there
}

type service struct {
	name     string
	own      float64 // seconds of its own, a call
	spread   float64 // relative standard deviation of one call
	wander   float64 // relative standard deviation of a row
	fails    float64 // share of calls that fail by themselves
	capacity float64 // calls a row at which it is full
	calls    []call
	load     float64 // calls a row from outside
	silent   bool    // it reports nothing, ever
	pseudo   bool    // a name under which others are seen
}

// Site is a drawn site.
type Site struct {
	rng      *rand.Rand
	services []service // callers before callees
	rhythm   float64   // depth of the daily rhythm
	entry    int
	second   int // another entry, for other users
}

// draw makes a site.
func draw(rng *rand.Rand) *Site {
	s := &Site{rng: rng, rhythm: []float64{0, 0.3, 0.7}[rng.IntN(3)]}
	n := 8 + rng.IntN(40)
	busy := math.Exp(rng.Float64()*3 + 4) // 55 to 1,100 calls a row
	for i := range n {
		v := service{
			name: fmt.Sprintf("svc-%s", strconv.FormatUint(rng.Uint64()%46656, 36)+strconv.Itoa(i)),
			own:  math.Exp(rng.NormFloat64()*1.2 - 4.5), spread: 0.3 + 1.5*rng.Float64(), wander: 0.02 + 0.08*rng.Float64(),
		}
		if rng.Float64() < 0.2 {
			v.fails = math.Exp(rng.Float64()*4 - 8)
		}
		v.silent = i > 1 && rng.Float64() < 0.05
		s.services = append(s.services, v)
	}
	s.entry, s.second = 0, 1
	s.services[0].load, s.services[1].load = busy, busy*(0.1+0.5*rng.Float64())
	for j := 2; j < n; j++ {
		for k := 0; k < 1+rng.IntN(2); k++ {
			i := rng.IntN(min(j, 2+j/2))
			if i == 1 && rng.Float64() < 0.7 {
				i = 0
			}
			s.link(i, j)
		}
	}
	// A shared service behind both entries.
	s.link(1, 2)
	s.link(0, 2)
	for i := range n {
		for k := range s.services[i].calls {
			if rng.Float64() < 0.25 {
				s.services = append(s.services, service{name: s.services[s.services[i].calls[k].to].name + "-seen" + strconv.Itoa(i), pseudo: true})
				s.services[i].calls[k].seen, s.services[i].calls[k].visible = len(s.services)-1, 0.05+0.3*rng.Float64()
			}
		}
	}
	return s
}

func (s *Site) link(i, j int) {
	for _, c := range s.services[i].calls {
		if c.to == j {
			return
		}
	}
	s.services[i].calls = append(s.services[i].calls, call{
		to: j, ratio: []float64{0.1, 0.4, 1, 1, 2}[s.rng.IntN(5)], waits: s.rng.Float64() < 0.85,
		passes: []float64{0, 0.5, 1, 1, 1}[s.rng.IntN(5)], seen: -1,
	})
}

// trouble is what is wrong in a row.
type trouble struct {
	slower map[int]float64    // seconds more of its own, a call
	path   map[[2]int]float64 // the same, of the calls of one caller
	fails  map[int]float64    // share of calls that fails
	down   map[int]bool
	load   map[int]float64 // times the load from outside
	calls  map[int]call    // an additional call
}

// row is what the services show in one row; NaN is nothing.
type row struct{ requests, latency, median, high, availability []float64 }

// timeout is how long a caller waits for a service that is down, in seconds.
const timeout = 1.0

// measure computes one row at an hour of the day.
func (s *Site) measure(hour float64, drift []float64, t trouble) row {
	n := len(s.services)
	r := s.rng
	requests := make([]float64, n)
	arrived := make([]float64, n)
	day := 1 + s.rhythm*math.Sin(hour/24*2*math.Pi)
	edges := map[[2]int]float64{}
	callsOf := func(i int) []call {
		if c, ok := t.calls[i]; ok {
			return append(append([]call(nil), s.services[i].calls...), c)
		}
		return s.services[i].calls
	}
	for i := range n {
		load := s.services[i].load * day
		if f, ok := t.load[i]; ok {
			load *= f
		}
		requests[i] = arrived[i] + poisson(r, load)
		for _, c := range callsOf(i) {
			k := poisson(r, requests[i]*c.ratio)
			edges[[2]int{i, c.to}] = k
			arrived[c.to] += k
		}
	}
	latency, fails := make([]float64, n), make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		v := &s.services[i]
		if v.pseudo || requests[i] == 0 {
			continue
		}
		full := 1.0
		if v.capacity > 0 && requests[i] > v.capacity {
			full = 1 + 4*(requests[i]/v.capacity-1)
		}
		own := v.own*drift[i]*full*math.Exp(r.NormFloat64()*v.wander)*(1+v.spread*r.NormFloat64()/math.Sqrt(requests[i])) + t.slower[i]
		latency[i] = max(own, v.own*drift[i]/4)
		// Failures are drawn where they happen: what a caller sees is what its callee had.
		works := 1 - min(1, poisson(r, requests[i]*min(1, v.fails+t.fails[i]))/requests[i])
		for _, c := range callsOf(i) {
			e := edges[[2]int{i, c.to}]
			seen, bad := latency[c.to]+t.path[[2]int{i, c.to}], fails[c.to]
			if t.down[c.to] {
				seen, bad = timeout, 1
			}
			if c.waits {
				latency[i] += seen * e / requests[i]
			}
			works *= 1 - min(1, bad*c.passes*min(1, e/requests[i]))
		}
		fails[i] = 1 - works
	}
	out := row{missing(n), missing(n), missing(n), missing(n), missing(n)}
	show := func(i int, requests, latency, fails float64) {
		out.requests[i] = requests
		if requests == 0 {
			return
		}
		out.latency[i] = latency
		out.median[i] = latency * 0.7 * math.Exp(r.NormFloat64()*0.02)
		out.high[i] = latency * 2.5 * math.Exp(r.NormFloat64()*0.1)
		out.availability[i] = 100 * (1 - math.Round(requests*fails)/requests)
	}
	for i := range n {
		v := &s.services[i]
		if v.pseudo || v.silent || t.down[i] {
			continue
		}
		// What one caller alone waits for is in the mean of all calls.
		extra := 0.0
		for e, d := range t.path {
			if e[1] == i && requests[i] > 0 {
				extra += d * edges[e] / requests[i]
			}
		}
		show(i, requests[i], latency[i]+extra, fails[i])
		for _, c := range v.calls {
			if c.seen >= 0 {
				seen, bad := latency[c.to]+t.path[[2]int{i, c.to}], fails[c.to]
				if t.down[c.to] {
					seen, bad = timeout, 1
				}
				show(c.seen, poisson(r, edges[[2]int{i, c.to}]*c.visible), (seen+0.002)*math.Exp(r.NormFloat64()*0.05), bad)
			}
		}
	}
	return out
}

func missing(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	return out
}

// poisson draws a count, by a Gaussian where it is large.
func poisson(r *rand.Rand, mean float64) float64 {
	switch {
	case mean <= 0:
		return 0
	case mean > 50:
		return math.Max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n := 0.0
	for p := r.Float64(); p > math.Exp(-mean); p *= r.Float64() {
		n++
	}
	return n
}

// Truth is one drawn issue.
type Truth struct {
	Folder, Fault, Node, Metric string
}

const (
	step   = 300.0 // seconds between rows
	hidden = 6     // rows before an issue that are not recorded
)

// Write draws a site and writes it to a folder: graph.csv, noissue/metrics.csv and an
// issue each in issues/N.
func Write(dir string, o Options) ([]Truth, error) {
	if o.Fault != "" && !slices.Contains(Faults, o.Fault) {
		return nil, fmt.Errorf("%w: no fault %q; there are %s", usage.Err, o.Fault, strings.Join(Faults, ", "))
	}
	rng := rand.New(rand.NewPCG(o.Seed, 17))
	s := draw(rng)
	// A site changes between the recording of its normal operation and the issues.
	rows := 300 + rng.IntN(300)
	drift := func(width float64) []float64 {
		out := make([]float64, len(s.services))
		for i := range out {
			out[i] = math.Exp(rng.NormFloat64() * width)
		}
		return out
	}
	same := drift(0)
	began := 1.7e9
	var normal []row
	for k := range rows {
		normal = append(normal, s.measure(float64(k)*step/3600, same, trouble{}))
	}
	s.capacities(normal)
	if err := s.writeGraph(filepath.Join(dir, "graph.csv")); err != nil {
		return nil, err
	}
	if err := s.writeRows(filepath.Join(dir, "noissue"), began, normal); err != nil {
		return nil, err
	}
	later := drift([]float64{0, 0.05, 0.2}[rng.IntN(3)])
	var out []Truth
	for k := 0; len(out) < o.Issues && k < 60*o.Issues; k++ {
		t, err := s.issue(dir, len(out), began+4e7+float64(k)*20000, later, normal, o.Fault)
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, *t)
		}
	}
	return out, nil
}

// capacities leaves room above the normal load.
func (s *Site) capacities(normal []row) {
	for i := range s.services {
		most := 0.0
		for _, r := range normal {
			if r.requests[i] > most {
				most = r.requests[i]
			}
		}
		s.services[i].capacity = most * 2
	}
	s.services[2].capacity /= 1.6
}

// issue draws one issue; nil where the target would not notice it.
func (s *Site) issue(dir string, number int, began float64, drift []float64, normal []row, fault string) (*Truth, error) {
	rng := s.rng
	if fault == "" {
		fault = Faults[rng.IntN(len(Faults))]
	}
	root := s.below()
	if fault == "load" {
		root = s.second
	}
	if s.services[root].pseudo || s.services[root].silent {
		return nil, nil
	}
	before, during, after := rng.IntN(4), 2+rng.IntN(4), rng.IntN(3)
	size := math.Exp(rng.Float64()*4 - 2)
	busiest := s.services[s.entry].own + 0.02
	// Often something else moves at the same time that has nothing to do with it.
	other := -1
	if rng.Float64() < 0.3 {
		other = rng.IntN(len(s.services))
	}
	related := s.above(root)
	if other >= 0 && (related[other] || s.services[other].pseudo || s.services[other].own > busiest/10) {
		other = -1 // it would be a second cause
	}
	callers := s.callers(root)
	if fault == "path-delay" && len(callers) == 0 {
		return nil, nil
	}
	var caller int
	if len(callers) > 0 {
		caller = callers[rng.IntN(len(callers))]
	}
	fresh := -1
	if fault == "wrong-call" {
		fresh = s.fresh()
		drift = append(append([]float64(nil), drift...), 1)
	}
	var rows []row
	hour := math.Mod(began/3600, 24)
	for k := -hidden; k < before+during+after; k++ {
		t := trouble{slower: map[int]float64{}, fails: map[int]float64{}, down: map[int]bool{}, load: map[int]float64{}, calls: map[int]call{}}
		if in := k - before; in >= 0 && in < during {
			switch fault {
			case "delay":
				t.slower[root] = size * busiest
			case "path-delay":
				t.path = map[[2]int]float64{{caller, root}: size * busiest}
			case "errors":
				t.fails[root] = min(0.9, size*0.03)
			case "saturation":
				t.slower[root], t.fails[root] = size*busiest, min(0.5, size*0.01)
			case "leak":
				grown := float64(in+1) / float64(during)
				t.slower[root], t.fails[root] = size*busiest*2*grown, min(0.5, size*0.02*grown*grown)
			case "down":
				t.down[root] = true
			case "wrong-call":
				t.calls[root] = call{to: fresh, ratio: 0.3, waits: true, passes: 1, seen: -1}
				t.fails[fresh] = min(1, size*0.1)
			case "load":
				t.load[s.second] = 3 + 5*rng.Float64()
			}
			if other >= 0 {
				t.slower[other] += s.services[other].own
			}
		}
		rows = append(rows, s.measure(hour+float64(k)*step/3600, drift, t))
	}
	metric := s.noticed(rows[:hidden], rows[hidden+before:hidden+before+during], normal)
	rows = rows[hidden:]
	name := filepath.Join("issues", strconv.Itoa(number))
	truth := &Truth{name, fault, s.services[root].name, metric}
	if metric == "" {
		truth = nil
	} else if err := s.writeIssue(filepath.Join(dir, name), began, rows, before, *truth); err != nil {
		return nil, err
	}
	if fresh >= 0 {
		s.services = s.services[:fresh]
	}
	return truth, nil
}

// fresh adds a service that nobody has called before.
func (s *Site) fresh() int {
	s.services = append(s.services, service{name: "never-called", own: 0.01, spread: 0.5, wander: 0.05})
	return len(s.services) - 1
}

// below draws a service that the entry reaches.
func (s *Site) below() int {
	at := s.entry
	for range 1 + s.rng.IntN(5) {
		calls := s.services[at].calls
		if len(calls) == 0 {
			break
		}
		at = calls[s.rng.IntN(len(calls))].to
	}
	return at
}

// above are the services that wait for one, and the names under which it is seen.
func (s *Site) above(root int) map[int]bool {
	out := map[int]bool{root: true}
	for changed := true; changed; {
		changed = false
		for i, v := range s.services {
			for _, c := range v.calls {
				if out[c.to] && !out[i] {
					out[i], changed = true, true
				}
			}
		}
	}
	return out
}

func (s *Site) callers(j int) []int {
	var out []int
	for i, v := range s.services {
		for _, c := range v.calls {
			if c.to == j {
				out = append(out, i)
			}
		}
	}
	return out
}

// noticed says which metric of the entry an alarm would have noticed, by the rows before.
func (s *Site) noticed(before, during, normal []row) string {
	i := s.entry
	slow, failed := 0.0, 0.0
	var sum, squares, n float64
	for _, r := range normal {
		if v := r.latency[i]; v == v {
			sum, squares, n = sum+v, squares+v*v, n+1
		}
	}
	sd := math.Sqrt(max(squares/n-sum*sum/n/n, 1e-18))
	var level, well float64
	for _, r := range before {
		level += r.latency[i] / float64(len(before))
		well += (100 - r.availability[i]) / float64(len(before))
	}
	for _, r := range during {
		slow += (r.latency[i] - level) / sd / float64(len(during))
		failed += (100 - r.availability[i] - well) / float64(len(during))
	}
	failed /= max(0.5, math.Sqrt(100*well/max(1, s.services[i].load)))
	switch {
	case failed >= slow && failed > 3:
		return "availability"
	case slow > 4:
		return "latency"
	}
	return ""
}

func (s *Site) writeGraph(path string) error {
	var b strings.Builder
	names := append([]service(nil), s.services...)
	names = append(names, service{name: "never-called"})
	for _, v := range names {
		b.WriteString("," + v.name)
	}
	for i, v := range names {
		b.WriteString("\n" + v.name)
		to := map[int]bool{}
		for _, c := range v.calls {
			to[c.to] = true
			if c.seen >= 0 {
				to[c.seen] = true
			}
		}
		for j := range names {
			edge := "0"
			if to[j] || j == len(names)-1 && i < j && !v.pseudo {
				edge = "1"
			}
			b.WriteString("," + edge)
		}
	}
	return write(path, b.String()+"\n")
}

func (s *Site) writeRows(dir string, began float64, rows []row) error {
	var names, metrics, statistics []string
	kinds := []struct {
		metric, statistic string
		of                func(row) []float64
	}{
		{"latency", "Average", func(r row) []float64 { return r.latency }},
		{"latency", "p50", func(r row) []float64 { return r.median }},
		{"latency", "p95", func(r row) []float64 { return r.high }},
		{"requests", "Sum", func(r row) []float64 { return r.requests }},
		{"availability", "Average", func(r row) []float64 { return r.availability }},
	}
	for _, k := range kinds {
		for _, v := range s.services {
			if !v.silent {
				names, metrics, statistics = append(names, v.name), append(metrics, k.metric), append(statistics, k.statistic)
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "microservice,%s\nmetric,%s\nstatistic,%s\nunix_timestamp%s\n",
		strings.Join(names, ","), strings.Join(metrics, ","), strings.Join(statistics, ","), strings.Repeat(",", len(names)))
	for n, r := range rows {
		b.WriteString(strconv.FormatFloat(began+float64(n)*step, 'f', 1, 64))
		for _, k := range kinds {
			values := k.of(r)
			for i, v := range s.services {
				if v.silent {
					continue
				}
				b.WriteByte(',')
				if i < len(values) && values[i] == values[i] {
					b.WriteString(strconv.FormatFloat(values[i], 'g', 8, 64))
				}
			}
		}
		b.WriteByte('\n')
	}
	return write(filepath.Join(dir, "metrics.csv"), b.String())
}

func (s *Site) writeIssue(dir string, began float64, rows []row, before int, t Truth) error {
	if err := s.writeRows(dir, began, rows); err != nil {
		return err
	}
	doc, err := json.Marshal(map[string]any{
		"target": map[string]any{
			"node": s.services[s.entry].name, "metric": t.Metric, "agg": "Average",
			"timestamp": began + float64(before)*step + s.rng.Float64()*step,
		},
		"root_cause": map[string]any{"node": t.Node},
		"metadata":   map[string]any{"fault": t.Fault},
	})
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, "target.json"), string(doc)+"\n")
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
