package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
)

// speaker is a service with a log that sends events too.
type speaker struct {
	*log
	now   time.Time
	lines chan string // of the stream; "" breaks it
}

func newSpeaker(t *testing.T) *speaker {
	s := &speaker{log: newLog(t, true), now: collectortest.Now, lines: make(chan string)}
	s.tree.Set("/redfish/v1", map[string]any{
		"Systems": link("/redfish/v1/Systems"), "EventService": link("/redfish/v1/EventService"),
		"ProtocolFeaturesSupported": map[string]any{"TopSkipQuery": true, "ExpandQuery": map[string]any{"NoLinks": true}},
	})
	s.tree.Set("/redfish/v1/EventService", map[string]any{"ServerSentEventUri": "/redfish/v1/SSE"})
	s.url = serve(t, http.HandlerFunc(s.serve))
	s.s.Metrics = prometheus.NewRegistry()
	s.s.Now = func() time.Time { return s.now }
	s.restart()
	t.Cleanup(s.r.ear.close)
	return s
}

func (s *speaker) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/redfish/v1/SSE" {
		s.tree.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	_ = out.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case line := <-s.lines:
			if line == "" {
				return
			}
			_, _ = w.Write([]byte(line))
			_ = out.Flush()
		}
	}
}

// push sends events, as one message, and returns when the reader has heard it.
func (s *speaker) push(events ...map[string]any) {
	s.t.Helper()
	b, err := json.Marshal(map[string]any{"Events": events})
	if err != nil {
		s.t.Fatal(err)
	}
	s.lines <- ": a comment\r\nid: 7\r\ndata: " + string(b) + "\r\n\r\n"
	s.rings()
}

func (s *speaker) rings() {
	s.t.Helper()
	select {
	case <-s.r.ear.bell:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the bell does not ring")
	}
}

// alert is an event of the moment of the entry that was made last, with its words.
func (s *speaker) alert(severity, message string) map[string]any {
	return map[string]any{
		"EventId": "1", "EventTimestamp": collectortest.Now.Add(time.Duration(s.made-1) * time.Second).Format(time.RFC3339),
		"Message": message, "MessageSeverity": severity,
	}
}

// quiet lets so much time go by that nothing is looked for any more, and returns what a poll asks for then.
func (s *speaker) quiet() (asked int64) {
	s.t.Helper()
	for range 2 {
		s.now = s.now.Add(time.Minute)
		s.poll()
	}
	before := s.r.c.Requests()
	s.now = s.now.Add(10 * time.Second)
	s.poll()
	return s.r.c.Requests() - before
}

func (s *speaker) count(result string) int {
	return int(testutil.ToFloat64(map[string]prometheus.Counter{
		"logged": s.r.ear.inLog, "alone": s.r.ear.alone, "ignored": s.r.ear.ignored, "dropped": s.r.ear.dropped,
	}[result]))
}

func TestALogIsReadWhenItsServiceSaysSo(t *testing.T) {
	s := newSpeaker(t)
	s.add(1, 2)
	if got := fmt.Sprint(s.poll()); got != "[1 2]" {
		t.Fatalf("first %s", got)
	}
	if n := s.quiet(); n != 1 {
		t.Errorf("%d requests in a poll while nothing is told, want that of the power", n)
	}
	s.add(3)
	s.push(s.alert("Critical", "message 3"))
	if got := fmt.Sprint(s.poll()); got != "[3]" || s.count("logged") != 1 {
		t.Errorf("got %s, %d are in a log", got, s.count("logged"))
	}
	// It sends before it writes.
	s.push(map[string]any{"EventId": "4", "EventTimestamp": collectortest.Now.Add(3 * time.Second).Format(time.RFC3339), "Message": "message 4", "Severity": "Warning"})
	first := s.poll()
	s.add(4)
	s.now = s.now.Add(10 * time.Second)
	if got := fmt.Sprint(first, s.poll()); got != "[] [4]" || s.count("logged") != 2 {
		t.Errorf("got %s, %d are in a log", got, s.count("logged"))
	}
	// What it does not tell is found all the same.
	s.quiet()
	s.add(5)
	s.now = s.now.Add(s.r.cfg.Reconcile)
	if got := fmt.Sprint(s.poll()); got != "[5]" {
		t.Errorf("at the next reconcile %s", got)
	}
	if n := testutil.ToFloat64(s.r.ear.streams); n != 1 {
		t.Errorf("%v streams are open", n)
	}
}

