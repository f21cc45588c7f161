package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/apigen"
	"auspex/internal/fleet"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// GetFleet implements the operation getFleet.
func (s *Server) GetFleet(ctx context.Context, r apigen.GetFleetRequestObject) (apigen.GetFleetResponseObject, error) {
	s.live.freshen(ctx)
	incidents, _, err := s.deps.Records.Incidents(ctx, records.Filter{Since: time.Now().Add(-historySpan), Limit: maxPage})
	if err != nil {
		return nil, err
	}
	out := s.fleet(incidents)
	index, _, _ := s.live.current()
	seen(ctx).fleet(&out, index)
	if r.Params.Ids == nil || *r.Params.Ids {
		names := s.live.directory()
		for k := range out.Racks {
			out.Racks[k].ID = idOf(names, out.Racks[k].Name)
		}
		out.Servers.ID = make([]string, len(out.Servers.Name))
		for k, name := range out.Servers.Name {
			out.Servers.ID[k] = names.ID(name)
		}
	}
	return apigen.GetFleet200JSONResponse(out), nil
}

func (s *Server) fleet(recent []schemas.Incident) apigen.Fleet {
	l, now := s.live, time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.index
	n := len(x.Servers)
	sv := apigen.FleetServers{
		Name: make([]string, n), Rack: make([]int, n), State: make([]int, n), Gpus: make([]string, n), Temp: make([]*int, n),
		Power: make([]*int, n), Load: make([]*int, n), Risk: make([]float64, n), Job: make([]int, n),
	}
	out := apigen.Fleet{Time: now.UTC(), Racks: make([]apigen.FleetRack, len(x.Racks)), Jobs: []apigen.FleetJob{}}
	for k, r := range x.Racks {
		out.Racks[k] = apigen.FleetRack{
			Name: r.ID, Row: r.Row, Site: r.Site, Leaf: int(l.derived.Device(x, r.Leaf)),
			Feeds: []int{int(l.derived.Of(r.Feeds[0])), int(l.derived.Of(r.Feeds[1]))},
		}
	}
	running, jobs := x.Running(now), make(map[string]int)
	gpus := apigen.FleetGPUs{Total: x.GPUs}
	var power *float64
	for i, srv := range x.Servers {
		reading := l.facts.Readings[srv.ID]
		sv.Name[i], sv.Rack[i], sv.State[i], sv.Gpus[i], sv.Job[i] = srv.ID, srv.Rack, int(l.states[i]), l.gpus[i], -1
		sv.Temp[i], sv.Power[i], sv.Load[i] = whole(reading.Temperature), whole(reading.Power), whole(reading.Load)
		sv.Risk[i] = float64(int(l.derived.Risk(srv.ID)*10)) / 10
		if reading.Power != nil {
			sum := *reading.Power / 1000
			if power != nil {
				sum += *power
			}
			power = &sum
		}
		if w, ok := running[srv.ID]; ok {
			at, known := jobs[w.ID]
			if !known {
				at = len(out.Jobs)
				jobs[w.ID] = at
				out.Jobs = append(out.Jobs, apigen.FleetJob{ID: w.ID, Tenant: fleet.Tenant(w)})
			}
			sv.Job[i] = at
		}
		for _, d := range l.gpus[i] {
			switch fleet.State(d - '0') {
			case fleet.OK, fleet.Predicted:
				gpus.Healthy++
			}
			switch st := fleet.State(d - '0'); {
			case st == fleet.Critical || st == fleet.Acting || st == fleet.Out || st == fleet.Unknown:
				gpus.Out++
			case sv.Job[i] >= 0:
				gpus.Used++
			default:
				gpus.Free++
			}
		}
	}
	out.Servers = sv
	out.Summary = apigen.FleetSummary{
		Name: s.cfg.Name, Simulated: s.deps.Simulated, Servers: n, Racks: len(x.Racks), Sites: x.Sites, Gpus: gpus,
	}
	if power != nil {
		out.Summary.PowerKw = number(*power)
	}
	if s.deps.SampleRate != nil {
		out.Summary.SamplesPerSecond = number(s.deps.SampleRate())
	}
	start, counts := l.bins.Counts(now)
	out.History = apigen.FleetHistory{Start: start, Step: int(historyStep / time.Second), Alerts: counts, Incidents: []apigen.FleetMark{}}
	for _, i := range recent {
		if i.MergedInto == "" {
			out.History.Incidents = append(out.History.Incidents, apigen.FleetMark{ID: i.ID, Time: i.Opened})
		}
	}
	return out
}

