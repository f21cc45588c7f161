package prometheus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// maxPoints bounds the points of a series in an answer.
const maxPoints = 11_000

// errShort is a duration below what the engine counts in.
var errShort = errors.New("durations shorter than 1ms are not accepted")

var errTruncated = errors.New("results truncated due to limit")

// The times that stand for "since ever" and "for ever"; clients send them as text.
var (
	firstMoment = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastMoment  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

	minTime = time.Unix(math.MinInt64/1000+62135596801, 0).UTC()
	maxTime = time.Unix(math.MaxInt64/1000-62135596801, 999999999).UTC()
)

func parseTime(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) <= math.MaxInt64/1000 {
		sec, frac := math.Modf(f)
		return time.Unix(int64(sec), int64(math.Round(frac*1000)*1e6)).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	for _, t := range []time.Time{minTime, maxTime} {
		if s == t.Format(time.RFC3339Nano) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", s)
}

func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) {
		if f *= float64(time.Second); math.Abs(f) > math.MaxInt64 {
			return 0, fmt.Errorf("cannot parse %q to a valid duration. It overflows int64", s)
		}
		return time.Duration(f), nil
	}
	if d, err := model.ParseDuration(s); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %q to a valid duration", s)
}

// parameters reads a request's parameters and keeps the first error.
type parameters struct {
	r   *http.Request
	bad *result
}

func (p *parameters) fail(name string, err error) {
	if p.bad == nil {
		res := badParameter(name, err)
		p.bad = &res
	}
}

func (p *parameters) time(name string, otherwise time.Time) time.Time {
	s := p.r.FormValue(name)
	if s == "" && !otherwise.IsZero() {
		return otherwise
	}
	t, err := parseTime(s)
	if err != nil {
		p.fail(name, err)
	}
	return t
}

// moment is a time at which a query is evaluated.
func (p *parameters) moment(name string, otherwise time.Time) time.Time {
	t := p.time(name, otherwise)
	if t.Before(firstMoment) || t.After(lastMoment) {
		p.fail(name, errors.New("the time is not in the years 1 to 9999"))
	}
	return t
}

func (p *parameters) duration(name string) time.Duration {
	s := p.r.FormValue(name)
	if s == "" {
		return 0
	}
	d, err := parseDuration(s)
	if err != nil {
		p.fail(name, err)
	}
	return d
}

func (p *parameters) limit() int {
	s := p.r.FormValue("limit")
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err == nil && n < 0 {
		err = errors.New("limit must be non-negative")
	}
	if err != nil {
		p.fail("limit", err)
	}
	return n
}

// matchers parses match[]; each set must match something that is not empty.
func (h *handler) matchers(p *parameters) [][]*labels.Matcher {
	sets, err := h.parser.ParseMetricSelectors(p.r.Form["match[]"])
	if err != nil {
		p.fail("match[]", err)
		return nil
	}
	for _, set := range sets {
		if !slices.ContainsFunc(set, func(m *labels.Matcher) bool { return !m.Matches("") }) {
			p.fail("match[]", errors.New("match[] must contain at least one non-empty matcher"))
		}
	}
	return sets
}

func (h *handler) query(r *http.Request) result {
	p := parameters{r: r}
	limit, at := p.limit(), p.moment("time", h.now())
	timeout, lookback := p.duration("timeout"), p.duration("lookback_delta")
	if lookback != 0 && lookback < time.Millisecond {
		p.fail("lookback_delta", errShort)
	}
	if p.bad != nil {
		return *p.bad
	}
	text := r.FormValue("query")
	b := h.budget(r.Context())
	q, err := h.engine.NewInstantQuery(r.Context(), b.spend(h.reads(r.Context())), promql.NewPrometheusQueryOpts(false, lookback), text, at)
	return h.execute(b, q, err, text, timeout, limit)
}

