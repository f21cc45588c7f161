package correlator

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/correlator/messages"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

func itoa(n int) string { return strconv.Itoa(n) }

const (
	maxOffsets = 200 // of a lane; thinned evenly
	maxMembers = 64  // of a fold in the graph
)

// describe renders the full state of an incident.
func (e *Engine) describe(inc *incident) schemas.Incident {
	out := schemas.Incident{
		ID: inc.id, Opened: inc.opened.UTC(), Updated: e.now.UTC(), At: e.now.UTC(), Revision: inc.revision, MergedInto: inc.mergedInto,
		Alternatives: []schemas.Cause{}, Events: []string{}, Affected: []string{}, Workloads: []string{},
	}
	out.RootCause.Resource, out.RootCause.Fault = e.cause(inc)
	out.RootCause.Confidence = round(inc.confidence)
	if !inc.closed.IsZero() {
		t := inc.closed.UTC()
		out.Closed = &t
	}
	root := inc.where
	if inc.root != nil {
		root = inc.root.node
	}
	if n := e.g.ancestor(root, schemas.KindSite); n != none {
		out.Site = e.g.name[n]
	}
	out.Severity = inc.told.severity
	if inc.gone {
		if inc.mergedInto == "" { // it was nothing after all
			t := e.now.UTC()
			out.Closed = &t
		}
		return out
	}
	if inc.alternatives != nil {
		out.Alternatives = inc.alternatives
	}
	v := e.view(inc, root)
	total := 0
	for _, s := range inc.signs {
		total += len(s.facts)
	}
	out.Events, out.EventCount = make([]string, 0, total), e.facts(inc)
	for _, s := range inc.signs {
		for i := range s.facts {
			out.Events = append(out.Events, s.facts[i].id)
		}
	}
	for _, n := range v.servers {
		out.Affected = append(out.Affected, e.g.name[n])
	}
	for _, n := range v.jobs {
		out.Workloads = append(out.Workloads, e.g.name[n])
	}
	if inc.root != nil {
		target := root
		if inc.root.fault.Target == "server" {
			if s := e.g.server(root); s != none {
				target = s
			}
		}
		out.Recommendation = &schemas.Recommendation{Action: inc.root.fault.Action, Target: e.g.name[target]}
	} else {
		out.Recommendation = &schemas.Recommendation{Action: "ticket", Target: e.g.name[root]}
	}
	out.Lanes = e.laneView(inc, v)
	summary, sentences := e.explain(inc, v)
	out.Summary, out.Sentences = &summary, sentences
	text := make([]string, 0, len(sentences)+1)
	text = append(text, messages.Text(summary.ID, summary.Args))
	for _, s := range sentences {
		text = append(text, messages.Text(s.ID, s.Args))
	}
	out.Explanation = strings.Join(text, " ")
	out.Graph = e.graphView(inc, v)
	return out
}

// view is what an incident's signs come to.
type view struct {
	root    node
	onset   time.Time
	first   time.Time
	servers []node
	jobs    []node
	groups  []group
}

// group is all signs of one kind.
type group struct {
	name  string // of the sign, "" for what the model does not know
	signs []*sign
	nodes int
	facts int
	from  time.Time
	to    time.Time
	lanes []string
}

func (e *Engine) signName(s *sign) string {
	if s.kind < len(e.model.Signs) {
		return e.model.Signs[s.kind].Name
	}
	return ""
}

