package api

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/api/apigen"
	"auspex/schemas"
)

const (
	maxPoints  = 2000
	maxMetrics = 32
	maxSpan    = 400 * 24 * time.Hour
	leastStep  = 30 * time.Second // of those that nobody asked for: most devices are read about so often
)

// usualMetrics are those of a GPU that are given where none are named.
var usualMetrics = []string{
	"DCGM_FI_DEV_GPU_TEMP", schemas.GPUPower, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_SM_CLOCK",
}

// grid is the times that a range is told at: n, the first at start, a step apart, the last not after the end.
type grid struct {
	start time.Time
	step  time.Duration
	n     int
}

// gridOf lays a grid over a range; thinned says that the step is longer than what was asked for.
func gridOf(from, to time.Time, asked time.Duration) (g grid, thinned bool) {
	g.step = asked
	if asked == 0 {
		g.step = max((to.Sub(from) / plotSteps).Truncate(time.Second), leastStep)
	}
	if least := (to.Sub(from)/maxPoints + time.Second).Truncate(time.Second); g.step < least {
		g.step, thinned = least, asked != 0
	}
	end := to.Truncate(g.step)
	g.n = max(1, int(end.Sub(from)/g.step))
	g.start = end.Add(-time.Duration(g.n-1) * g.step)
	return g, thinned
}

// GetGPUMetrics implements the operation getGPUMetrics.
func (s *Server) GetGPUMetrics(ctx context.Context, r apigen.GetGPUMetricsRequestObject) (apigen.GetGPUMetricsResponseObject, error) {
	gpu, err := s.gpuPart(r.ID)
	if err != nil {
		return nil, err
	}
	to := r.Params.To
	if to.IsZero() {
		to = time.Now()
	}
	from := r.Params.From
	if from.IsZero() {
		from = to.Add(-time.Hour)
	}
	metrics := usualMetrics
	if r.Params.Metrics != "" {
		metrics = strings.Split(r.Params.Metrics, ",")
	}
	switch {
	case !from.Before(to):
		return nil, wrong("query", apigen.FieldProblem{Field: "from", Detail: "it is not before to"})
	case to.Sub(from) > maxSpan:
		return nil, wrong("query", apigen.FieldProblem{Field: "from", Detail: "it is more than 400 days before to"})
	case len(metrics) > maxMetrics:
		return nil, wrong("query", apigen.FieldProblem{Field: "metrics", Detail: "there are more than " + strconv.Itoa(maxMetrics)})
	}
	for k, m := range metrics {
		if slices.Contains(metrics[:k], m) {
			return nil, wrong("query", apigen.FieldProblem{Field: "metrics", Detail: m + " is there twice"})
		}
	}
	g, thinned := gridOf(from, to, time.Duration(r.Params.Step)*time.Second)
	out := apigen.GetGPUMetrics200JSONResponse{
		ID: s.live.directory().ID(gpu.ID), Name: gpu.ID, From: g.start.UTC(), To: g.start.Add(time.Duration(g.n-1) * g.step).UTC(),
		StepSeconds: g.step.Seconds(), Thinned: thinned, Times: make([]float64, g.n), Metrics: make([]apigen.GPUMetricColumn, 0, len(metrics)),
	}
	for k := range out.Times {
		out.Times[k] = float64(g.start.Add(time.Duration(k)*g.step).UnixMilli()) / 1000
	}
	for _, m := range metrics {
		column, asked, err := s.column(ctx, g, gpu.ID, m)
		if err != nil {
			return nil, err
		}
		out.History = out.History || asked
		out.Metrics = append(out.Metrics, column)
	}
	return out, nil
}

// column reads one metric of a resource from the hot window, and from the history what is older than that.
func (s *Server) column(ctx context.Context, g grid, resource, metric string) (c apigen.GPUMetricColumn, history bool, err error) {
	c = apigen.GPUMetricColumn{Name: metric, Unit: unitOf(metric), Counter: strings.HasSuffix(metric, "_total")}
	if k := slices.IndexFunc(schemas.GPUMetrics, func(m schemas.GPUMetric) bool { return m.Name == metric }); k >= 0 {
		c.Counter = schemas.GPUMetrics[k].Counter
	}
	hot, err := s.hotColumns(ctx, g, resource, metric, c.Counter)
	if err != nil {
		return c, false, err
	}
	// The history ends where the hot window begins. The first step there may be of a part only, so that the
	// history is asked for that too; where the range begins within the hot window, it is not asked.
	c.Collector, c.Values = first(hot, g.n)
	until := g.n
	if c.Collector != "" {
		until = slices.IndexFunc(c.Values, func(v *float64) bool { return v != nil }) + 1
	}
	if s.deps.History == nil || until == 1 && c.Collector != "" {
		return c, false, nil
	}
	old, err := s.deps.History.Readings(ctx, resource, metric, c.Counter, g.start, g.step, until)
	if err != nil {
		if ctx.Err() != nil {
			return c, false, err
		}
		s.log.Warn("cannot read history", "error", err)
	}
	before, values := c.Collector, old[c.Collector]
	if values == nil { // another read it then
		before, values = first(old, until)
	}
	c.Collector = cmp.Or(c.Collector, before)
	for k, v := range values {
		if v != nil && k < until {
			c.Values[k] = v
		}
	}
	return c, err == nil && old != nil, nil
}

// hotColumns asks the hot window what each collector read; without one there is nothing.
func (s *Server) hotColumns(ctx context.Context, g grid, resource, metric string, counter bool) (map[string][]*float64, error) {
	out := make(map[string][]*float64)
	if s.deps.Querier == nil {
		return out, nil
	}
	expr := fmt.Sprintf("avg by (collector) (avg_over_time(%s{resource=%q}[%ds]))", metric, resource, int(g.step.Seconds()))
	if counter {
		expr = fmt.Sprintf("sum by (collector) (last_over_time(%s{resource=%q}[%ds]))", metric, resource, int(g.step.Seconds()))
	}
	series, err := s.deps.Querier.Range(ctx, expr, g.start, g.start.Add(time.Duration(g.n-1)*g.step), g.step)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.log.Warn("cannot read what was measured", "resource", resource, "metric", metric, "error", err)
		return nil, errNoMeasurements
	}
	begin := float64(g.start.UnixMilli()) / 1000
	for _, sr := range series {
		var values []*float64
		for _, p := range sr.Points {
			if k := int(math.Round((p.T - begin) / g.step.Seconds())); k >= 0 && k < g.n && number(p.V) != nil {
				if values == nil {
					values = make([]*float64, g.n)
				}
				values[k] = number(p.V)
			}
		}
		if values != nil {
			out[sr.Labels["collector"]] = values
		}
	}
	return out, nil
}

// first returns the column of the collector that comes first, or one of n nulls where there is none.
func first(columns map[string][]*float64, n int) (collector string, values []*float64) {
	for c := range columns {
		if values == nil || byCollector(c, collector) < 0 {
			collector, values = c, columns[c]
		}
	}
	if values == nil {
		values = make([]*float64, n)
	}
	return collector, values
}