func TestAnEventThatIsInNoLogIsTold(t *testing.T) {
	s := newSpeaker(t)
	s.add(1)
	s.poll()
	s.quiet()
	events := []map[string]any{s.alert("Critical", "leak detected"), s.alert("OK", "a fan was added")}
	s.push(events...)
	if got := s.poll(); len(got) != 0 {
		t.Errorf("at once %v", got)
	}
	s.now = s.now.Add(10 * time.Second)
	if got := s.poll(); len(got) != 1 || s.count("alone") != 1 || s.count("ignored") != 1 {
		t.Errorf("told %v; %d alone, %d ignored", got, s.count("alone"), s.count("ignored"))
	}
	told := s.rec.Events()
	if ev := told[len(told)-1]; ev.Message != "leak detected" || ev.Attr("log") != "/redfish/v1/SSE" {
		t.Errorf("%+v", ev)
	}
	s.push(events...) // the service repeats itself: the event has the id that it had
	s.now = s.now.Add(10 * time.Second)
	s.poll()
	told = s.rec.Events()
	if a, b := told[len(told)-1], told[len(told)-2]; a.ID != b.ID || a.ID == "" {
		t.Errorf("ids %q and %q", a.ID, b.ID)
	}
}

// A stream that breaks, floods or makes no sense harms nobody: the logs are read as without it.
func TestAStreamThatBreaksIsNoHarm(t *testing.T) {
	s := newSpeaker(t)
	s.poll()
	s.quiet()
	s.lines <- "data: {\"Events\": 7\n\ndata: [1,2]\n\nnonsense\n\n"
	s.lines <- "data: {\"MetricValues\": []}\n\n"
	many := make([]map[string]any, 3*mostHeard)
	for i := range many {
		many[i] = s.alert("OK", fmt.Sprint("chatter ", i))
	}
	s.push(many...)
	s.poll()
	s.now = s.now.Add(10 * time.Second)
	s.poll()
	if s.count("dropped") != 2*mostHeard || s.count("ignored") != mostHeard {
		t.Errorf("%d dropped, %d ignored", s.count("dropped"), s.count("ignored"))
	}
	for _, broken := range []string{"", "data: " + strings.Repeat("x", 1<<20+1) + "\n\n"} {
		if s.quiet() != 1 {
			t.Fatal("it is not open")
		}
		s.lines <- broken
		s.rings()
		ended := s.r.ear.done
		waittest.Until(t, func() error {
			select {
			case <-ended:
				return nil
			default:
				return fmt.Errorf("the stream is open")
			}
		})
		s.now = s.now.Add(10 * time.Second)
		s.poll()
		s.add(s.made + 1)
		s.now = s.now.Add(10 * time.Second)
		if got := s.poll(); len(got) != 1 {
			t.Errorf("without the stream %v", got)
		}
		s.now = s.now.Add(quietMost)
		s.poll() // it is open again
	}
	if n := testutil.ToFloat64(s.r.ear.broken); n != 2 {
		t.Errorf("%v broken", n)
	}
}

func TestWithoutReconcileNoStreamIsOpened(t *testing.T) {
	s := newSpeaker(t)
	s.r.cfg.Reconcile = 0
	s.poll()
	s.now = s.now.Add(time.Minute)
	s.poll()
	if s.r.ear.stream != nil {
		t.Error("a stream is open")
	}
}