func (h *handler) queryRange(r *http.Request) result {
	p := parameters{r: r}
	limit, start, end := p.limit(), p.moment("start", time.Time{}), p.moment("end", time.Time{})
	if p.bad == nil && end.Before(start) {
		p.fail("end", errors.New("end timestamp must not be before start time"))
	}
	step, err := parseDuration(r.FormValue("step"))
	switch {
	case err != nil:
	case step <= 0:
		err = errors.New("zero or negative query resolution step widths are not accepted. Try a positive integer")
	case step < time.Millisecond:
		err = errShort
	}
	if err != nil {
		p.fail("step", err)
	}
	timeout, lookback := p.duration("timeout"), p.duration("lookback_delta")
	if lookback != 0 && lookback < time.Millisecond {
		p.fail("lookback_delta", errShort)
	}
	switch {
	case p.bad != nil:
		return *p.bad
	case (end.UnixMilli()-start.UnixMilli())/step.Milliseconds() > maxPoints:
		return fail(
			errBadData, errors.New("exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"),
		)
	}
	text := r.FormValue("query")
	b := h.budget(r.Context())
	q, err := h.engine.NewRangeQuery(r.Context(), b.spend(h.reads(r.Context())), promql.NewPrometheusQueryOpts(false, lookback), text, start, end, step)
	return h.execute(b, q, err, text, timeout, limit)
}

func (h *handler) execute(b *budget, q promql.Query, err error, text string, timeout time.Duration, limit int) result {
	if err != nil {
		return badParameter("query", err)
	}
	ctx := b.ctx
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		at := span{1, s.End.Sub(s.Start)}
		if s.Interval > 0 {
			at.steps += float64(at.wide) / float64(s.Interval)
		}
		if b.windows, err = windows(s.Expr, at); err != nil {
			q.Close()
			return execution(err)
		}
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	b.ctx = ctx
	out := q.Exec(ctx)
	res := result{warnings: out.Warnings, query: text, done: q.Close}
	if out.Err != nil {
		failed := execution(out.Err)
		res.err, res.kind = failed.err, failed.kind
		return res
	}
	truncated := false
	switch v := out.Value.(type) {
	case promql.Vector:
		if truncated = limit > 0 && len(v) > limit; truncated {
			out.Value = v[:limit]
		}
	case promql.Matrix:
		if truncated = limit > 0 && len(v) > limit; truncated {
			out.Value = v[:limit]
		}
	}
	if truncated {
		res.warnings = res.warnings.Add(errTruncated)
	}
	res.data = out.Value
	return res
}

func (h *handler) formatQuery(r *http.Request) result {
	e, err := h.parser.ParseExpr(r.FormValue("query"))
	if err != nil {
		return badParameter("query", err)
	}
	return result{data: e.Pretty(0)}
}

func (h *handler) parseQuery(r *http.Request) result {
	e, err := h.parser.ParseExpr(r.FormValue("query"))
	if err != nil {
		return badParameter("query", err)
	}
	return result{data: tree(e)}
}

func (h *handler) series(r *http.Request) result {
	if len(r.Form["match[]"]) == 0 {
		return fail(errBadData, errors.New("no match[] parameter provided"))
	}
	p := parameters{r: r}
	limit, start, end, sets := p.limit(), p.time("start", minTime), p.time("end", maxTime), h.matchers(&p)
	if p.bad != nil {
		return *p.bad
	}
	hints := &storage.SelectHints{Start: timestamp.FromTime(start), End: timestamp.FromTime(end), Func: "series", Limit: hint(limit)}
	q, err := h.budget(r.Context()).spend(h.reads(r.Context())).Querier(hints.Start, hints.End)
	if err != nil {
		return execution(err)
	}
	res := result{done: func() { _ = q.Close() }}
	each := make([]storage.SeriesSet, len(sets))
	for i, set := range sets {
		each[i] = q.Select(r.Context(), true, hints, set...)
	}
	set := storage.NewMergeSeriesSet(each, 0, storage.ChainedSeriesMerge)
	found := []labels.Labels{}
	for set.Next() {
		if limit > 0 && len(found) == limit {
			res.warnings = res.warnings.Add(errTruncated)
			break
		}
		if len(found)%1000 == 999 && r.Context().Err() != nil {
			_ = q.Close()
			return fail(errCanceled, r.Context().Err())
		}
		found = append(found, set.At().Labels())
	}
	if err := set.Err(); err != nil {
		_ = q.Close()
		return execution(err)
	}
	res.warnings.Merge(set.Warnings())
	res.data = found
	return res
}