func (e *Engine) view(inc *incident, root node) *view {
	v := &view{root: root}
	jobRoot := e.g.kindOf(root) == propagation.KindWorkload // else a job's other servers are not affected, the job is
	hosts, jobs := map[node]bool{}, map[node]bool{}
	host := func(n node) {
		if s := e.g.server(n); s != none && !hosts[s] && e.g.kindOf(s) == schemas.KindServer {
			hosts[s] = true
			v.servers = append(v.servers, s)
		}
	}
	index := map[int]int{}
	for _, s := range inc.signs {
		if e.g.kindOf(s.node) == propagation.KindWorkload && !jobs[s.node] {
			jobs[s.node] = true
			v.jobs = append(v.jobs, s.node)
		}
		i, ok := index[s.kind]
		if !ok {
			i = len(v.groups)
			index[s.kind] = i
			v.groups = append(v.groups, group{name: e.signName(s)})
		}
		g := &v.groups[i]
		g.signs = append(g.signs, s)
		if !s.said {
			continue
		}
		g.nodes++
		if g.from.IsZero() || s.at.Before(g.from) {
			g.from = s.at
		}
		if s.at.After(g.to) {
			g.to = s.at // repeats by slower sources do not count
		}
		last := node(none)
		for k := range s.facts {
			f := &s.facts[k]
			if f.state == cleared {
				continue
			}
			g.facts += int(f.n)
			if key := e.laneID(f.lane); !slices.Contains(g.lanes, key) {
				g.lanes = append(g.lanes, key)
			}
			if v.first.IsZero() || f.at.Before(v.first) {
				v.first = f.at
			}
			if f.about != last && (jobRoot || !e.jobSign(s)) {
				last = f.about
				host(f.about)
				e.peers(f.about, host)
			}
		}
	}
	host(root)
	v.onset = v.first
	if inc.root != nil && !inc.root.onset.IsZero() {
		v.onset = inc.root.onset
	}
	return v
}

func (e *Engine) jobSign(s *sign) bool {
	return s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Job
}

// peers visits the servers at the other ends of a port's links.
func (e *Engine) peers(n node, visit func(node)) {
	if e.g.kindOf(n) != schemas.KindPort {
		return
	}
	for _, l := range [2][][]node{e.g.links[linkNet].out, e.g.links[linkNet].in} {
		for _, p := range l[n] {
			visit(p)
		}
	}
}

func (v *view) group(name string) *group {
	for i := range v.groups {
		if v.groups[i].name == name && v.groups[i].facts > 0 {
			return &v.groups[i]
		}
	}
	return nil
}

// laneID is a lane's key: types whose code says what happened keep it.
func (e *Engine) laneID(lane int32) string {
	k := e.lanes[lane]
	if k.code != "" && (k.typ == schemas.EventGPUXID || k.typ == schemas.EventNVSwitchSXid || k.typ == schemas.EventBMCSEL) {
		return k.typ + "/" + k.code
	}
	return k.typ
}

func (e *Engine) laneView(inc *incident, v *view) []schemas.Lane {
	index := map[string]int{}
	var lanes []schemas.Lane
	for _, s := range inc.signs {
		role := "effect"
		if s.node == v.root {
			role = "cause"
		}
		for i := range s.facts {
			f := &s.facts[i]
			if f.state == cleared {
				continue
			}
			id := e.laneID(f.lane)
			k, ok := index[id]
			if !ok {
				k = len(lanes)
				index[id] = k
				lanes = append(lanes, schemas.Lane{
					ID: id, Type: e.lanes[f.lane].typ, Code: e.lanes[f.lane].code, Severity: f.sev, Role: role, Offsets: []float64{},
				})
			}
			l := &lanes[k]
			l.Count += int(f.n)
			l.Offsets = append(l.Offsets, math.Round(f.at.Sub(v.first).Seconds()*1000)/1000)
			if f.sev.Rank() > l.Severity.Rank() {
				l.Severity = f.sev
			}
			if role == "cause" {
				l.Role = role
			}
		}
	}
	for i := range lanes {
		slices.Sort(lanes[i].Offsets)
		lanes[i].Offsets = thin(lanes[i].Offsets, maxOffsets)
	}
	slices.SortStableFunc(lanes, func(a, b schemas.Lane) int {
		if a.Role != b.Role {
			return cmp.Compare(a.Role, b.Role) // cause before effect
		}
		return cmp.Compare(a.Offsets[0], b.Offsets[0])
	})
	return lanes
}

// thin keeps n values, evenly spread, the first and the last among them.
func thin(v []float64, n int) []float64 {
	if len(v) <= n {
		return v
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = v[i*(len(v)-1)/(n-1)]
	}
	return out
}

func (e *Engine) leafName(n node) string {
	name := e.g.name[n]
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[i+1:]
	}
	return name
}

// number returns the trailing number of a part's name, such as 3 of gpu3, or the name.
func number(name string) any {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	if n, err := strconv.Atoi(name[i:]); err == nil {
		return n
	}
	return name
}

