package prometheus

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// budget is what one request may read. It is also where a request notices that
// it has ended: the engine looks at its context between series only.
type budget struct {
	ctx              context.Context
	windows          float64 // points that subqueries look at, for each series
	series, touched  atomic.Int64
	maxSeries, limit int64
}

func (h *handler) budget(ctx context.Context) *budget {
	return &budget{ctx: ctx, maxSeries: int64(h.cfg.MaxSeries), limit: h.cfg.MaxTouched}
}

// touch counts samples that are looked at.
func (b *budget) touch(n int64) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if b.touched.Add(n) > b.limit {
		return overf("the query looks at more than %d samples; choose fewer series, a shorter range or a longer step", b.limit)
	}
	return nil
}

// spend is a queryable whose reads count against a budget.
func (b *budget) spend(q storage.Queryable) storage.Queryable {
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		inner, err := q.Querier(mint, maxt)
		if err != nil {
			return nil, err
		}
		return countedQuerier{inner, b}, nil
	})
}

type countedQuerier struct {
	storage.Querier
	b *budget
}

// stepCost is how many samples could be looked at in the time that it takes to
// find the one that is current at a step, whether there is one or not.
const stepCost = 10

// Select implements storage.Querier.
func (q countedQuerier) Select(
	ctx context.Context, sorted bool, hints *storage.SelectHints, matchers ...*labels.Matcher,
) storage.SeriesSet {
	set := &countedSet{SeriesSet: q.Querier.Select(ctx, sorted, hints, matchers...), b: q.b, weight: 1, steps: 1}
	if hints != nil && hints.Step > 0 {
		set.steps += stepCost * ((hints.End - hints.Start) / hints.Step)
		set.weight = max(1, hints.Range/hints.Step) // a sample is in so many windows
	}
	set.steps += int64(min(q.b.windows, 1e15))
	return set
}

type countedSet struct {
	storage.SeriesSet
	b             *budget
	weight, steps int64
	err           error
}

// Next implements storage.SeriesSet.
func (s *countedSet) Next() bool {
	if s.err != nil || !s.SeriesSet.Next() {
		return false
	}
	if s.b.series.Add(1) > s.b.maxSeries {
		s.err = overf("the query reads more than %d series; name a metric or a server", s.b.maxSeries)
	} else {
		s.err = s.b.touch(s.steps)
	}
	return s.err == nil
}

// Err implements storage.SeriesSet.
func (s *countedSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.SeriesSet.Err()
}

// At implements storage.SeriesSet.
func (s *countedSet) At() storage.Series { return countedSeries{s.SeriesSet.At(), s} }

type countedSeries struct {
	storage.Series
	set *countedSet
}

// Iterator implements storage.Series.
func (s countedSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	own, ok := it.(*countedIterator)
	if !ok {
		own = &countedIterator{}
	}
	err := own.flush()
	*own = countedIterator{Iterator: s.Series.Iterator(own.Iterator), set: s.set, err: err}
	return own
}

// countEvery is how many samples are read between looks at the budget.
const countEvery = 512

type countedIterator struct {
	chunkenc.Iterator
	set  *countedSet
	read int64
	err  error
}

// Next implements chunkenc.Iterator.
func (i *countedIterator) Next() chunkenc.ValueType {
	if !i.count() {
		return chunkenc.ValNone
	}
	return i.Iterator.Next()
}

// Seek implements chunkenc.Iterator.
func (i *countedIterator) Seek(t int64) chunkenc.ValueType { //nolint:govet // not that of io.Seeker
	if !i.count() {
		return chunkenc.ValNone
	}
	return i.Iterator.Seek(t)
}

func (i *countedIterator) count() bool {
	if i.read++; i.read == countEvery && i.err == nil {
		i.err = i.flush()
	}
	return i.err == nil
}

// flush puts what was read on the budget.
func (i *countedIterator) flush() error {
	if i.read == 0 {
		return i.err
	}
	n := i.read
	i.read = 0
	return i.set.b.touch(n * i.set.weight)
}

// Err implements chunkenc.Iterator.
func (i *countedIterator) Err() error {
	if i.err != nil {
		return i.err
	}
	return i.Iterator.Err()
}
