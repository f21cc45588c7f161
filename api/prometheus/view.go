package prometheus

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// Span is a time in milliseconds since 1970, with its ends.
type Span struct{ From, Until int64 }

// View is what somebody may read: series of some servers, while those were theirs. What has no
// server is of nobody but those who see everything.
type View interface {
	Servers() []string
	// Spans returns when a resource of a server was theirs, in the order of time.
	Spans(server, resource string) []Span
}

type viewKey struct{}

// WithView has the queries of a context read no more than a view lets through.
func WithView(ctx context.Context, v View) context.Context {
	return context.WithValue(ctx, viewKey{}, v)
}

func viewOf(ctx context.Context) View {
	v, _ := ctx.Value(viewKey{}).(View)
	return v
}

// reads is the store as the caller of a context may read it. Whatever an expression asks, it gets
// its samples here.
func (h *handler) reads(ctx context.Context) storage.Queryable {
	v := viewOf(ctx)
	if v == nil {
		return h.store
	}
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		q, err := h.store.Querier(mint, maxt)
		if err != nil {
			return nil, err
		}
		return &viewed{Querier: q, v: v, servers: v.Servers()}, nil
	})
}

// Labels by which a series is of somebody.
const (
	labelServer   = "server"
	labelResource = "resource"
)

type viewed struct {
	storage.Querier
	v       View
	servers []string
}

func (q *viewed) matcher() *labels.Matcher {
	quoted := []string{"[^\\s\\S]"} // which nothing is
	for _, s := range q.servers {
		quoted = append(quoted, regexp.QuoteMeta(s))
	}
	if len(quoted) > 1 {
		quoted = quoted[1:]
	}
	return labels.MustNewMatcher(labels.MatchRegexp, labelServer, strings.Join(quoted, "|"))
}

// Select implements storage.Querier.
func (q *viewed) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	return &viewedSet{SeriesSet: q.Querier.Select(ctx, sorted, hints, append(slices.Clone(matchers), q.matcher())...), v: q.v}
}

// names collects what series that are seen carry, since an index knows nothing of spans.
func (q *viewed) names(ctx context.Context, matchers []*labels.Matcher, each func(labels.Labels)) error {
	set := q.Select(ctx, false, nil, matchers...)
	for set.Next() {
		each(set.At().Labels())
	}
	return set.Err()
}

// LabelValues implements storage.LabelQuerier.
func (q *viewed) LabelValues(ctx context.Context, name string, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	found := map[string]struct{}{}
	err := q.names(ctx, matchers, func(l labels.Labels) {
		if v := l.Get(name); v != "" {
			found[v] = struct{}{}
		}
	})
	return slices.Sorted(maps.Keys(found)), nil, err
}

// LabelNames implements storage.LabelQuerier.
func (q *viewed) LabelNames(ctx context.Context, _ *storage.LabelHints, matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	found := map[string]struct{}{}
	err := q.names(ctx, matchers, func(l labels.Labels) {
		l.Range(func(l labels.Label) { found[l.Name] = struct{}{} })
	})
	return slices.Sorted(maps.Keys(found)), nil, err
}

type viewedSet struct {
	storage.SeriesSet
	v     View
	spans []Span
	it    chunkenc.Iterator
}

// Next implements storage.SeriesSet.
func (s *viewedSet) Next() bool {
	for s.SeriesSet.Next() {
		l := s.SeriesSet.At().Labels()
		if s.spans = s.v.Spans(l.Get(labelServer), l.Get(labelResource)); len(s.spans) == 0 {
			continue
		}
		// A series of which no sample is seen is not there: its labels may be of somebody else's time.
		if s.it = s.At().Iterator(s.it); s.it.Next() != chunkenc.ValNone {
			return true
		}
	}
	return false
}

// At implements storage.SeriesSet.
func (s *viewedSet) At() storage.Series { return viewedSeries{s.SeriesSet.At(), s.spans} }

type viewedSeries struct {
	storage.Series
	spans []Span
}

// Iterator implements storage.Series.
func (s viewedSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	if old, ok := it.(*viewedIterator); ok {
		it = old.Iterator
	}
	return &viewedIterator{s.Series.Iterator(it), s.spans}
}

// viewedIterator passes over what lies in no span.
type viewedIterator struct {
	chunkenc.Iterator
	spans []Span
}

func (i *viewedIterator) pass(kind chunkenc.ValueType) chunkenc.ValueType {
	for kind != chunkenc.ValNone {
		t, next := i.AtT(), int64(-1)
		for _, sp := range i.spans {
			if t >= sp.From && t <= sp.Until {
				return kind
			}
			if sp.From > t && (next < 0 || sp.From < next) {
				next = sp.From
			}
		}
		if next < 0 {
			return chunkenc.ValNone
		}
		kind = i.Iterator.Seek(next)
	}
	return kind
}

// Next implements chunkenc.Iterator.
func (i *viewedIterator) Next() chunkenc.ValueType { return i.pass(i.Iterator.Next()) }

// Seek implements chunkenc.Iterator.
func (i *viewedIterator) Seek(t int64) chunkenc.ValueType { return i.pass(i.Iterator.Seek(t)) } //nolint:govet // not that of io.Seeker

// whole is a route that speaks of all there is: not to those who have a view.
func whole(f func(*http.Request) result) func(*http.Request) result {
	return func(r *http.Request) result {
		if viewOf(r.Context()) != nil {
			return fail(errForbidden, errors.New("this is for those who run the place"))
		}
		return f(r)
	}
}