// feedOf returns the feed and the rack of a PDU, and the PDUs beside it.
func (e *Engine) feedOf(n node) (feed, rack string, others []node) {
	feed = "?"
	if f := e.g.attrs[n][schemas.AttrFeed]; f != "" {
		feed = f
	}
	if r := e.g.ancestor(n, schemas.KindRack); r != none {
		rack = e.g.name[r]
		for _, p := range e.g.children[r] {
			if p != n && e.g.kindOf(p) == schemas.KindPDU {
				others = append(others, p)
			}
		}
	}
	return feed, rack, others
}

// supplies says how many power supplies hang on PDUs, how many of them report
// that their input is lost, and how many are silent and could not report.
func (e *Engine) supplies(of []node, root *suspect) (all, lost, mute int) {
	kind := e.model.SignNamed("psu_input")
	if kind < 0 || root == nil {
		return 0, 0, 0
	}
	due := e.onset(root).Add(effectSoon)
	for _, p := range of {
		for _, psu := range e.g.links[linkPowers].out[p] {
			dev := e.g.server(psu)
			if dev == none || e.g.kindOf(psu) != schemas.KindPSU || e.g.kindOf(dev) != schemas.KindServer {
				continue
			}
			all++
			if s := e.signs.get(psu, kind); s != nil && s.said && s.up {
				lost++
			} else if e.mute(dev, e.model.Signs[kind].By, due, root) {
				mute++
			}
		}
	}
	return all, lost, mute
}

func (g *group) within() float64 { return seconds(g.to.Sub(g.from)) }

func seconds(d time.Duration) float64 {
	s := d.Seconds()
	if s >= 10 {
		return math.Round(s)
	}
	return math.Round(s*10) / 10
}

// ranOn returns the servers that a workload held.
func (e *Engine) ranOn(job node) map[node]bool {
	servers := map[node]bool{}
	if j := e.g.jobs[job]; j != nil {
		for _, r := range j.resources {
			if s := e.g.server(r); s != none {
				servers[s] = true
			}
		}
	}
	return servers
}