func (h *handler) labels(r *http.Request) result {
	return h.names(r, func(
		ctx context.Context, q storage.Querier, hints *storage.LabelHints, m []*labels.Matcher,
	) ([]string, annotations.Annotations, error) {
		return q.LabelNames(ctx, hints, m...)
	})
}

func (h *handler) labelValues(r *http.Request) result {
	name := r.PathValue("name")
	if strings.HasPrefix(name, "U__") {
		name = model.UnescapeName(name, model.ValueEncodingEscaping)
	}
	if !model.UTF8Validation.IsValidLabelName(name) {
		return fail(errBadData, fmt.Errorf("invalid label name: %q", name))
	}
	return h.names(r, func(
		ctx context.Context, q storage.Querier, hints *storage.LabelHints, m []*labels.Matcher,
	) ([]string, annotations.Annotations, error) {
		return q.LabelValues(ctx, name, hints, m...)
	})
}

// names answers with the sorted union of what read finds for each set of matchers.
func (h *handler) names(
	r *http.Request,
	read func(context.Context, storage.Querier, *storage.LabelHints, []*labels.Matcher) ([]string, annotations.Annotations, error),
) result {
	p := parameters{r: r}
	limit, start, end, sets := p.limit(), p.time("start", minTime), p.time("end", maxTime), h.matchers(&p)
	if p.bad != nil {
		return *p.bad
	}
	q, err := h.reads(r.Context()).Querier(timestamp.FromTime(start), timestamp.FromTime(end))
	if err != nil {
		return execution(err)
	}
	defer func() { _ = q.Close() }()
	if len(sets) == 0 {
		sets = [][]*labels.Matcher{nil}
	}
	var res result
	found := []string{}
	for _, set := range sets {
		names, warnings, err := read(r.Context(), q, &storage.LabelHints{Limit: hint(limit)}, set)
		if err != nil {
			return execution(err)
		}
		res.warnings.Merge(warnings)
		for _, n := range names {
			found = append(found, strings.Clone(n)) // outlives the querier
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if limit > 0 && len(found) > limit {
		found = found[:limit]
		res.warnings = res.warnings.Add(errTruncated)
	}
	res.data = found
	return res
}

// hint lets the store return one more than asked, so that cutting is noticed.
func hint(limit int) int {
	if limit > 0 && limit < math.MaxInt {
		return limit + 1
	}
	return limit
}

// metadata describes the metrics that the store holds; it keeps no text of them.
func (h *handler) metadata(r *http.Request) result {
	p := parameters{r: r}
	limit, metric := p.limit(), r.FormValue("metric")
	if p.bad != nil {
		return *p.bad
	}
	q, err := h.reads(r.Context()).Querier(timestamp.FromTime(minTime), timestamp.FromTime(maxTime))
	if err != nil {
		return execution(err)
	}
	defer func() { _ = q.Close() }()
	names, warnings, err := q.LabelValues(r.Context(), model.MetricNameLabel, nil)
	if err != nil {
		return execution(err)
	}
	found := map[string][]Metadata{}
	for _, n := range names {
		if metric != "" && n != metric || limit > 0 && len(found) == limit {
			continue
		}
		found[strings.Clone(n)] = []Metadata{Describe(n)}
	}
	return result{data: found, warnings: warnings}
}
