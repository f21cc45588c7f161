package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/trust"
	"auspex/internal/waittest"
)

const subs = "/redfish/v1/EventService/Subscriptions"

// poster is a service with a log and a table of subscriptions, without a stream.
type poster struct {
	*log
	now  time.Time
	hook *webhook
	at   string // of the webhook

	mu     sync.Mutex
	table  map[string]map[string]any // by path
	made   int
	refuse func(body map[string]any) int // the status, 0 is taken
	hides  bool                          // it does not show the context
	lost   bool                          // its answer to the next POST does not arrive
	tests  int
	asked  []string
}

func newPoster(t *testing.T) *poster {
	p := &poster{log: newLog(t, true), now: collectortest.Now, table: map[string]map[string]any{}}
	p.table[subs+"/other"] = map[string]any{"@odata.id": subs + "/other", "Context": "another's", "Destination": "https://other.example"}
	p.tree.Set("/redfish/v1", map[string]any{
		"Systems": link("/redfish/v1/Systems"), "EventService": link("/redfish/v1/EventService"),
		"ProtocolFeaturesSupported": map[string]any{"TopSkipQuery": true, "ExpandQuery": map[string]any{"NoLinks": true}},
	})
	p.tree.Set("/redfish/v1/EventService", map[string]any{
		"Subscriptions": link(subs), "EventFormatTypes": []any{"Event"},
		"Actions": map[string]any{"#EventService.SubmitTestEvent": map[string]any{"target": "/redfish/v1/EventService/Test"}},
	})
	p.url = serve(t, http.HandlerFunc(p.serve))
	p.s.Metrics, p.s.Cursors = prometheus.NewRegistry(), collectortest.NewCursors()
	p.s.Now = func() time.Time { return p.now }
	p.begin()
	return p
}