// explain puts an incident into sentences, each with the lanes that prove it.
func (e *Engine) explain(inc *incident, v *view) (schemas.Sentence, []schemas.Sentence) {
	_, fault := e.cause(inc)
	root, server := e.g.name[v.root], ""
	if s := e.g.server(v.root); s != none {
		server = e.g.name[s]
	}
	part := e.leafName(v.root)
	summary := schemas.Sentence{ID: "sum." + fault, Args: map[string]any{"servers": len(v.servers)}}
	args := summary.Args
	switch e.g.kindOf(v.root) {
	case schemas.KindPDU:
		feed, rack, _ := e.feedOf(v.root)
		args["feed"], args["rack"], args["resource"] = feed, rack, root
	case schemas.KindGPU:
		args["gpu"], args["server"] = number(part), server
	case schemas.KindSwitch:
		args["switch"], args["resource"] = root, root
	case schemas.KindPort:
		args["port"] = root
	case propagation.KindWorkload:
		args["job"] = root
		if len(v.servers) == 0 { // the scheduler alone told: it ran on these
			args["servers"] = len(e.ranOn(v.root))
		}
	case schemas.KindServer:
		args["server"], args["part"], args["resource"] = root, root, root
	default:
		args["part"], args["server"], args["resource"], args["port"] = part, server, root, root
	}
	if fault == "unknown" {
		args["resource"] = root
	}
	if b := v.group("port_down"); b != nil && fault == "network.link_flap" {
		n := 0
		for _, s := range b.signs {
			n = max(n, raises(s))
		}
		args["n"] = n
	}
	var out []schemas.Sentence
	told, lanes := map[string]bool{}, map[string]bool{}
	add := func(id string, g *group, args map[string]any) {
		s := schemas.Sentence{ID: id, Args: args, Lanes: []string{}}
		if g != nil {
			told[g.name] = true
			s.Lanes, s.Count = g.lanes, g.facts
			for _, l := range g.lanes {
				lanes[l] = true
			}
		}
		out = append(out, s)
	}
	name := func(n node) string { return e.g.name[n] }
	if fault == "power.feed_loss" && v.group("psu_input") == nil {
		if all, _, mute := e.supplies([]node{v.root}, inc.root); mute > 0 {
			add("say.feed_blind", nil, map[string]any{"resource": root, "n": mute, "of": all})
		}
		if n := e.leftWithout(inc.root); n > 0 {
			add("say.no_supply_left", nil, map[string]any{"n": n})
		}
	}
	if g := v.group("psu_input"); g != nil && fault == "power.feed_loss" {
		feed, rack, others := e.feedOf(v.root)
		add("say.psus_lost", g, map[string]any{"n": g.nodes, "feed": feed, "rack": rack, "within": g.within()})
		switch all, lost, mute := e.supplies(others, inc.root); {
		case lost > 0 || all == 0:
			add("say.common", nil, map[string]any{"resource": root})
		case mute == all:
			add("say.common_blind", nil, map[string]any{"resource": root, "of": all})
		case mute > 0:
			add("say.common_dark", nil, map[string]any{"resource": root, "n": mute, "of": all})
		case len(others) > 1:
			add("say.common_alone", nil, map[string]any{"resource": root})
		default:
			other, _, _ := e.feedOf(others[0])
			add("say.common_supplier", nil, map[string]any{"resource": root, "feed": other})
		}
		if n, a, b := e.repeats(g); n > 0 {
			add("say.repeats", g, map[string]any{"n": n, "a": a, "b": b})
		}
	}
	if g := v.group("pdu_trip"); g != nil {
		add("say.breaker_open", g, map[string]any{"resource": name(g.signs[0].node)})
	}
	if g := v.group("crac_alarm"); g != nil {
		add("say.air_alarm", g, map[string]any{"resource": name(g.signs[0].node)})
	}
	if g := v.group("gpu_off_bus"); g != nil {
		add("say.off_bus", g, map[string]any{"gpu": number(e.leafName(g.signs[0].node)), "server": server})
	}
	if g := v.group("job_program"); g != nil {
		add("say.page_fault", g, map[string]any{"n": e.abouts(g), "job": name(g.signs[0].node), "within": g.within()})
	}
	if g := v.group("job_stopped"); g != nil {
		if fault == "workload.error" && v.group("job_program") != nil {
			add("say.cleanup", g, map[string]any{"n": g.facts})
		} else {
			for _, s := range g.signs {
				add("say.job_stopped", g, map[string]any{"job": name(s.node), "servers": e.hosts(s)})
			}
		}
	}
	if fault == "workload.error" {
		if j := e.g.jobs[v.root]; j != nil && j.attrs["owner"] != "" {
			add("say.job_owner", nil, map[string]any{"job": root, "owner": j.attrs["owner"]})
		}
		if n := e.reporting(inc); n > 0 {
			add("say.no_hardware", nil, map[string]any{"gpus": n})
		} else {
			add("say.no_fault_seen", nil, map[string]any{"job": root})
		}
	}
	if g := v.group("switch_gone"); g != nil && g.signs[0].node == v.root {
		add("say.switch_silent", g, map[string]any{"switch": root})
	}
	if g := v.group("port_down"); g != nil {
		if fault == "network.link_flap" {
			add("say.port_bounces", g, map[string]any{"port": root, "n": args["n"]})
		} else {
			add("say.ports_down", g, map[string]any{"n": g.nodes, "within": g.within()})
		}
		told["port_bouncing"] = true
	}
	if g := v.group("inlet_hot"); g != nil {
		add("say.hot_inlets", g, map[string]any{"n": g.nodes, "within": g.within()})
	}
	if g := v.group("gpu_hot"); g != nil && g.nodes > 1 {
		add("say.hot_gpus", g, map[string]any{"n": g.nodes})
	}
	if g := v.group("host_gone"); g != nil {
		add("say.servers_silent", g, map[string]any{"n": g.nodes})
		told["agent_gone"] = true
	} else if g := v.group("agent_gone"); g != nil {
		add("say.servers_silent", g, map[string]any{"n": g.nodes})
	}
	if g := v.group("power_brake"); g != nil && fault == "power.feed_loss" {
		hosts, gpus := map[node]bool{}, 0
		for _, s := range g.signs {
			hosts[e.g.server(s.node)] = true
			if e.g.kindOf(s.node) == schemas.KindGPU {
				gpus++
			}
		}
		if _, _, others := e.feedOf(v.root); len(others) == 1 && e.unfed[others[0]] == nil {
			other, _, _ := e.feedOf(others[0])
			add("say.brake", g, map[string]any{"gpus": gpus, "servers": len(hosts), "feed": other})
		} else {
			add("say.brake_only", g, map[string]any{"gpus": gpus, "servers": len(hosts)})
		}
	}
	if g := v.group("pdu_overload"); g != nil {
		add("say.overload", g, map[string]any{"resource": name(g.signs[0].node)})
	}
	if g := v.group("gpu_recovery"); g != nil {
		add("say.recovery", g, nil)
	}
	link, crc := v.group("sxid_link"), v.group("gpu_link_crc")
	if link != nil && fault == "gpu.fallen_off_bus" {
		if crc != nil {
			told["gpu_link_crc"] = true
			add("say.neighbours", link, map[string]any{"switches": link.nodes, "gpus": crc.nodes})
		} else {
			add("say.nvswitches", link, map[string]any{"switches": link.nodes})
		}
	}
	for i := range v.groups {
		g := &v.groups[i]
		if g.facts == 0 || told[g.name] && g.name != "" || !slices.ContainsFunc(g.lanes, func(l string) bool { return !lanes[l] }) {
			continue
		}
		what := strings.Join(g.lanes, ", ")
		before := v.onset.Sub(g.from)
		switch {
		case before > 30*time.Second:
			add("say.before", g, map[string]any{"what": what, "s": seconds(before)})
		case g.nodes == 1:
			add("say.record", g, map[string]any{"resource": name(g.signs[0].node), "what": what})
		default:
			add("say.records", g, map[string]any{"n": g.facts, "what": what, "parts": g.nodes, "within": g.within()})
		}
	}
	if fault == "unknown" {
		add("say.unexplained", nil, nil)
	}
	ended := 0
	for _, s := range inc.signs {
		if s.stateful && !s.up {
			ended++
		}
	}
	if ended > 0 {
		add("say.returned", nil, map[string]any{"n": ended})
	}
	return summary, out
}

