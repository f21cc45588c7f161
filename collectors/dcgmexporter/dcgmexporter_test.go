package dcgmexporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func target(url string) schemas.Resource {
	return schemas.Resource{ID: "gpu-1", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrExporterURL: url})}
}

func serve(t testing.TB, h http.HandlerFunc) schemas.Resource {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return target(s.URL)
}

func TestConformance(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			body, err := os.ReadFile(filepath.Join(input, "metrics"))
			if err != nil {
				t.Fatal(err)
			}
			return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
		},
		Garbage: func(t testing.TB) schemas.Resource {
			return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00\xff{\"\n}{ 1\n")) })
		},
		Dead: target("http://127.0.0.1:1"), At: func(addr string) schemas.Resource { return target("http://" + addr) },
	})
}

// host answers with the GPUs of a mask, their throttle reasons and errors.
type host struct{ mask, reasons, dbe, xid, board atomic.Int64 }

func (h *host) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for i := range 8 {
		if h.mask.Load()&(1<<i) == 0 {
			continue
		}
		l := fmt.Sprintf(`{gpu="%d",UUID="GPU-%d",pci_bus_id="00000000:%02x:00.0"}`, i, int64(i)+h.board.Load(), 16+i)
		fmt.Fprintf(w, "DCGM_FI_DEV_GPU_TEMP%s 40\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS%s %d\nDCGM_FI_DEV_ECC_DBE_VOL_TOTAL%s %d\nDCGM_FI_DEV_XID_ERRORS%s %d\n",
			l, l, h.reasons.Load(), l, h.dbe.Load(), l, h.xid.Load())
	}
}

func (h *host) scrape(t *testing.T, s collectors.Settings, url string) *scraper {
	t.Helper()
	return h.scrapeAs(t, Default(), s, url)
}

func (h *host) scrapeAs(t *testing.T, cfg *Config, s collectors.Settings, url string) *scraper {
	t.Helper()
	cfg.Timeout = time.Minute
	c, err := cfg.New(target(url), s)
	if err != nil {
		t.Fatal(err)
	}
	x := c.(*collector).x
	if err := x.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.link.close)
	return x
}

func events(rec *collectortest.Recorder) []string {
	var out []string
	for _, ev := range rec.Events() {
		out = append(out, strings.Join([]string{ev.Type, ev.Code, ev.State, ev.Attrs["part"], string(ev.Severity)}, " "))
	}
	return out
}

