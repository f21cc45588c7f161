package prometheus_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"auspex/api/prometheus"
	"auspex/internal/store/hot"
)

// fleet is a window with so many series of an hour, a sample every ten seconds.
func fleet(t testing.TB, series int) storage.Queryable {
	t.Helper()
	w, err := hot.Open(t.TempDir(), hot.DefaultConfig(), nowhere{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	app := w.Appender(context.Background())
	for s := range series {
		l := labels.FromStrings("__name__", "load", "server", fmt.Sprint("s", s))
		var ref storage.SeriesRef
		for at := t0.Add(-time.Hour); at.Before(t0); at = at.Add(10 * time.Second) {
			if ref, err = app.Append(ref, l, at.UnixMilli(), float64(at.Unix()%97)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return w
}

func over(t testing.TB, store storage.Queryable, change func(*prometheus.Config)) http.Handler {
	t.Helper()
	cfg := prometheus.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	h, err := prometheus.New(store, cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ask(h http.Handler, path string, form url.Values) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, prometheus.Prefix+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	h.ServeHTTP(w, r)
	return w
}

// cpu is the processor time that this process has used.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// No text of a query costs more than a moment, whatever it asks for.
func TestWhatCostsTooMuchIsRefusedBeforeItIsDone(t *testing.T) {
	h := over(t, fleet(t, 200), nil)
	at := func(s int64) string { return strconv.FormatInt(t0.Unix()+s, 10) }
	rng := func(query, step string) url.Values {
		return url.Values{"query": {query}, "start": {at(-3600)}, "end": {at(0)}, "step": {step}}
	}
	for _, tc := range []struct {
		name, path string
		form       url.Values
		status     int
		want       string
	}{
		{
			"a subquery of every millisecond", "query",
			url.Values{"query": {`count(count_over_time({__name__=~".+"}[6h:1ms]))`}},
			422,
			"a subquery would be evaluated at 21600001 times",
		},
		{"one inside another", "query", url.Values{"query": {`max_over_time(min_over_time(load[3h:1s])[3h:1s])`}}, 422, "a subquery"},
		{"one in a range", "query_range", rng(`max_over_time(load[3h:1s])`, "1"), 422, "a subquery"},
		{"windows that overlap", "query_range", rng(`max_over_time(load[3h:2s])`, "0.4"), 422, "looks at more than"},
		{
			"parentheses", "query",
			url.Values{"query": {strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000)}},
			400,
			"the query has 100001 bytes",
		},
		{
			"fewer parentheses", "query",
			url.Values{"query": {strings.Repeat("(", 20_000) + "1" + strings.Repeat(")", 20_000)}},
			400,
			"nests deeper",
		},
		{"parentheses that do not close", "query", url.Values{"query": {strings.Repeat("(", 60_000)}}, 400, "nests deeper"},
		{"signs", "query", url.Values{"query": {strings.Repeat("-", 60_000) + "1"}}, 400, "nests deeper"},
		{"signs apart", "query", url.Values{"query": {strings.Repeat("- + ", 15_000) + "1"}}, 400, "nests deeper"},
		{"a sum of many", "query", url.Values{"query": {strings.Repeat("1+", 30_000) + "1"}}, 400, "operators"},
		{"powers of powers", "query", url.Values{"query": {strings.Repeat("1^", 30_000) + "1"}}, 400, "operators"},
		{"a chain of words", "query", url.Values{"query": {strings.Repeat("a or ", 12_000) + "a"}}, 400, "operators"},
		{"a shorter chain", "query", url.Values{"query": {strings.Repeat("a or ", 900) + "a"}}, 400, "nests deeper"},
		{"a list of groups", "query", url.Values{"query": {"sum by (" + strings.Repeat("a,", 30_000) + "a) (load)"}}, 200, "success"},
		{"many numbers", "query", url.Values{"query": {"sum(" + strings.Repeat("1,", 30_000) + "1)"}}, 400, ""},
		{"many matchers", "query", url.Values{"query": {"load{" + strings.Repeat(`a!="b",`, 9_000) + "}"}}, 400, "operators"},
		{"a wide pattern", "query", url.Values{"query": {`count(load{server=~"` + strings.Repeat("s1|", 20_000) + `s2"})`}}, 200, "success"},
		{
			"functions of functions", "query",
			url.Values{"query": {strings.Repeat("abs(", 12_000) + "load" + strings.Repeat(")", 12_000)}},
			400,
			"nests deeper",
		},
		{"many selectors", "series", url.Values{"match[]": strings.Split(strings.Repeat("load ", 4000), " ")}, 400, "selectors are asked for"},
		{"a long selector", "series", url.Values{"match[]": {`{a="` + strings.Repeat("x", 70_000) + `"}`}}, 400, "bytes"},
		{
			"a deep query to be formatted", "format_query",
			url.Values{"query": {strings.Repeat("(", 20_000) + "1" + strings.Repeat(")", 20_000)}},
			400, "nests deeper",
		},
		{
			"a deep query to be parsed", "parse_query",
			url.Values{"query": {strings.Repeat("(", 20_000) + "1" + strings.Repeat(")", 20_000)}},
			400,
			"nests deeper",
		},
		{"a step below the clock", "query_range", rng("load", "1e-9"), 400, "shorter than 1ms"},
		{"a step below the clock, in words", "query_range", rng("load", "0.0009"), 400, "shorter than 1ms"},
		{"looking back by less than the clock", "query", url.Values{"query": {"load"}, "lookback_delta": {"1e-9"}}, 400, "shorter than 1ms"},
		{"too many points", "query_range", rng("load", "0.1"), 400, "11,000 points"},
		{
			"too many points over all time", "query_range",
			url.Values{"query": {"1"}, "start": {"-62135596800"}, "end": {"253402300799"}, "step": {"86400"}},
			400, "11,000 points",
		},
		{"a time that is none", "query", url.Values{"query": {"1"}, "time": {"1e300"}}, 400, "cannot parse"},
		{"a time after the last", "query", url.Values{"query": {"1"}, "time": {"9e15"}}, 400, "years 1 to 9999"},
		{"labels that multiply", "query", url.Values{"query": {replaced(3, strings.Repeat("$1", 10))}}, 400, "labels may grow"},
		{"labels that add up", "query", url.Values{"query": {replaced(90, strings.Repeat("x", 600))}}, 400, "labels may grow"},
		{"a long text in each label", "query", url.Values{"query": {replaced(1, strings.Repeat("x", 60_000))}}, 400, "labels may grow"},
		{
			"labels joined with themselves", "query",
			url.Values{"query": {`label_join(label_join(load,"a","-"` + strings.Repeat(`,"server"`, 20) + `),"b","-"` + strings.Repeat(`,"a"`, 20) + `)`}},
			400, "labels may grow",
		},
		{"labels as people replace them", "query", url.Values{"query": {replaced(6, "${1}-x")}}, 200, "success"},
		{"what is in use", "query_range", rng(`sum by (server) (rate(load[5m]))`, "15"), 200, "success"},
		{"brackets in a text", "query", url.Values{"query": {`count(load{server!="` + strings.Repeat("(", 500) + `"})`}}, 200, "success"},
	} {
		before := cpu(t)
		w := ask(h, tc.path, tc.form)
		used := cpu(t) - before
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %.300s", tc.name, w.Code, w.Body)
		}
		if used > 2*time.Second {
			t.Errorf("%s: %s of the processor", tc.name, used)
		}
	}
}

func TestAnswersAndReadsAreBounded(t *testing.T) {
	store := fleet(t, 50)
	for _, tc := range []struct {
		name   string
		change func(*prometheus.Config)
		path   string
		form   url.Values
		want   string
	}{
		{
			"bytes of a range", func(c *prometheus.Config) { c.MaxBytes = 20_000 }, "query",
			url.Values{"query": {"load[1h]"}, "time": {T(0)}},
			"answer has more than 20000 bytes",
		},
		{
			"bytes of one series", func(c *prometheus.Config) { c.MaxBytes = 2_000 }, "query",
			url.Values{"query": {`load{server="s1"}[1h]`}, "time": {T(0)}},
			"answer has more than 2000 bytes",
		},
		{
			"bytes of a list of series", func(c *prometheus.Config) { c.MaxBytes = 1_000 }, "series",
			url.Values{"match[]": {"load"}},
			"answer has more than 1000 bytes",
		},
		{"bytes of names", func(c *prometheus.Config) { c.MaxBytes = 40 }, "labels", nil, "answer has more than 40 bytes"},
		{
			"series of a query", func(c *prometheus.Config) { c.MaxSeries = 49 }, "query",
			url.Values{"query": {"count(load)"}, "time": {T(0)}},
			"more than 49 series",
		},
		{"series of a list", func(c *prometheus.Config) { c.MaxSeries = 49 }, "series", url.Values{"match[]": {"load"}}, "more than 49 series"},
		{
			"series of two selectors", func(c *prometheus.Config) { c.MaxSeries = 75 }, "query",
			url.Values{"query": {"count(load) + count(load offset 1m)"}, "time": {T(0)}},
			"more than 75 series",
		},
		{
			"samples looked at", func(c *prometheus.Config) { c.MaxTouched = 5_000 }, "query",
			url.Values{"query": {"sum(sum_over_time(load[1h]))"}, "time": {T(0)}},
			"more than 5000 samples",
		},
	} {
		h := over(t, store, tc.change)
		w := ask(h, tc.path, tc.form)
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %.300s", tc.name, w.Code, w.Body)
		}
		if w := ask(over(t, store, nil), tc.path, tc.form); w.Code != http.StatusOK {
			t.Errorf("%s within bounds: %d %.300s", tc.name, w.Code, w.Body)
		}
	}
}

// endless is a store whose one series never ends.
type endless struct {
	storage.Queryable
	began chan struct{}
	once  sync.Once
}

func (e *endless) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := e.Queryable.Querier(mint, maxt)
	return waiting{q, e}, err
}

type waiting struct {
	storage.Querier
	e *endless
}

func (w waiting) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, m ...*labels.Matcher) storage.SeriesSet {
	w.e.once.Do(func() { close(w.e.began) })
	return endlessSet{w.Querier.Select(ctx, sorted, hints, m...)}
}

// endlessSet gives its first series again and again, and looks at no context.
type endlessSet struct{ storage.SeriesSet }

func (s endlessSet) Next() bool { s.SeriesSet.Next(); return true }

func TestAQueryEndsWhenItsCallerLeavesOrItsTimeIsUp(t *testing.T) {
	for _, tc := range []struct {
		name    string
		timeout time.Duration
		leaves  bool
		status  int
	}{{"leaves", time.Hour, true, 499}, {"time", 300 * time.Millisecond, false, 503}} {
		t.Run(tc.name, func(t *testing.T) {
			e := &endless{Queryable: fleet(t, 1), began: make(chan struct{})}
			h := over(t, e, func(c *prometheus.Config) { c.Timeout, c.MaxSeries, c.MaxTouched = tc.timeout, 1<<40, 1<<60 })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if tc.leaves {
				go func() { <-e.began; leave() }()
			}
			w := httptest.NewRecorder()
			done := make(chan struct{})
			go func() {
				defer close(done)
				h.ServeHTTP(w, httptest.NewRequest("GET", prometheus.Prefix+"query?query=load", nil).WithContext(ctx))
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("the query goes on")
			}
			if w.Code != tc.status {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

type callerKey struct{}

// A caller with a hundred queries and one with a single query take turns; who
// sends more than may wait is refused, and nobody else.
func TestCallersTakeTurns(t *testing.T) {
	gate := make(chan struct{})
	order := make(chan string, 200)
	store := &gated{Queryable: fleet(t, 1), gate: gate, order: order}
	h := over(t, store, func(c *prometheus.Config) {
		c.MaxConcurrent, c.MaxWaiting = 2, 40
		c.Caller = func(ctx context.Context) string { s, _ := ctx.Value(callerKey{}).(string); return s }
	})
	codes := make(chan [2]any, 200)
	send := func(caller string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(
			w,
			httptest.NewRequest("GET", prometheus.Prefix+"query?query=load", nil).WithContext(context.WithValue(t.Context(), callerKey{}, caller)),
		)
		codes <- [2]any{caller, w.Code}
	}
	go send("greedy")
	<-order // it is inside, and has one of the two places
	for range 30 {
		go send("greedy")
	}
	refused := 0
	for range 20 { // ten wait, the others are refused at once
		if c := <-codes; c == [2]any{"greedy", http.StatusServiceUnavailable} {
			refused++
		} else {
			t.Errorf("%v", c)
		}
	}
	go send("modest")
	if first := <-order; first != "modest" {
		t.Errorf("the free place went to %s", first)
	}
	close(gate)
	answered := map[any]int{}
	for range 12 {
		c := <-codes
		if c[1] != http.StatusOK {
			t.Errorf("%v", c)
		}
		answered[c[0]]++
	}
	if refused != 20 || answered["greedy"] != 11 || answered["modest"] != 1 {
		t.Errorf("%d refused, answered %v", refused, answered)
	}
}

// gated tells who is inside and holds them until the gate opens.
type gated struct {
	storage.Queryable
	gate  chan struct{}
	order chan string
}

func (g *gated) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := g.Queryable.Querier(mint, maxt)
	return heldQuerier{q, g}, err
}

type heldQuerier struct {
	storage.Querier
	g *gated
}

func (q heldQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, m ...*labels.Matcher) storage.SeriesSet {
	s, _ := ctx.Value(callerKey{}).(string)
	q.g.order <- s
	<-q.g.gate
	return q.Querier.Select(ctx, sorted, hints, m...)
}

// Whoever waits and leaves gives way.
func TestAWaitingQueryThatIsAbandonedGivesItsTurnOn(t *testing.T) {
	gate, order := make(chan struct{}), make(chan string, 10)
	h := over(t, &gated{Queryable: fleet(t, 1), gate: gate, order: order}, func(c *prometheus.Config) { c.MaxConcurrent = 1 })
	done := make(chan int, 3)
	send := func(ctx context.Context) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", prometheus.Prefix+"query?query=load", nil).WithContext(ctx))
		done <- w.Code
	}
	go send(t.Context())
	<-order
	ctx, leave := context.WithCancel(t.Context())
	go send(ctx)
	leave()
	if code := <-done; code != 499 {
		t.Errorf("the one that left: %d", code)
	}
	go send(t.Context())
	close(gate)
	for range 2 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}

func FuzzNoQueryIsDear(f *testing.F) {
	for _, q := range []string{
		`load`, `sum(rate(load[5m]))`, `max_over_time(load[1h:1s])`, `((((1))))`, `-+-1`, `load{a=~"(a|b)*c"}`, `load[1h:1ms] @ start()`,
		`"\"("`, "`(`", `# (`, `{__name__=~".+"}`, `quantile_over_time(0.5, load[1h:1s])`,
	} {
		f.Add(q)
	}
	h := over(f, fleet(f, 3), nil)
	f.Fuzz(func(t *testing.T, query string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		used := cpu(t)
		w := ask(h, "query_range", url.Values{"query": {query}, "start": {T(-60)}, "end": {T(0)}, "step": {"1"}})
		runtime.ReadMemStats(&after)
		if used = cpu(t) - used; used > 10*time.Second || after.TotalAlloc-before.TotalAlloc > 2<<30 {
			t.Errorf("%d: %s, %d MiB", w.Code, used, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	})
}

// replaced is label_replace of label_replace.
func replaced(times int, by string) string {
	return strings.Repeat("label_replace(", times) + "load" + strings.Repeat(`,"server","`+by+`","server","(.*)")`, times)
}