// leftWithout counts the servers and switches that a fault took along since
// nothing else feeds them.
func (e *Engine) leftWithout(h *suspect) int {
	seen := map[node]bool{}
	for _, f := range h.folded {
		if e.without(f.node, h) {
			seen[e.g.server(f.node)] = true
		}
	}
	return len(seen)
}

func raises(s *sign) int {
	n := 0
	for i := range s.facts {
		if s.facts[i].state == raised {
			n += int(s.facts[i].n)
		}
	}
	return n
}

// repeats counts the signs that two sources saw, and names the sources: a
// repeats b.
func (e *Engine) repeats(g *group) (n int, a, b string) {
	for _, s := range g.signs {
		first := ""
		for i := range s.facts {
			f := &s.facts[i]
			if f.state == cleared {
				continue
			}
			if first == "" {
				first = f.source
			} else if f.source != first {
				n++
				a, b = f.source, first
				break
			}
		}
	}
	return n, sourceName(a), sourceName(b)
}

func sourceName(s string) string {
	switch s {
	case schemas.SourceRedfish:
		return "Redfish"
	case schemas.SourceIPMI, schemas.SourceSNMP, schemas.SourceDCGM, schemas.SourceNVML:
		return strings.ToUpper(s)
	}
	return s
}

// abouts counts the parts that the events of a group speak of.
func (e *Engine) abouts(g *group) int {
	seen := map[node]bool{}
	for _, s := range g.signs {
		for i := range s.facts {
			seen[s.facts[i].about] = true
		}
	}
	return len(seen)
}

func (e *Engine) hosts(s *sign) int {
	seen := map[node]bool{}
	for i := range s.facts {
		if h := e.g.server(s.facts[i].about); h != none {
			seen[h] = true
		}
	}
	return max(len(seen), 1)
}

func (e *Engine) reporting(inc *incident) int {
	seen := map[node]bool{}
	for _, s := range inc.signs {
		for i := range s.facts {
			if n := s.facts[i].about; e.g.kindOf(n) == schemas.KindGPU {
				seen[n] = true
			}
		}
	}
	return len(seen)
}