func TestMissingGPUIsToldAndCleared(t *testing.T) {
	h := &host{}
	h.mask.Store(7)
	srv := httptest.NewServer(h)
	defer srv.Close()
	s, rec := collectortest.Settings(), collectortest.NewRecorder()
	x := h.scrape(t, s, srv.URL)
	step := func(n int) {
		t.Helper()
		for range n {
			if err := x.scrape(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	step(1)
	h.mask.Store(5)
	step(1)
	if got := events(rec); len(got) != 0 {
		t.Fatalf("told after one miss: %v", got)
	}
	step(3)
	x = h.scrape(t, s, srv.URL) // the process is started again
	step(1)
	h.mask.Store(7)
	step(2)
	want := []string{"gpu.missing STALE raised gpu1 error", "gpu.missing STALE cleared gpu1 info"}
	if d := cmp.Diff(want, events(rec)); d != "" {
		t.Error(d)
	}
}

// What a process told as it was killed has its end told by the next, though that has never seen it begin.
func TestAnEventOfAKilledProcessHasAnEnd(t *testing.T) {
	for _, mute := range []bool{false, true} {
		h := &host{}
		h.mask.Store(7)
		srv := httptest.NewServer(h)
		defer srv.Close()
		s, rec := collectortest.Settings(), collectortest.NewRecorder()
		killed := &collectortest.Mortal{Cursors: s.Cursors, Emitter: rec, Mute: mute}
		dying := s
		dying.Cursors = killed
		x := h.scrape(t, dying, srv.URL)
		for !killed.Dead() {
			_ = x.scrape(t.Context(), killed)
			h.mask.Store(5)
		}
		h.mask.Store(7)
		for x, n := h.scrape(t, s, srv.URL), 0; n < 3; n++ {
			if err := x.scrape(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		ids := map[string]bool{}
		for _, ev := range rec.Events() {
			if !ids[ev.ID] {
				got = append(got, ev.Type+" "+ev.State)
			}
			ids[ev.ID] = true
		}
		if d := cmp.Diff([]string{"gpu.missing raised", "gpu.missing cleared"}, got); d != "" {
			t.Error(mute, d)
		}
	}
}

// DCGM writes numbers of its own for what it does not know, and goes on telling
// counters and the last error of a GPU that is gone.
func TestAGPUIsThereOnlyWithReadingsOfNow(t *testing.T) {
	const gauges, counters = "DCGM_FI_DEV_GPU_TEMP 40;DCGM_FI_DEV_POWER_USAGE 70.5;", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL 0;DCGM_FI_DEV_XID_ERRORS 79;"
	for name, gone := range map[string]string{
		"nothing": "", "only what the driver remembers": counters + "DCGM_FI_DEV_SLOWDOWN_TEMP 87;DCGM_FI_DEV_ROW_REMAP_FAILURE 0;",
		"blanks of integers": "DCGM_FI_DEV_GPU_TEMP 2147483634;DCGM_FI_DEV_ECC_DBE_VOL_TOTAL 9223372036854775794;DCGM_FI_DEV_XID_ERRORS 2147483633;",
		"blanks of floats":   "DCGM_FI_DEV_POWER_USAGE 140737488355329;DCGM_FI_DEV_ECC_DBE_VOL_TOTAL 9.223372036854775807e+18;",
	} {
		t.Run(name, func(t *testing.T) {
			var second atomic.Pointer[string]
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for i, lines := range []string{gauges + counters, *second.Load()} {
					for _, l := range strings.FieldsFunc(lines, func(r rune) bool { return r == ';' }) {
						metric, value, _ := strings.Cut(l, " ")
						fmt.Fprintf(w, "%s{gpu=\"%d\",UUID=\"GPU-%d\"} %s\n", metric, i, i, value)
					}
				}
			}))
			defer srv.Close()
			rec := collectortest.NewRecorder()
			x := (&host{}).scrape(t, collectortest.Settings(), srv.URL)
			for _, says := range []string{gauges + counters, gone, gone, gone, gauges + counters} {
				second.Store(&says)
				if err := x.scrape(context.Background(), rec); err != nil {
					t.Fatal(err)
				}
			}
			want := []string{"gpu.missing STALE raised gpu1 error", "gpu.missing STALE cleared gpu1 info"}
			if d := cmp.Diff(want, events(rec)); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("an exporter that is asked for counters alone", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"0\"} 0\n")
		}))
		defer srv.Close()
		rec := collectortest.NewRecorder()
		x := (&host{}).scrape(t, collectortest.Settings(), srv.URL)
		for range 4 {
			if err := x.scrape(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
		if got := events(rec); len(got) != 0 {
			t.Error(got)
		}
	})
}

// A time in the exposition is the reading's: what is old is not of now.
func TestTimesOfLinesAreKept(t *testing.T) {
	now := time.Now()
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	for _, age := range []time.Duration{0, time.Hour} {
		line := fmt.Sprintf("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 40 %d\n", now.Add(-age).UnixMilli())
		if _, bad, err := tab.parse([]byte(line), now); bad != 0 {
			t.Fatal(err)
		}
		tab.gpus.Fill(tab.batch, now)
		g := tab.batch.Gpus()
		if got := now.Sub(time.Unix(0, g.BaseTime+g.Delta[0])); got.Round(time.Second) != age {
			t.Errorf("%s old, want %s", got, age)
		}
	}
}

func TestThrottlingAndUncorrectableErrors(t *testing.T) {
	h := &host{}
	h.mask.Store(1)
	srv := httptest.NewServer(h)
	defer srv.Close()
	rec := collectortest.NewRecorder()
	x := h.scrape(t, collectortest.Settings(), srv.URL)
	for _, st := range [][2]int64{{0, 0}, {0x84, 0}, {0x80, 2}, {0, 2}} {
		h.reasons.Store(st[0])
		h.dbe.Store(st[1])
		if err := x.scrape(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"gpu.clocks_throttled HW_POWER_BRAKE raised gpu0 warning", "gpu.ecc_ue DRAM  gpu0 critical",
		"gpu.clocks_throttled HW_POWER_BRAKE cleared gpu0 info",
	}
	if d := cmp.Diff(want, events(rec)); d != "" {
		t.Error(d)
	}
}

func exposition(gpus int) []byte {
	var b strings.Builder
	for _, m := range schemas.GPUMetrics {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", m.Name)
		for i := range gpus {
			fmt.Fprintf(
				&b, "%s{gpu=\"%d\",UUID=\"GPU-%d\",pci_bus_id=\"00000000:%02x:00.0\",device=\"nvidia%d\",modelName=\"H100\",Hostname=\"h\"} %d.5\n",
				m.Name, i, i, i, i, i*100,
			)
		}
	}
	return []byte(b.String())
}

func TestParsingKnownSeriesAllocatesNothing(t *testing.T) {
	body, now := exposition(8), time.Now()
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	tab.parse(body, now)
	tab.gpus.Fill(tab.batch, now)
	n := math.Inf(1)
	for range 5 { // what else runs in the process allocates too, now and then
		n = min(n, testing.AllocsPerRun(20, func() {
			if samples, bad, _ := tab.parse(body, now); bad != 0 || samples != 8*len(schemas.GPUMetrics) {
				t.Fatalf("%d samples, %d bad", samples, bad)
			}
			tab.gpus.Fill(tab.batch, now)
		}))
	}
	if n > 0 {
		t.Errorf("%v allocations a scrape", n)
	}
}

func BenchmarkParse(b *testing.B) {
	body, now := exposition(8), time.Now()
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		tab.parse(body, now)
		tab.gpus.Fill(tab.batch, now)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a{gpu=\"0\",UUID=\"x\"} 1 1000\nb 2\n"))
	f.Add([]byte(`a{b="\"}"} NaN`))
	f.Fuzz(func(t *testing.T, body []byte) {
		tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
		tab.parse(body, time.Unix(0, 0))
		rows := tab.gpus.Fill(tab.batch, time.Unix(0, 0))
		g := tab.batch.Gpus()
		for _, m := range schemas.GPUMetrics {
			if n := len(*m.Get(g)); n != 0 && n != rows {
				t.Fatalf("column %s has %d of %d rows", m.Name, n, rows)
			}
		}
	})
}

// sheets keeps batches as they go on the wire.
type sheets [][]byte

func (s *sheets) Emit(_ context.Context, b *auspexv1.Batch) error {
	wire, err := b.MarshalVT()
	*s = append(*s, wire)
	return err
}

// samePages reads pages one after the other, with and without what is remembered of the page before, and compares all that
// comes of it.
func samePages(t *testing.T, pages [][]byte) {
	t.Helper()
	fresh := func() *collectors.Batch { return collectors.NewBatch("h", Name) }
	quick, plain := newTable(fresh), newTable(fresh)
	for i, page := range pages {
		now := time.Unix(int64(i)*60, 0)
		type outcome struct {
			Samples, Bad int
			First        string
			Told         string
			Sheets       sheets
		}
		read := func(tab *table) (o outcome) {
			var first error
			if o.Samples, o.Bad, first = tab.parse(page, now); first != nil {
				o.First = first.Error()
			}
			tab.gpus.Fill(tab.batch, now)
			o.Told = fmt.Sprint(tab.told, tab.gpus)
			if err := tab.batch.Emit(t.Context(), &o.Sheets, now); err != nil {
				t.Fatal(err)
			}
			return o
		}
		plain.page = nil
		if d := cmp.Diff(read(plain), read(quick)); d != "" {
			t.Fatalf("page %d: %s", i, d)
		}
	}
}

// between separates pages in a fuzzed text: no page holds it.
const between = "\x1e"

// pagesLikeTheLast are what a page may be after one that is known.
var pagesLikeTheLast = []string{
	"a{gpu=\"0\",UUID=\"x\"} 1\nb 2\n" + between + "a{gpu=\"0\",UUID=\"x\"} 1.25\nb -3\n",
	"a 1\nb 2\nc 3\n" + between + "c 3\nb 2\na 1\n" + between + "a 1\nc 3\n" + between + "a 1\nb 2\nc 3\nd 4\n",
	"a 1\nb 2\n" + between + "a 1\na 1\nb 2\nb 3\n" + between + "a 1\nb\n" + between + "a 1\nb ",
	"# HELP a b\n# TYPE a gauge\na 1 1700000000000\n" + between + "# TYPE a gauge\na NaN 1700000001000\n" + between + "a +Inf\na -Inf\na 1e3\na 0x1p4\n",
	"a 1 # {trace_id=\"x\"} 1\n" + between + "a 1\r\na  2 \n" + between + "a \t3\na 1.\na .5\na -\na .\na 1..2\n",
	`a{b="\"} 1",c="\\"} 1` + between + `a{b="\"} 1",c="\\"} 2` + between + `a{b="\"} 1`,
	"a} 1\n" + between + "a} 2\n" + between + "a}2\na{} 1\na{}2\n",
	"DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"A\",pci_bus_id=\"00000000:10:00.0\"} 40\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"B\"} 1.5\nDCGM_FI_DEV_SLOWDOWN_TEMP{gpu=\"0\"} 87\n" + between +
		"DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"C\"} 2147483632\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"B\"} 1,5\nDCGM_FI_DEV_SLOWDOWN_TEMP{gpu=\"0\"} 88\n" + between +
		"DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"A\"} 123456789012345678901234\nDCGM_FI_DEV_ROW_REMAP_PENDING{gpu=\"0\"} 1\n",
	"a 9007199254740993\n" + between + "a 9007199254740993\na 9007199254740992\na 0.1234567890123456789\na -0\na 00000000000000000001\n",
}

func TestAPageIsReadAsIfThereHadBeenNoneBefore(t *testing.T) {
	for _, text := range pagesLikeTheLast {
		samePages(t, bytes.Split([]byte(text), []byte(between)))
	}
}

// Other bodies than those of the page before, in any order, give the same rows as a reader gives that remembers none.
func FuzzPages(f *testing.F) {
	for _, text := range pagesLikeTheLast {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { samePages(t, bytes.Split(text, []byte(between))) })
}

// A number that is read at one go is what strconv makes of it, to the bit.
func TestPlainNumbersAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		text := strconv.FormatFloat(rng.NormFloat64()*math.Pow(10, float64(rng.IntN(18)-6)), 'f', rng.IntN(12), 64)
		want, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got, n := number([]byte(text + "\nnext")); n > 0 && (n != len(text)+1 || math.Float64bits(got) != math.Float64bits(want)) {
			t.Fatalf("%s is %v of %d bytes, want %v", text, got, n, want)
		}
	}
}

