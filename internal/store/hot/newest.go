package hot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Newest returns when each resource of a server was last read since a time, by the collectors that by chooses; nil is any. What rules
// made of readings is none.
func (w *Window) Newest(ctx context.Context, server string, since time.Time, by func(collector string) bool) (map[string]time.Time, error) {
	now := time.Now().Add(time.Minute) // a device's clock may be ahead
	q, err := w.Querier(since.UnixMilli(), now.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("read hot window: %w", err)
	}
	defer func() { _ = q.Close() }()
	out := make(map[string]time.Time)
	all := q.Select(ctx, false, &storage.SelectHints{Start: since.UnixMilli(), End: now.UnixMilli()}, labels.MustNewMatcher(labels.MatchEqual, "server", server))
	var it chunkenc.Iterator
	for all.Next() {
		series := all.At()
		names := series.Labels()
		resource, metric := names.Get("resource"), names.Get(model.MetricNameLabel)
		collector := names.Get("collector")
		if resource == "" || collector == "" || by != nil && !by(collector) || strings.HasPrefix(metric, "ALERTS") || strings.Contains(metric, ":") {
			continue
		}
		it = series.Iterator(it)
		last := int64(-1)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValFloat {
				if t, v := it.At(); !value.IsStaleNaN(v) {
					last = t
				}
			}
		}
		if at := time.UnixMilli(last); last >= 0 && at.After(out[resource]) {
			out[resource] = at
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read hot window: %w", err)
	}
	return out, nil
}

// Values returns what was read last, since a time, of metrics of a server, by resource and metric; of all servers where server is "".
func (w *Window) Values(ctx context.Context, server string, since time.Time, metrics ...string) (map[string]map[string]float64, error) {
	now := time.Now().Add(time.Minute) // a device's clock may be ahead
	q, err := w.Querier(since.UnixMilli(), now.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("read hot window: %w", err)
	}
	defer func() { _ = q.Close() }()
	match := []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, strings.Join(metrics, "|"))}
	if server != "" {
		match = append(match, labels.MustNewMatcher(labels.MatchEqual, "server", server))
	}
	out, newest := make(map[string]map[string]float64), make(map[string]int64)
	all := q.Select(ctx, false, &storage.SelectHints{Start: since.UnixMilli(), End: now.UnixMilli()}, match...)
	var it chunkenc.Iterator
	for all.Next() {
		series := all.At()
		names := series.Labels()
		resource, metric := names.Get("resource"), names.Get(model.MetricNameLabel)
		it = series.Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				continue
			}
			t, v := it.At()
			if key := resource + " " + metric; !value.IsStaleNaN(v) && t >= newest[key] { // the latest of several collectors
				if out[resource] == nil {
					out[resource] = make(map[string]float64)
				}
				out[resource][metric], newest[key] = v, t
			}
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read hot window: %w", err)
	}
	return out, nil
}