// device resolves what a route asks for to the server or switch that it is, or
// is part of.
func (s *Server) device(text string) (*fleet.Index, *fleet.States, fleet.Facts, schemas.Resource, error) {
	index, states, facts := s.live.current()
	names := s.live.directory()
	name, err := one(names, text, "server or switch", wholes(names, names.Find(text)))
	if err != nil {
		return index, states, facts, schemas.Resource{}, err
	}
	r, _ := names.Resource(name)
	return index, states, facts, r, nil
}

// GetServer implements the operation getServer.
func (s *Server) GetServer(ctx context.Context, r apigen.GetServerRequestObject) (apigen.GetServerResponseObject, error) {
	index, states, facts, dev, err := s.device(r.ID)
	if err != nil {
		if gone, e := s.left(ctx, r.ID); e == nil {
			return gone, nil
		}
		return nil, err
	}
	now, names, sees := time.Now(), s.live.directory(), seen(ctx)
	facts = sees.facts(facts)
	out := apigen.Server{
		ID: names.ID(dev.ID), Name: dev.ID, Kind: dev.Kind, Rack: index.Ancestor(dev.ID, schemas.KindRack),
		Site:  index.Ancestor(dev.ID, schemas.KindSite),
		Model: dev.Attrs.Get(schemas.AttrModel), Serial: dev.Attrs.Get(schemas.AttrSerial), State: int(states.Device(index, dev.ID)),
		Parts: []apigen.ServerParts{}, Inventory: []apigen.Fact{}, Links: []apigen.PartLink{}, Contact: s.contact(ctx, dev.ID, now),
		Incidents: []apigen.Incident{}, Predictions: []apigen.Prediction{}, Actions: []apigen.Action{},
	}
	running := index.Running(now)
	out.Risk = states.Risk(dev.ID) / 100
	if !sees.has(dev.ID) {
		out.State, out.Risk, out.Contact = int(fleet.Unknown), 0, []apigen.Contact{}
	} else if w, ok := running[dev.ID]; ok {
		out.Job = apigen.ServerJob{ID: w.ID, Tenant: fleet.Tenant(w), Name: w.Attrs["name"], Since: w.Start}
	}
	out.Health = stateWords[out.State]
	_, gpus := states.Server(index, fleet.Server{ID: dev.ID, GPUs: index.Parts(dev.ID, schemas.KindGPU)})
	for _, id := range index.All(dev.ID) {
		part, _ := index.Resource(id)
		at := slices.IndexFunc(out.Parts, func(p apigen.ServerParts) bool { return p.Kind == part.Kind })
		if at < 0 {
			at = len(out.Parts)
			out.Parts = append(out.Parts, apigen.ServerParts{Kind: part.Kind})
		}
		p := &out.Parts[at]
		digit := strconv.Itoa(int(states.Of(id)))
		if part.Kind == schemas.KindGPU && len(p.Names) < len(gpus) {
			digit = gpus[len(p.Names) : len(p.Names)+1]
		}
		if !sees.has(id) {
			digit = unknownDigit
		}
		p.Names = append(p.Names, strings.TrimPrefix(id, dev.ID+"/"))
		p.States += digit
	}
	slices.SortStableFunc(out.Parts, func(a, b apigen.ServerParts) int { return cmp.Compare(order(a.Kind), order(b.Kind)) })
	for _, p := range out.Parts {
		out.Inventory = append(out.Inventory, apigen.Fact{Name: p.Kind, Value: describe(index, dev.ID, p)})
	}
	for _, l := range index.Links(dev.ID) {
		out.Links = append(out.Links, apigen.PartLink{Part: strings.TrimPrefix(l.From, dev.ID+"/"), Peer: l.To, Kind: l.Kind})
	}
	alerts, _, err := s.deps.Records.Alerts(ctx, records.Filter{Server: dev.ID, Limit: defaultPage})
	if err != nil {
		return nil, err
	}
	if out.Events, err = s.alertsOf(ctx, alerts, names); err != nil {
		return nil, err
	}
	repaired := fleet.Repaired(facts.Actions)
	for _, i := range facts.Incidents {
		if index.Device(i.RootCause.Resource) == dev.ID ||
			slices.ContainsFunc(i.Affected, func(a string) bool { return index.Device(a) == dev.ID }) {
			out.Incidents = append(out.Incidents, brief(i, repaired[i.ID], names, s.deps.Faults()))
		}
	}
	for _, p := range facts.Predictions {
		if cmp.Or(p.Server, index.Device(p.Resource)) == dev.ID {
			out.Predictions = append(out.Predictions, prediction(p, index, running, names, s.deps.Faults()))
		}
	}
	for _, a := range facts.Actions {
		if a.Server == dev.ID {
			out.Actions = append(out.Actions, shown(a, names))
		}
	}
	e, err := s.holdings()
	if err != nil || dev.Kind != schemas.KindServer {
		return untagged(out), nil //nolint:nilerr // a page without what a server is given by
	}
	v, tag, err := s.changed(ctx, e, dev.ID)
	if err != nil {
		s.log.Warn("a server of the inventory has no record", "server", dev.ID, "error", err)
		return untagged(out), nil
	}
	beside(&out, &v)
	out.Consoles = s.consoles(ctx, &dev)
	return apigen.GetServer200JSONResponse{Body: out, Headers: apigen.GetServer200ResponseHeaders{ETag: tag}}, nil
}