// begin is a new process.
func (p *poster) begin() {
	p.t.Helper()
	cfg := DefaultConfig()
	cfg.Push.Listen, cfg.Timeout, cfg.Backlog = "127.0.0.1:1", time.Minute, 0
	rec, err := cfg.Listen(p.s)
	if err != nil {
		p.t.Fatal(err)
	}
	p.hook = rec.(*webhook)
	server := httptest.NewServer(p.hook)
	p.t.Cleanup(server.Close)
	cfg.Push.URL, p.at = server.URL+"/", server.URL
	c, err := p.hook.New(target(p.url), p.s)
	if err != nil {
		p.t.Fatal(err)
	}
	p.r = c.(*reader)
	if err := p.r.open(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	client := p.r.c
	p.t.Cleanup(func() { client.Close(p.t.Context()) })
}

func (p *poster) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.Method+" "+r.URL.Path)
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch own := p.table[r.URL.Path]; {
	case r.Method == http.MethodPost && r.URL.Path == subs:
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		if p.refuse != nil {
			if status := p.refuse(body); status != 0 {
				answer(status, map[string]any{"error": map[string]any{"message": "EventSubscriptionLimitExceeded"}})
				return
			}
		}
		p.made++
		path := fmt.Sprint(subs, "/", p.made)
		body["@odata.id"] = path
		if p.hides {
			delete(body, "Context")
		}
		p.table[path] = body
		if p.lost {
			p.lost = false
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Location", path)
		answer(http.StatusCreated, body)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/Test"):
		p.tests++
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet && r.URL.Path == subs:
		var members []any
		for path := range p.table {
			members = append(members, link(path))
		}
		answer(http.StatusOK, map[string]any{"@odata.id": subs, "Members": members, "Members@odata.count": len(members)})
	case strings.HasPrefix(r.URL.Path, subs+"/") && own == nil:
		answer(http.StatusNotFound, map[string]any{})
	case own != nil && r.Method == http.MethodDelete:
		delete(p.table, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case own != nil:
		answer(http.StatusOK, own)
	default:
		p.tree.ServeHTTP(w, r)
	}
}

// ours returns the subscriptions that are not of another.
func (p *poster) ours() (out []map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table[subs+"/other"] == nil {
		p.t.Error("the subscription of another is gone")
	}
	for path, s := range p.table {
		if path != subs+"/other" {
			out = append(out, s)
		}
	}
	return out
}

// tell sends a message to an address, and returns the status.
func (p *poster) tell(address string, body any) int {
	p.t.Helper()
	raw, ok := body.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			p.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, address, bytes.NewReader(raw))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// push sends an event as the service does.
func (p *poster) push(events ...map[string]any) int {
	p.t.Helper()
	to := p.ours()
	if len(to) != 1 {
		p.t.Fatalf("%d subscriptions", len(to))
	}
	return p.tell(to[0]["Destination"].(string), map[string]any{"Id": "1", "Context": to[0]["Context"], "Events": events})
}

func (p *poster) event(n int, severity, message string) map[string]any {
	return map[string]any{
		"EventId": strconv.Itoa(n), "EventTimestamp": collectortest.Now.Add(time.Duration(n-1) * time.Second).Format(time.RFC3339),
		"Message": message, "MessageSeverity": severity,
	}
}

// step polls some time later and returns what was read, and how many requests that took.
func (p *poster) step(later time.Duration) (got []string, asked int64) {
	p.t.Helper()
	p.now = p.now.Add(later)
	before := p.r.c.Requests()
	got = p.poll()
	return got, p.r.c.Requests() - before
}

// listening brings a service to where it tells by itself.
func (p *poster) listening() {
	p.t.Helper()
	p.step(0)
	p.step(10 * time.Second)
	if status := p.push(p.event(100, "OK", "a test")); status != http.StatusNoContent {
		p.t.Fatalf("status %d", status)
	}
	p.step(time.Minute)
	if _, n := p.step(time.Minute); n != 1 {
		p.t.Fatalf("%d requests in a quiet tick, want that of the power", n)
	}
}

func (p *poster) messages(result string) float64 {
	return testutil.ToFloat64(map[string]prometheus.Counter{
		"taken": p.hook.taken, "malformed": p.hook.malformed, "unknown": p.hook.unknown, "foreign": p.hook.foreign,
		"repeated": p.hook.repeated, "large": p.hook.large, "busy": p.hook.busy, "lost": p.hook.lost, "refused": p.hook.refused,
	}[result])
}

func TestAServiceWithoutAStreamSendsToUs(t *testing.T) {
	p := newPoster(t)
	p.add(1)
	p.step(0)
	p.step(10 * time.Second)
	own := p.ours()
	if len(own) != 1 || !strings.HasPrefix(own[0]["Destination"].(string), p.at+doorPath) || p.tests != 1 {
		t.Fatalf("%v, %d test events", own, p.tests)
	}
	// Until something has come, nobody knows that it can.
	p.add(2)
	if got, n := p.step(10 * time.Second); fmt.Sprint(got) != "[2]" || n < 2 {
		t.Errorf("before a message %v with %d requests", got, n)
	}
	p.listening()
	p.add(3)
	p.push(p.event(3, "Critical", "message 3"))
	select {
	case <-p.r.ear.bell:
	case <-time.After(30 * time.Second):
		t.Fatal("the bell does not ring")
	}
	if got, _ := p.step(time.Second); fmt.Sprint(got) != "[3]" {
		t.Errorf("told %v", got)
	}
	if n := testutil.ToFloat64(p.r.ear.inLog); n != 1 {
		t.Errorf("%v were found in a log", n)
	}
	// What is in no log is told by itself, once.
	leak := p.event(7, "Critical", "leak")
	leak["EventTimestamp"] = p.now.Format(time.RFC3339)
	p.push(leak)
	p.push(leak)
	p.step(time.Second)
	if got, _ := p.step(10 * time.Second); len(got) != 1 || p.messages("repeated") != 1 {
		t.Errorf("told %v, %v repeated", got, p.messages("repeated"))
	}
}

// What is told is tied to the device by the address alone that only it was given.
func TestNobodySpeaksForAnother(t *testing.T) {
	p := newPoster(t)
	p.listening()
	d := p.r.sub.door
	at := p.hook.destination(d)
	mark := d.context
	old := p.event(1, "Critical", "leak")
	old["EventTimestamp"] = p.now.Add(-50 * time.Hour).Format(time.RFC3339)
	p.r.cfg.Backlog = 24 * time.Hour
	for _, tc := range []struct {
		name, to string
		body     any
		status   int
		result   string
	}{
		{"no address of ours", p.at + "/", map[string]any{}, 404, "unknown"},
		{"a guess", p.at + doorPath + "AAAA", map[string]any{}, 404, "unknown"},
		{"an empty guess", p.at + doorPath, map[string]any{}, 404, "unknown"},
		{"the mark of another", at, map[string]any{"Context": "auspex-OTHER", "Events": []any{old}}, 403, "foreign"},
		{"the mark of another in an event", at, map[string]any{"Events": []any{map[string]any{"Context": "auspex-OTHER", "Message": "leak"}}}, 403, "foreign"},
		{"no JSON", at, []byte("{"), 400, "malformed"},
		{"null", at, []byte("null"), 400, "malformed"},
		{"much", at, []byte(`{"x": "` + strings.Repeat("x", mostBody) + `"}`), 413, "large"},
		{"what is long ago", at, map[string]any{"Context": mark, "Events": []any{old}}, 204, "taken"},
	} {
		before := p.messages(tc.result)
		if got := p.tell(tc.to, tc.body); got != tc.status || p.messages(tc.result) != before+1 {
			t.Errorf("%s: status %d, want %d; %s grew by %v", tc.name, got, tc.status, tc.result, p.messages(tc.result)-before)
		}
	}
	p.step(time.Second)
	if got, _ := p.step(10 * time.Second); len(got) != 0 || testutil.ToFloat64(p.r.ear.old) != 1 {
		t.Errorf("told %v, %v are old", got, testutil.ToFloat64(p.r.ear.old))
	}
	for range mostOfOne {
		d.enter()
	}
	if got := p.tell(at, map[string]any{}); got != 503 || p.messages("busy") != 1 {
		t.Errorf("one that sends too much at once: status %d", got)
	}
	for range mostOfOne {
		d.leave()
	}
	// Of a device that is gone nothing is taken.
	p.hook.Place(nil)
	if got := p.tell(at, map[string]any{}); got != 404 {
		t.Errorf("of a device that is gone: status %d", got)
	}
}

func TestSubscriptionsAreKeptAndEnded(t *testing.T) {
	p := newPoster(t)
	p.listening()
	first := p.ours()[0]
	// The service has forgotten it.
	p.mu.Lock()
	delete(p.table, first["@odata.id"].(string))
	p.mu.Unlock()
	p.step(p.r.cfg.Reconcile)
	if own := p.ours(); len(own) != 1 || own[0]["Context"] == first["Context"] || p.messages("lost") != 1 {
		t.Errorf("%v, %v lost", own, p.messages("lost"))
	}
	// Its number belongs to another now.
	second := p.ours()[0]
	p.mu.Lock()
	second["Context"] = "another's too"
	p.mu.Unlock()
	p.step(p.r.cfg.Reconcile)
	p.step(10 * time.Second) // the poll that discovers asks for enough
	if own := p.ours(); len(own) != 2 {
		t.Errorf("%d subscriptions, want ours and that of another", len(own))
	}
	p.mu.Lock()
	delete(p.table, second["@odata.id"].(string))
	p.mu.Unlock()
	// A process that is killed leaves it to the next one.
	third := p.ours()[0]
	p.begin()
	p.step(10 * time.Second)
	p.step(10 * time.Second)
	if own := p.ours(); len(own) != 1 || own[0]["Context"] == third["Context"] {
		t.Errorf("after a kill %v", own)
	}
	// Nor is one lost whose answer was.
	p.mu.Lock()
	delete(p.table, p.r.sub.paths[0])
	p.lost = true
	p.mu.Unlock()
	p.now = p.now.Add(p.r.cfg.Reconcile)
	if err := p.r.poll(t.Context(), p.rec); err == nil {
		t.Error("a broken connection is no error")
	}
	p.step(10 * time.Second)
	if own := p.ours(); len(own) != 1 || own[0]["@odata.id"] != p.r.sub.paths[0] {
		t.Errorf("after a lost answer %v", own)
	}
	// At the end none is left, and those of others are.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	door := p.r.sub.door
	p.r.unsubscribe(ctx)
	if own := p.ours(); len(own) != 0 {
		t.Errorf("at the end %v", own)
	}
	if got := p.tell(p.hook.destination(door), map[string]any{}); got != 404 {
		t.Errorf("its address is open: status %d", got)
	}
}

// A collector whose device is removed ends its subscription; one that fails does not.
func TestACollectorThatIsStoppedEndsItsSubscription(t *testing.T) {
	p := newPoster(t)
	p.s.Now = time.Now
	p.begin()
	p.r.cfg.Interval = 10 * time.Millisecond
	p.r.cfg.Jitter = 0
	p.r.loop = collectors.Scrape(10*time.Millisecond, 0, p.r.poll)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.r.Run(ctx, p.rec) }()
	waittest.Until(t, func() error {
		if own := p.ours(); len(own) != 1 {
			return fmt.Errorf("%d subscriptions", len(own))
		}
		return nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if own := p.ours(); len(own) != 0 {
		t.Errorf("left are %v", own)
	}
}

func TestARefusedSubscriptionIsToldOnceAndTheLogsArePolled(t *testing.T) {
	for name, tc := range map[string]struct {
		with  func(*poster)
		tries int // at the service
	}{
		"a full table":                    {func(p *poster) { p.refuse = func(map[string]any) int { return 503 } }, 1},
		"no right to":                     {func(p *poster) { p.refuse = func(map[string]any) int { return 403 } }, 1},
		"other words, too":                {func(p *poster) { p.refuse = func(map[string]any) int { return 400 } }, 2},
		"it does not show whose they are": {func(p *poster) { p.hides = true }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPoster(t)
			tries := 0
			tc.with(p)
			if refuse := p.refuse; refuse != nil {
				p.refuse = func(b map[string]any) int { tries++; return refuse(b) }
			} else {
				tries = tc.tries
			}
			p.step(0)
			p.step(10 * time.Second)
			p.add(1)
			if got, _ := p.step(10 * time.Second); fmt.Sprint(got) != "[1]" || tries != tc.tries || p.messages("refused") != 1 {
				t.Errorf("read %v; asked %d times, %v refused", got, tries, p.messages("refused"))
			}
			if len(p.hook.doors) != 0 {
				t.Errorf("%d doors are open", len(p.hook.doors))
			}
		})
	}
	t.Run("older words", func(t *testing.T) {
		p := newPoster(t)
		p.refuse = func(b map[string]any) int {
			if b["EventTypes"] == nil {
				return 400
			}
			return 0
		}
		p.listening()
	})
}

// A service that tells of some things only is polled as one that tells nothing.
func TestAServiceThatDoesNotTellIsPolled(t *testing.T) {
	p := newPoster(t)
	p.listening()
	p.add(1) // a warning, and no word of it
	if got, _ := p.step(p.r.cfg.Reconcile); fmt.Sprint(got) != "[1]" {
		t.Fatalf("at the reconcile %v", got)
	}
	p.step(10 * time.Second)
	p.add(2)
	if got, _ := p.step(10 * time.Second); fmt.Sprint(got) != "[2]" || testutil.ToFloat64(p.r.ear.missed) != 1 {
		t.Errorf("then %v; %v missed", got, testutil.ToFloat64(p.r.ear.missed))
	}
	p.step(doubtFirst)
	p.step(10 * time.Second) // it looks for its subscription
	if _, n := p.step(10 * time.Second); n != 1 {
		t.Errorf("an hour later %d requests", n)
	}
}

func TestPushSettings(t *testing.T) {
	for want, p := range map[string]Push{
		"":                         {},
		" ":                        {Listen: "127.0.0.1:8444"},
		"set cert_file":            {Listen: "10.0.0.1:8444", URL: "http://10.0.0.1:8444"},
		"push.listen":              {Listen: "127.0.0.1"},
		"push.url: 0.0.0.0:8444":   {Listen: "0.0.0.0:8444", Server: trust.Server{CertFile: "c", KeyFile: "k"}},
		`push.url: "auspex:8444"`:  {Listen: "0.0.0.0:8444", Server: trust.Server{CertFile: "c", KeyFile: "k"}, URL: "auspex:8444"},
		`push.url: "http://a:8444`: {Listen: "0.0.0.0:8444", Server: trust.Server{CertFile: "c", KeyFile: "k"}, URL: "http://a:8444"},
		"set both cert_file":       {Listen: "127.0.0.1:8444", Server: func() (s trust.Server) { s.CertFile = "x"; return s }()},
	} {
		err := p.Validate()
		if want = strings.TrimSpace(want); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

// reporter is a service of which a metric report is known.
func reporter(t *testing.T) *device {
	d := newDevice(t, service(nil, map[string]doc{
		"/redfish/v1/TelemetryService":               {"MetricReports": link("/redfish/v1/TelemetryService/MetricReports")},
		"/redfish/v1/TelemetryService/MetricReports": {"Members": []any{link("/redfish/v1/TelemetryService/MetricReports/Env")}},
		"/redfish/v1/TelemetryService/MetricReports/Env": {
			"Id": "Env", "MetricValues": []any{measured1(collectortest.Now, 20)},
		},
	}))
	d.r.ear = newEar(prometheus.NewRegistry())
	d.poll()
	return d
}

// measured1 is a value of a report at a time.
func measured1(at time.Time, v float64) any {
	return map[string]any{"MetricId": "Flow", "MetricProperty": "/redfish/v1/Chassis/1/Flow", "MetricValue": fmt.Sprint(v), "Timestamp": at.Format(time.RFC3339)}
}

// A report that comes by itself has its own times, brings nothing twice, and is not asked for while it comes.
func TestReportsThatComeByThemselves(t *testing.T) {
	d := reporter(t)
	const series = `auspex_server_report_value metric=Flow property=Chassis/1/Flow`
	var want []time.Time
	for k := range d.got {
		if strings.HasPrefix(k, "auspex_server_report_value") {
			want = append(want, d.at[k]...)
		}
	}
	asked := int64(0)
	for i := range 4 {
		at := d.now.Add(-20 * time.Second)
		// With what it has sent before, as services do that keep a history in a report.
		d.r.ear.report(map[string]any{
			"@odata.id": "/redfish/v1/TelemetryService/MetricReports/Env/", "Id": "Env",
			"MetricValues": []any{measured1(collectortest.Now, 20), measured1(at.Add(-5*time.Second), float64(30+i)), measured1(at, float64(40+i))},
		})
		want = append(want, at.Add(-5*time.Second), at)
		asked = d.poll()
	}
	if asked != 0 {
		t.Errorf("%d requests though the report comes", asked)
	}
	var got []time.Time
	for k := range d.got {
		if strings.HasPrefix(k, "auspex_server_report_value") {
			got = append(got, d.at[k]...)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", series, diff)
	}
	if n := testutil.ToFloat64(d.r.ear.reportsTaken); n != 4 {
		t.Errorf("%v taken", n)
	}
	// When it no longer comes, it is asked for.
	d.now = d.now.Add(5 * time.Minute)
	if asked := d.poll(); asked == 0 {
		t.Error("a report that no longer comes is not asked for")
	}
	// What the service has no report of is counted, and what is too much.
	for range mostReports + 1 {
		d.r.ear.report(map[string]any{"Id": "other", "MetricValues": []any{}})
	}
	d.poll()
	if u, x := testutil.ToFloat64(d.r.ear.reportsUnknown), testutil.ToFloat64(d.r.ear.reportsDropped); u != mostReports || x != 1 {
		t.Errorf("%v unknown, %v dropped", u, x)
	}
}

// Reports have a stream, or a subscription, of their own.
func TestReportsAreAskedForOverAStream(t *testing.T) {
	s := newSpeaker(t)
	lines := make(chan string, 1)
	filters := make(chan string, 8)
	s.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := r.URL.Query().Get("$filter"); f != "" {
			filters <- f
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, <-lines)
			return
		}
		s.serve(w, r)
	}))
	s.tree.Set("/redfish/v1/EventService", map[string]any{
		"ServerSentEventUri": "/redfish/v1/SSE", "EventFormatTypes": []any{"Event", "MetricReport"},
		"SSEFilterPropertiesSupported": map[string]any{"EventFormatType": true},
	})
	s.restart()
	t.Cleanup(func() { s.r.ear.close() })
	s.poll()
	s.r.found.sources["/r"] = &source{path: "/r/Env", rank: rankReports, gives: map[*series]int{}, at: s.now, read: (*reader).readReport}
	s.quiet()
	if f := <-filters; f != "EventFormatType eq MetricReport" {
		t.Errorf("filter %q", f)
	}
	lines <- "data: " + `{"Id": "Env", "MetricValues": [{"MetricId": "Flow", "MetricProperty": "/f", "MetricValue": "1"}]}` + "\n\n"
	waittest.Until(t, func() error {
		s.r.takeReports(s.now)
		if testutil.ToFloat64(s.r.ear.reportsTaken) != 1 {
			return fmt.Errorf("no report was taken")
		}
		return nil
	})
}
