package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
)

// Readings returns what each collector read of a metric of a resource, on a grid of n times
// from start on, a step apart: the value at a time is of what was measured in the step that ends
// there, of a counter the last, else the mean; nil is nothing.
func (db *DB) Readings(
	ctx context.Context, resource, metric string, counter bool, start time.Time, step time.Duration, n int,
) (map[string][]*float64, error) {
	// Series of one metric that other labels tell apart are weighed alike.
	within, over := "avg(value)", "avg(v)"
	if counter {
		within, over = "argMax(value, time)", "sum(v)"
	}
	table, value, where := "samples", "value", "metric = ? AND resource = ?"
	args := []any{metric, resource}
	series := "labels, part"
	if k := slices.IndexFunc(schemas.GPUMetrics, func(m schemas.GPUMetric) bool { return m.Name == metric }); k >= 0 {
		table, value, where, args, series = "gpu", "toFloat64("+schemas.GPUMetrics[k].Column+")", "resource = ?", []any{resource}, "uuid"
	}
	within = strings.Replace(within, "value", value, 1)
	first, width := start.UnixMilli(), step.Milliseconds()
	rows, err := db.Conn().Query(ctx, fmt.Sprintf(`SELECT collector, k, %s FROM (
SELECT collector, intDiv(toUnixTimestamp64Milli(time) - %d + %d - 1, %d) AS k, %s AS v FROM %s
WHERE %s AND time > fromUnixTimestamp64Milli(%d) AND time <= fromUnixTimestamp64Milli(%d) AND NOT isNaN(%s)
GROUP BY collector, k, %s) GROUP BY collector, k`,
		over, first, width, width, within, table, where, first-width, first+width*int64(n-1), value, series), args...)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", metric, resource, err)
	}
	defer func() { _ = rows.Close() }()
	out := make(map[string][]*float64)
	for rows.Next() {
		var collector string
		var k int64
		var v float64
		if err := rows.Scan(&collector, &k, &v); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", metric, resource, err)
		}
		if out[collector] == nil {
			out[collector] = make([]*float64, n)
		}
		if k >= 0 && k < int64(n) {
			out[collector][k] = &v
		}
	}
	return out, rows.Err()
}