// untagged is the page of what has no record that could be changed, such as a switch.
type untagged apigen.Server

// VisitGetServerResponse implements apigen.GetServerResponseObject.
func (p untagged) VisitGetServerResponse(c *fiber.Ctx) error { return c.JSON(apigen.Server(p)) }

var partOrder = []string{
	schemas.KindGPU, schemas.KindNVSwitch, schemas.KindFan, schemas.KindPSU, schemas.KindNIC, schemas.KindPort, schemas.KindCPU,
	schemas.KindDIMM, schemas.KindDisk, schemas.KindBMC,
}

func order(kind string) int {
	if k := slices.Index(partOrder, kind); k >= 0 {
		return k
	}
	return len(partOrder)
}

// describe counts equal models: "8 × H100 SXM5 80GB".
func describe(index *fleet.Index, device string, p apigen.ServerParts) string {
	var models []string
	count := make(map[string]int)
	for _, name := range p.Names {
		r, ok := index.Resource(device + "/" + name)
		if !ok {
			r, _ = index.Resource(name)
		}
		m := r.Attrs.Get(schemas.AttrModel)
		if count[m] == 0 {
			models = append(models, m)
		}
		count[m]++
	}
	parts := make([]string, 0, len(models))
	for _, m := range models {
		if m == "" {
			parts = append(parts, strconv.Itoa(count[m]))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d × %s", count[m], m))
	}
	return strings.Join(parts, ", ")
}

// contact asks the hot window when each collector last brought a number.
func (s *Server) contact(ctx context.Context, id string, now time.Time) []apigen.Contact {
	out := []apigen.Contact{}
	if s.deps.Querier == nil {
		return out
	}
	// The time of a sample is known for one metric at a time. An agent tells what has not changed
	// every few minutes only, so all that a collector reads are asked, at once.
	names, err := s.deps.Querier.Instant(ctx, fmt.Sprintf(`count by (collector, __name__) ({server=%q,collector!=""})`, id), now)
	if err != nil {
		s.log.Warn("cannot read contact state", "device", id, "error", err)
		return out
	}
	var each []string
	for _, n := range names {
		c, m := n.Labels["collector"], n.Labels["__name__"]
		if _, is := schemas.ThresholdOf(m); is {
			continue // those come seldom
		}
		each = append(each, fmt.Sprintf(`label_replace(max by (collector) (timestamp(%s{server=%q,collector=%q})), "metric", %q, "", "")`, m, id, c, m))
	}
	newest := make(map[string]float64)
	for some := range slices.Chunk(each, 100) { // a query has a greatest length
		last, err := s.deps.Querier.Instant(ctx, strings.Join(some, " or "), now)
		if err != nil {
			s.log.Warn("cannot read contact state", "device", id, "error", err)
			return out
		}
		for _, l := range last {
			if c := l.Labels["collector"]; len(l.Points) == 1 {
				newest[c] = max(newest[c], l.Points[0].V)
			}
		}
	}
	for c, at := range newest {
		out = append(out, apigen.Contact{Collector: c, Seconds: max(0, float64(now.UnixMilli())/1000-at)})
	}
	slices.SortFunc(out, func(a, b apigen.Contact) int { return strings.Compare(a.Collector, b.Collector) })
	return out
}

// chart is a plot of the device page.
type chart struct {
	metric  string // as the hot window has it
	kind    string // of the part; "" for the device itself
	counter bool
}

// charts are the plots in the order of the page. What a device does not measure
// is left out.
var charts = []chart{
	{"DCGM_FI_DEV_GPU_TEMP", schemas.KindGPU, false},
	{"DCGM_FI_DEV_GPU_UTIL", schemas.KindGPU, false},
	{"DCGM_FI_DEV_POWER_USAGE", schemas.KindGPU, false},
	{"auspex_fan_speed_rpm", schemas.KindFan, false},
	{"auspex_psu_input_power_watts", schemas.KindPSU, false},
	{"auspex_server_power_watts", "", false},
	{"auspex_server_inlet_temperature_celsius", "", false},
	{"DCGM_FI_DEV_SM_CLOCK", schemas.KindGPU, false},
	{"DCGM_FI_DEV_MEMORY_TEMP", schemas.KindGPU, false},
	{"auspex_port_in_octets_total", schemas.KindPort, true},
	{"auspex_port_out_octets_total", schemas.KindPort, true},
	{"auspex_port_rx_power_dbm", schemas.KindPort, false},
	{"auspex_port_pre_fec_ber_ratio", schemas.KindPort, false},
	{"auspex_switch_temperature_celsius", "", false},
}

const maxPlots = 8

var ranges = map[apigen.GetServerPlotsParamsRange]time.Duration{
	apigen.N15M: 15 * time.Minute, apigen.N1H: time.Hour, apigen.N6H: 6 * time.Hour, apigen.N24H: 24 * time.Hour,
}

// GetServerPlots implements the operation getServerPlots.
func (s *Server) GetServerPlots(ctx context.Context, r apigen.GetServerPlotsRequestObject) (apigen.GetServerPlotsResponseObject, error) {
	span := ranges[cmp.Or(r.Params.Range, apigen.N15M)]
	index, _, facts, dev, err := s.device(r.ID)
	if err != nil {
		return nil, err
	}
	out := apigen.GetServerPlots200JSONResponse{RangeSeconds: span.Seconds(), Items: []apigen.Plot{}}
	if s.deps.Querier == nil {
		return out, nil
	}
	part := r.Params.Part
	if part != "" {
		if _, known := index.Resource(dev.ID + "/" + part); !known {
			return nil, missing("part of "+dev.ID, part)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	there, err := s.deps.Querier.Instant(ctx, fmt.Sprintf(`count by (__name__) ({server=%q})`, dev.ID), time.Now())
	if err != nil {
		return nil, problem{
			http.StatusServiceUnavailable, "no_measurements", "The hot window did not answer.", "Try again; see the log of the server.",
		}
	}
	names := make(map[string]bool, len(there))
	for _, n := range there {
		names[n.Labels["__name__"]] = true
	}
	w := window{s.deps.Querier, time.Now(), span}
	var open []schemas.Prediction
	for _, p := range facts.Predictions {
		if p.Metric != "" && cmp.Or(p.Server, index.Device(p.Resource)) == dev.ID && (part == "" || p.Resource == dev.ID+"/"+part) {
			open = append(open, p)
		}
	}
	slices.SortStableFunc(open, func(a, b schemas.Prediction) int { return cmp.Compare(b.Probability, a.Probability) })
	for _, p := range open[:min(len(open), 3)] {
		plot, ok, err := w.predicted(ctx, dev.ID, p)
		if err != nil {
			return nil, err
		}
		if ok {
			out.Items = append(out.Items, plot)
		}
	}
	partKind := ""
	if part != "" {
		p, _ := index.Resource(dev.ID + "/" + part)
		partKind = p.Kind
	}
	for _, c := range charts {
		if len(out.Items) >= maxPlots {
			break
		}
		if !names[c.metric] || (part != "" && c.kind != partKind) ||
			slices.ContainsFunc(out.Items, func(p apigen.Plot) bool { return p.Metric == c.metric }) {
			continue
		}
		selector := fmt.Sprintf(`{server=%q}`, dev.ID)
		subject := dev.ID
		if c.kind != "" {
			subject = c.kind
		}
		if part != "" {
			selector, subject = fmt.Sprintf(`{resource=%q}`, dev.ID+"/"+part), part
		}
		plot, ok, err := w.plot(ctx, c, selector, "")
		if err != nil {
			return nil, err
		}
		if ok {
			plot.Subject = subject
			out.Items = append(out.Items, plot)
		}
	}
	return out, nil
}

// window asks for one span that ends now.
type window struct {
	q    Querier
	end  time.Time
	span time.Duration
}

const plotSteps = 240

// plot asks for the lowest, mean and highest value a step, and for the median
// of the peers where a selector of them is given.
func (w window) plot(ctx context.Context, c chart, selector, peers string) (apigen.Plot, bool, error) {
	step := max(w.span/plotSteps, 5*time.Second)
	over := max(step, 30*time.Second)
	inner := func(fn, sel string) string {
		if c.counter {
			return fmt.Sprintf("rate(%s%s[%ds])*8", c.metric, sel, int(max(over, 2*time.Minute).Seconds()))
		}
		return fmt.Sprintf("%s_over_time(%s%s[%ds])", fn, c.metric, sel, int(over.Seconds()))
	}
	end := w.end.Truncate(step)
	n := int(w.span / step)
	start := end.Add(-time.Duration(n-1) * step)
	plot := apigen.Plot{Metric: c.metric, Unit: unitOf(c.metric), Query: "avg(" + inner("avg", selector) + ")", Times: make([]float64, n)}
	for k := range plot.Times {
		plot.Times[k] = float64(start.Add(time.Duration(k)*step).UnixMilli()) / 1000
	}
	if c.counter {
		plot.Unit = "bit/s"
	}
	some := false
	for _, line := range []struct {
		fn, sel string
		to      *[]*float64
	}{{"min", selector, &plot.Min}, {"avg", selector, &plot.Avg}, {"max", selector, &plot.Max}, {"peer", peers, &plot.Peer}} {
		if line.sel == "" {
			continue
		}
		expr := line.fn + "(" + inner(line.fn, line.sel) + ")"
		if line.fn == "peer" {
			expr = "quantile(0.5, " + inner("avg", line.sel) + ")"
		}
		series, err := w.q.Range(ctx, expr, start, end, step)
		if err != nil {
			return plot, false, err
		}
		values := make([]*float64, n)
		for _, sr := range series {
			for _, p := range sr.Points {
				k := int((p.T-plot.Times[0])/step.Seconds() + 0.5)
				if k >= 0 && k < n {
					values[k] = number(p.V)
					some = some || values[k] != nil
				}
			}
		}
		*line.to = values
	}
	if !some {
		return plot, false, nil
	}
	var err error
	plot.Thresholds, err = w.thresholds(ctx, c.metric, selector)
	return plot, true, err
}

// thresholds are the bounds that the device gives for what is plotted: of several parts the
// tightest.
func (w window) thresholds(ctx context.Context, metric, selector string) ([]apigen.Threshold, error) {
	of := func(fn, side string) string {
		return fmt.Sprintf(
			`%s by (%s) (%s%s,%s=~%q})`, fn, schemas.LabelBound, schemas.ThresholdMetric(metric), strings.TrimSuffix(selector, "}"),
			schemas.LabelBound, side,
		)
	}
	series, err := w.q.Instant(
		ctx, of("min", "upper_.+|"+string(schemas.RangeMax))+" or "+of("max", "lower_.+|"+string(schemas.RangeMin)), w.end,
	)
	if err != nil {
		return nil, err
	}
	var out []apigen.Threshold
	for _, s := range series {
		if b := s.Labels[schemas.LabelBound]; len(s.Points) == 1 && number(s.Points[0].V) != nil {
			out = append(out, apigen.Threshold{Bound: b, Value: s.Points[0].V})
		}
	}
	slices.SortFunc(out, func(a, b apigen.Threshold) int { return cmp.Compare(b.Value, a.Value) })
	return out, nil
}

// predicted is the plot of what a prediction speaks of, with its forecast.
func (w window) predicted(ctx context.Context, device string, p schemas.Prediction) (apigen.Plot, bool, error) {
	sel, peers := fmt.Sprintf(`{resource=%q}`, p.Resource), fmt.Sprintf(`{server=%q,resource!=%q}`, device, p.Resource)
	plot, ok, err := w.plot(ctx, chart{metric: p.Metric}, sel, peers)
	if err != nil || !ok {
		return plot, false, err
	}
	plot.Subject = strings.TrimPrefix(p.Resource, device+"/")
	plot.Limit = limitOf(p)
	plot.Forecast = forecast(p, w.end)
	return plot, true, nil
}

const forecastPoints = 64

// forecast draws the lines from the level now to the crossings of the limit.
func forecast(p schemas.Prediction, now time.Time) apigen.Forecast {
	f := apigen.Forecast{
		Prediction: p.ID, Resource: p.Resource, Limit: limitOf(p), Probability: p.Probability, EtaP10: orZero(p.ETAP10),
		EtaP50: orZero(p.ETAP50), EtaP90: orZero(p.ETAP90),
	}
	end := now.Add(time.Minute)
	for _, t := range []*time.Time{p.ETAP10, p.ETAP50, p.ETAP90} {
		if t != nil && t.After(end) {
			end = *t
		}
	}
	end = end.Add(end.Sub(now) / 10)
	begin := float64(now.UnixMilli()) / 1000
	for k := range forecastPoints {
		f.Times = append(f.Times, begin+end.Sub(now).Seconds()*float64(k)/(forecastPoints-1))
	}
	line := func(eta *time.Time) []*float64 {
		out := make([]*float64, forecastPoints)
		for k, t := range f.Times {
			v := p.Value // never crosses, as far as is known
			if eta != nil {
				ahead := max(1, eta.Sub(now).Seconds())
				v += (p.Limit - p.Value) * (t - begin) / ahead
			}
			out[k] = number(v)
		}
		return out
	}
	f.P10, f.P50, f.P90 = line(p.ETAP10), line(p.ETAP50), line(p.ETAP90)
	return f
}

var units = []struct{ part, unit string }{
	{"_rpm", "rpm"},
	{"_celsius", "°C"},
	{"_TEMP", "°C"},
	{"_watts", "W"},
	{"POWER_USAGE", "W"},
	{"_dbm", "dBm"},
	{"_UTIL", "%"},
	{"_CLOCK", "MHz"},
	{"_volts", "V"},
	{"_amperes", "A"},
	{"_bytes", "B"},
	{"_seconds", "s"},
	{"_octets_total", "bit/s"},
}

// unitOf reads the unit of a metric from its name.
func unitOf(metric string) string {
	for _, u := range units {
		if strings.Contains(metric, u.part) {
			return u.unit
		}
	}
	return ""
}