func TestSeriesThatChangeWithEachScrapeDoNotPileUp(t *testing.T) {
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	var most, last int
	for scrape := range 20 {
		var page bytes.Buffer
		for i := range 2000 {
			fmt.Fprintf(&page, "churn{id=\"%d-%d\"} 1\n", scrape, i)
		}
		last, _, _ = tab.parse(page.Bytes(), collectortest.Now.Add(time.Duration(scrape)*4*time.Minute))
		most = max(most, len(tab.known))
		wire := &sizer{}
		if err := tab.batch.Emit(t.Context(), wire, collectortest.Now); err != nil {
			t.Fatal(err)
		}
		if wire.series > maxSeries {
			t.Fatalf("scrape %d sends %d series", scrape, wire.series)
		}
	}
	if most > maxSeries {
		t.Errorf("%d series are remembered", most)
	}
	if last != 2000 {
		t.Errorf("%d samples of the scrape after an hour, want 2000", last)
	}
}

// sizer notes how many series a batch carries.
type sizer struct{ series int }

func (s *sizer) Emit(_ context.Context, b *auspexv1.Batch) error {
	s.series = len(b.GetSamples().GetSeries())
	return nil
}

func TestAHostWithThousandsOfGPUsIsNotBelieved(t *testing.T) {
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	var page bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&page, "DCGM_FI_DEV_GPU_TEMP{gpu=\"%d\"} 40\n", i)
	}
	samples, bad, err := tab.parse(page.Bytes(), collectortest.Now)
	if samples != collectors.MaxGPUs || bad != 1000-collectors.MaxGPUs || err == nil {
		t.Errorf("%d samples, %d malformed lines (%v), want %d and %d", samples, bad, err, collectors.MaxGPUs, 1000-collectors.MaxGPUs)
	}
}