// graphView draws the way from the cause to what it hit; equal parts fold.
func (e *Engine) graphView(inc *incident, v *view) *schemas.Graph {
	out := &schemas.Graph{Nodes: []schemas.GraphNode{}, Edges: []schemas.GraphEdge{}}
	cause := schemas.GraphNode{ID: e.g.name[v.root], Kind: e.g.kindOf(v.root), Label: e.g.name[v.root], Role: "cause", Count: 1}
	type fold struct {
		members []node
		seen    map[node]bool
		of      int
		lags    []float64
		via     string // kind of the fold before
		edge    string
	}
	folds := map[string]*fold{}
	var order []string
	add := func(kind string, n node, lag float64, via, edge string, of int) {
		f := folds[kind]
		if f == nil {
			f = &fold{seen: map[node]bool{}, via: via, edge: edge}
			folds[kind] = f
			order = append(order, kind)
		}
		if !f.seen[n] {
			f.seen[n] = true
			f.members = append(f.members, n)
		}
		f.of = max(f.of, of)
		f.lags = append(f.lags, lag)
	}
	for _, s := range inc.signs {
		if !s.said {
			continue
		}
		if s.node == v.root {
			cause.Reporting = 1
			if e.g.kindOf(s.node) != propagation.KindWorkload {
				continue
			}
			for i := range s.facts {
				if h := e.g.server(s.facts[i].about); h != none {
					add(schemas.KindServer, h, s.facts[i].at.Sub(v.onset).Seconds(), "", "runs", 0)
				}
				if a := s.facts[i].about; e.g.kindOf(a) == schemas.KindGPU {
					add(schemas.KindGPU, a, s.facts[i].at.Sub(v.onset).Seconds(), schemas.KindServer, "contains", 0)
				}
			}
			continue
		}
		via, edge, of := "", "contains", 0
		if inc.root != nil {
			if c := classOf(s, inc.root); c >= 0 {
				path := inc.root.fault.Classes[c].Path
				of = inc.root.classes[c].n
				if len(path) > 0 {
					edge = edgeOf(path[len(path)-1].Op)
				}
				if len(path) > 1 {
					via = path[len(path)-2].Kind
				}
			}
		}
		add(e.g.kindOf(s.node), s.node, s.at.Sub(v.onset).Seconds(), via, edge, of)
	}
	out.Nodes = append(out.Nodes, cause)
	id := func(kind string) string {
		f := folds[kind]
		if len(f.members) == 1 {
			return e.g.name[f.members[0]]
		}
		return kind
	}
	for _, kind := range order {
		f := folds[kind]
		n := schemas.GraphNode{ID: id(kind), Kind: kind, Role: "affected", Count: max(len(f.members), f.of), Reporting: len(f.members)}
		if n.Label = n.ID; len(f.members) > 1 || n.Count > 1 {
			n.Label = itoa(n.Count) + " " + kind
		}
		for i, m := range f.members {
			if i == maxMembers {
				break
			}
			n.Members = append(n.Members, e.g.name[m])
		}
		out.Nodes = append(out.Nodes, n)
		from := cause.ID
		if b := folds[f.via]; b != nil && f.via != kind {
			from = id(f.via)
		}
		slices.Sort(f.lags)
		out.Edges = append(
			out.Edges, schemas.GraphEdge{From: from, To: n.ID, Kind: f.edge, LagSeconds: math.Round(f.lags[len(f.lags)/2]*1000) / 1000},
		)
	}
	return out
}

func classOf(s *sign, h *suspect) int {
	for _, l := range s.links {
		if l.to == h {
			return l.class
		}
	}
	return -1
}

func edgeOf(op propagation.Op) string {
	switch op {
	case propagation.Powers, propagation.Powered:
		return schemas.LinkPowers
	case propagation.Cools, propagation.Cooled:
		return schemas.LinkCools
	case propagation.Net:
		return schemas.LinkNetwork
	case propagation.NVLink:
		return schemas.LinkNVLink
	case propagation.PCIe:
		return schemas.LinkPCIe
	case propagation.Jobs:
		return "runs"
	}
	return "contains"
}
