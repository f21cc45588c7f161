package api

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"auspex/api/apigen"
	"auspex/internal/fleet"
	"auspex/schemas"
)

// staleAfter is how old a reading may be that still says what is.
const staleAfter = 5 * time.Minute

// collectorOrder is whose readings count where several collectors read the same, the first first.
var collectorOrder = []string{"dcgmexporter", "agent", "redfish", "ipmi"}

func byCollector(a, b string) int {
	rank := func(c string) int {
		if k := slices.Index(collectorOrder, c); k >= 0 {
			return k
		}
		return len(collectorOrder)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
}

// stateWords are the states of the screens, in the order of their digits.
var stateWords = []string{
	fleet.OK: "ok", fleet.Warning: "warning", fleet.Critical: "critical", fleet.Affected: "affected", fleet.Predicted: "predicted",
	fleet.Acting: "acting", fleet.Out: "out", fleet.Unknown: "unknown",
}

// reading is a value that stands now.
type reading struct {
	metric, resource, collector string
	value                       float64
	at                          time.Time
}

// readings are what stands now of a server or a part of it.
type readings struct {
	all []reading
	up  map[string]bool // by collector: it answers
}

var errNoMeasurements = problem{
	http.StatusServiceUnavailable, "no_measurements", "The hot window did not answer.", "Try again; see the log of the server.",
}

// readings asks the hot window for metrics of what a selector means on a server. What is stale is
// left out: too old, or of a collector that has stopped to answer.
func (s *Server) readings(ctx context.Context, server, selector string, metrics ...string) (readings, error) {
	out := readings{up: make(map[string]bool)}
	if s.deps.Querier == nil {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	now := time.Now()
	ask := func(expr string) ([]Series, error) {
		found, err := s.deps.Querier.Instant(ctx, expr, now)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("cannot read what is measured", "server", server, "error", err)
			err = errNoMeasurements
		}
		return found, err
	}
	up, err := ask(fmt.Sprintf(`up{instance=%q}`, server))
	if err != nil {
		return out, err
	}
	for _, u := range up {
		if len(u.Points) == 1 {
			out.up[u.Labels["job"]] = u.Points[0].V > 0
		}
	}
	values, err := ask(fmt.Sprintf(`{__name__=~%q,%s}`, strings.Join(metrics, "|"), selector))
	if err != nil || len(values) == 0 {
		return out, err
	}
	there := make(map[string]bool)
	for _, v := range values {
		there[v.Labels["__name__"]] = true
	}
	each := make([]string, 0, len(there))
	for _, m := range metrics {
		if there[m] { // timestamp() forgets of which metric it is
			each = append(each, fmt.Sprintf(`label_replace(max by (resource, collector) (timestamp(%s{%s})), "metric", %q, "", "")`, m, selector, m))
		}
	}
	times, err := ask(strings.Join(each, " or "))
	if err != nil {
		return out, err
	}
	type key struct{ metric, resource, collector string }
	at := make(map[key]time.Time, len(times))
	for _, t := range times {
		if len(t.Points) == 1 {
			at[key{t.Labels["metric"], t.Labels["resource"], t.Labels["collector"]}] = time.UnixMilli(int64(t.Points[0].V * 1000)).UTC()
		}
	}
	for _, v := range values {
		r := reading{metric: v.Labels["__name__"], resource: v.Labels["resource"], collector: v.Labels["collector"]}
		answers, known := out.up[r.collector]
		r.at = at[key{r.metric, r.resource, r.collector}]
		if len(v.Points) != 1 || number(v.Points[0].V) == nil || known && !answers || now.Sub(r.at) > staleAfter {
			continue
		}
		r.value = v.Points[0].V
		out.all = append(out.all, r)
	}
	slices.SortStableFunc(out.all, func(a, b reading) int { return byCollector(a.collector, b.collector) })
	return out, nil
}

// of returns the reading of a resource that counts: of the first metric that somebody reads, of
// the first collector that does.
func (r readings) of(resource string, metrics ...string) *float64 {
	for _, m := range metrics {
		for i := range r.all {
			if r.all[i].metric == m && r.all[i].resource == resource {
				return &r.all[i].value
			}
		}
	}
	return nil
}

func (r readings) newest() *time.Time {
	var out *time.Time
	for i := range r.all {
		if out == nil || r.all[i].at.After(*out) {
			out = &r.all[i].at
		}
	}
	return out
}

// reachable says whether one of some collectors answers; nil is that none of them reads the device.
func (r readings) reachable(collectors ...string) *bool {
	var out *bool
	for _, c := range collectors {
		if up, known := r.up[c]; known {
			up = up || out != nil && *out
			out = &up
		}
	}
	return out
}

func scaled(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	out := *v * by
	return &out
}

func truth(v *float64) *bool {
	if v == nil {
		return nil
	}
	out := *v > 0
	return &out
}

// gpuPart resolves what a route asks for to a GPU.
func (s *Server) gpuPart(text string) (schemas.Resource, error) {
	names := s.live.directory()
	found := slices.DeleteFunc(names.Find(text), func(name string) bool { r, _ := names.Resource(name); return r.Kind != schemas.KindGPU })
	name, err := one(names, text, "GPU", found)
	if err != nil {
		return schemas.Resource{}, err
	}
	r, _ := names.Resource(name)
	return r, nil
}

const (
	metricSM     = "DCGM_FI_PROF_SM_ACTIVE"
	metricEngine = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
	metricDRAM   = "DCGM_FI_PROF_DRAM_ACTIVE"
	mebibyte     = 1 << 20
)

// GetGPUStatus implements the operation getGPUStatus.
func (s *Server) GetGPUStatus(ctx context.Context, r apigen.GetGPUStatusRequestObject) (apigen.GetGPUStatusResponseObject, error) {
	gpu, err := s.gpuPart(r.ID)
	if err != nil {
		return nil, err
	}
	index, states, _ := s.live.current()
	names := s.live.directory()
	server := names.Server(gpu.ID)
	now, err := s.readings(
		ctx, server, fmt.Sprintf("resource=%q", gpu.ID), "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", metricSM, metricEngine, metricDRAM,
		"DCGM_FI_DEV_GPU_TEMP", "auspex_gpu_temperature_celsius", "DCGM_FI_DEV_MEMORY_TEMP", "auspex_gpu_memory_temperature_celsius", schemas.GPUPower,
		"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED", "auspex_gpu_processes",
	)
	if err != nil {
		return nil, err
	}
	of := func(metrics ...string) *float64 { return now.of(gpu.ID, metrics...) }
	out := apigen.GetGPUStatus200JSONResponse{
		ID: names.ID(gpu.ID), Name: gpu.ID, Server: server, State: stateWords[gpuState(index, states, server, gpu.ID)], Timestamp: now.newest(),
		Utilization: apigen.GPUUtilization{
			Gpu: of("DCGM_FI_DEV_GPU_UTIL"), Memory: of("DCGM_FI_DEV_MEM_COPY_UTIL"), Compute: scaled(of(metricSM, metricEngine), 100),
			MemoryBandwidth: scaled(of(metricDRAM), 100),
		},
		Temperature:       of("DCGM_FI_DEV_GPU_TEMP", "auspex_gpu_temperature_celsius"),
		MemoryTemperature: of("DCGM_FI_DEV_MEMORY_TEMP", "auspex_gpu_memory_temperature_celsius"),
		Power:             of(schemas.GPUPower), Processes: whole(of("auspex_gpu_processes")),
		Memory: apigen.GPUMemory{
			Used: scaled(of("DCGM_FI_DEV_FB_USED"), mebibyte), Free: scaled(of("DCGM_FI_DEV_FB_FREE"), mebibyte),
			Reserved: scaled(of("DCGM_FI_DEV_FB_RESERVED"), mebibyte),
		},
	}
	if m := &out.Memory; m.Used != nil && m.Free != nil {
		total := *m.Used + *m.Free
		if m.Reserved != nil {
			total += *m.Reserved
		}
		m.Total = &total
	}
	if v := gpu.Attrs.Get(schemas.AttrDriverVersion); v != "" {
		out.Driver = &v
	}
	if len(now.all) > 0 {
		out.Collector = &now.all[0].collector
	}
	return out, nil
}

// gpuState is the state of a GPU as the map shows it.
func gpuState(index *fleet.Index, states *fleet.States, server, gpu string) fleet.State {
	all := index.Parts(server, schemas.KindGPU)
	_, digits := states.Server(index, fleet.Server{ID: server, GPUs: all})
	if k := slices.Index(all, gpu); k >= 0 && k < len(digits) {
		return fleet.State(digits[k] - '0')
	}
	return states.Of(gpu)
}

// GetServerStatus implements the operation getServerStatus.
func (s *Server) GetServerStatus(ctx context.Context, r apigen.GetServerStatusRequestObject) (apigen.GetServerStatusResponseObject, error) {
	index, states, facts, dev, err := s.device(r.ID)
	if err != nil {
		return nil, err
	}
	if dev.Kind != schemas.KindServer {
		return nil, missing("server", r.ID)
	}
	now, err := s.readings(
		ctx, dev.ID, fmt.Sprintf("server=%q", dev.ID), "auspex_server_power_on", "auspex_server_inlet_temperature_celsius", "auspex_server_power_watts",
		"auspex_server_uptime_seconds", "auspex_fan_speed_rpm", "auspex_fan_duty_ratio", "auspex_fan_healthy", "auspex_psu_input_power_watts",
		"auspex_psu_input_present", "auspex_psu_healthy",
	)
	if err != nil {
		return nil, err
	}
	out := apigen.GetServerStatus200JSONResponse{
		ID: s.live.directory().ID(dev.ID), Name: dev.ID, Health: stateWords[states.Device(index, dev.ID)],
		InletTemperature: now.of(dev.ID, "auspex_server_inlet_temperature_celsius"), PowerDraw: now.of(dev.ID, "auspex_server_power_watts"),
		Fans: []apigen.FanStatus{}, Psus: []apigen.PSUStatus{}, BmcReachable: now.reachable("redfish", "ipmi"), AgentReachable: now.reachable("agent"),
		Telemetry: s.contact(ctx, dev.ID, time.Now()), Timestamp: now.newest(),
	}
	if on := now.of(dev.ID, "auspex_server_power_on"); on != nil {
		word := "off"
		if *on > 0 {
			word = "on"
		}
		out.Power = &word
	}
	if facts.Silent[dev.ID] == schemas.KindBMC {
		lost := false
		out.BmcReachable = &lost
	}
	for _, u := range now.all {
		if u.metric == "auspex_server_uptime_seconds" && u.resource == dev.ID && u.value < math.MaxInt32 {
			boot := u.at.Add(-time.Duration(u.value * float64(time.Second))).Truncate(time.Second)
			out.LastBoot = &boot
			break
		}
	}
	for _, fan := range index.Parts(dev.ID, schemas.KindFan) {
		out.Fans = append(out.Fans, apigen.FanStatus{
			Name: strings.TrimPrefix(fan, dev.ID+"/"), Rpm: now.of(fan, "auspex_fan_speed_rpm"), Duty: now.of(fan, "auspex_fan_duty_ratio"),
			Healthy: truth(now.of(fan, "auspex_fan_healthy")),
		})
	}
	var sum *float64
	for _, psu := range index.Parts(dev.ID, schemas.KindPSU) {
		p := apigen.PSUStatus{
			Name: strings.TrimPrefix(psu, dev.ID+"/"), InputPower: now.of(psu, "auspex_psu_input_power_watts"),
			InputPresent: truth(now.of(psu, "auspex_psu_input_present")), Healthy: truth(now.of(psu, "auspex_psu_healthy")),
		}
		if p.InputPower != nil {
			total := *p.InputPower
			if sum != nil {
				total += *sum
			}
			sum = &total
		}
		out.Psus = append(out.Psus, p)
	}
	if out.PowerDraw == nil {
		out.PowerDraw = sum
	}
	return out, nil
}