func TestNumbersWithADecimalCommaAreNamedAndNotRead(t *testing.T) {
	tab := newTable(func() *collectors.Batch { return collectors.NewBatch("h", Name) })
	samples, bad, err := tab.parse([]byte("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 40\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 71,5\n"), collectortest.Now)
	if samples != 1 || bad != 1 || err == nil || !strings.Contains(err.Error(), "decimal comma") {
		t.Errorf("%d samples, %d malformed lines: %v", samples, bad, err)
	}
}

func TestTheXIDGaugeMakesEventsWhereNobodyReadsTheKernelLog(t *testing.T) {
	kernelLog := []collectors.Sign{collectors.SignXID}
	for _, tc := range []struct {
		mode  string
		taken []collectors.Sign
		want  bool
	}{
		{"auto", nil, true},
		{"auto", kernelLog, false},
		{"on", kernelLog, true},
		{"true", kernelLog, true},
		{"off", nil, false},
		{"false", nil, false},
	} {
		t.Run(fmt.Sprint(tc.mode, tc.taken), func(t *testing.T) {
			h := &host{}
			h.mask.Store(1)
			srv := httptest.NewServer(h)
			defer srv.Close()
			s, rec := collectortest.Settings(), collectortest.NewRecorder()
			s.Taken = tc.taken
			cfg := Default()
			cfg.XIDEvents = tc.mode
			x := h.scrapeAs(t, cfg, s, srv.URL)
			for _, code := range []int64{0, 48, 48, 79, 48, 0, 79} {
				h.xid.Store(code)
				if err := x.scrape(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
			}
			var want []string
			if tc.want {
				want = []string{"gpu.xid 48  gpu0 critical", "gpu.xid 79  gpu0 critical", "gpu.xid 48  gpu0 critical", "gpu.xid 79  gpu0 critical"}
			}
			if d := cmp.Diff(want, events(rec)); d != "" {
				t.Error(d)
			}
			ids := map[string]bool{}
			for _, ev := range rec.Events() {
				ids[ev.ID] = true
			}
			if len(ids) != len(want) {
				t.Errorf("%d ids of %d events", len(ids), len(want))
			}
		})
	}
}

func TestWhatAGaugeShowedBeforeAnybodyLookedIsNoEventOfNow(t *testing.T) {
	h := &host{}
	h.mask.Store(1)
	h.xid.Store(79)
	h.dbe.Store(3)
	srv := httptest.NewServer(h)
	defer srv.Close()
	s, rec := collectortest.Settings(), collectortest.NewRecorder()
	step := func() {
		t.Helper()
		if err := h.scrape(t, s, srv.URL).scrape(t.Context(), rec); err != nil { // each time a process of its own
			t.Fatal(err)
		}
	}
	step()
	step()
	h.board.Store(7) // another GPU is put in, which has a past of its own
	h.xid.Store(31)
	h.dbe.Store(9)
	step()
	if got := events(rec); len(got) != 0 {
		t.Fatalf("told of the past: %v", got)
	}
	h.xid.Store(48)
	h.dbe.Store(10)
	step()
	if d := cmp.Diff([]string{"gpu.ecc_ue DRAM  gpu0 critical", "gpu.xid 48  gpu0 critical"}, events(rec)); d != "" {
		t.Error(d)
	}
}

// deaf takes a batch and says that it did not, as a bus that dies while it answers.
type deaf struct{ *collectortest.Recorder }

func (d deaf) Emit(ctx context.Context, b *auspexv1.Batch) error {
	return errors.Join(d.Recorder.Emit(ctx, b), errors.New("no answer"))
}

func TestAnXIDThatIsToldAgainIsTheSameEvent(t *testing.T) {
	h := &host{}
	h.mask.Store(1)
	srv := httptest.NewServer(h)
	defer srv.Close()
	rec := collectortest.NewRecorder()
	x := h.scrape(t, collectortest.Settings(), srv.URL)
	if err := x.scrape(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	h.xid.Store(79)
	if err := x.scrape(t.Context(), deaf{rec}); err == nil {
		t.Fatal("no error")
	}
	if err := x.scrape(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if ev := rec.Events(); len(ev) != 2 || ev[0].ID != ev[1].ID {
		t.Errorf("%+v", ev)
	}
}
