package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/internal/decode/redfishevent"
	"auspex/schemas"
)

// What a service sends by itself is a bell: its logs are read at once, from where they were left. So nothing hangs on a stream that
// breaks, repeats or makes up, and an event has one witness, the log. An event that is in no log soon after is told by itself.

const (
	quietFirst = time.Minute // until a stream that broke is opened again, then twice as long each time
	quietMost  = 10 * time.Minute
	mostHeard  = 256             // events that wait to be found in a log
	logWithin  = 5 * time.Second // for a service to write what it has sent
	sameMoment = 2 * time.Second // between the times of an event and of its entry
)

// ear hears what one service sends. Its channel is read by the loop, the rest by the reader, but for what it has heard.
type ear struct {
	bell chan struct{}
	line
	meter   line      // of metric reports
	refused int       // how often in a row the stream of events was
	asked   time.Time // when the service was asked what it offers
	look    time.Time // a bell has rung; logs are read until then

	silent time.Time // since when a log has what was not told; zero where there is nothing
	doubt  time.Time // until then the logs are polled, whatever is told
	doubts int

	mu      sync.Mutex
	posts   bool // something was sent to where we have subscribed
	rung    bool
	heard   []heard
	over    int // not kept
	reports []redfish.Object
	values  int // in these

	logged []schemas.Event // of the last minutes, from logs

	streams, subscribed           prometheus.Gauge
	broken, inLog, alone, ignored prometheus.Counter
	dropped, old, missed          prometheus.Counter
	reportsTaken, reportsUnknown  prometheus.Counter
	reportsDropped                prometheus.Counter
}

// line is a stream, or none.
type line struct {
	stream *redfish.Stream
	done   chan struct{} // closed when the stream has ended
	opened time.Time
	again  time.Time // not opened before
	quiet  time.Duration
}

// heard is an event that was sent.
type heard struct {
	at     time.Time
	entry  redfishevent.Entry
	raw    redfish.Object
	posted bool // to us, not over a stream
}

func newEar(reg prometheus.Registerer) *ear {
	events := collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_collectors_redfish_pushed_events_total",
		Help: "Events that services sent by themselves: logged (read from a log), alone (in no log, and told), ignored (in no log, and of no concern), old (in no log, and not of the last backlog), dropped.",
	}, []string{"result"}))
	reports := collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_collectors_redfish_pushed_reports_total",
		Help: "Metric reports that services sent by themselves: taken, unknown (not among those of the service), dropped (too many between two polls).",
	}, []string{"result"}))
	gauge := func(name, help string) prometheus.Gauge {
		return collectors.RegisterOrGet(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_collectors_redfish_" + name, Help: help}))
	}
	counter := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_redfish_" + name, Help: help}))
	}
	return &ear{
		bell: make(chan struct{}, 1), line: line{quiet: quietFirst}, meter: line{quiet: quietFirst},
		streams:    gauge("streams", "Services that send events by themselves now, over a stream."),
		subscribed: gauge("subscribed", "Services that send events to the webhook, and have shown that they do."),
		broken:     counter("streams_broken_total", "Streams of events or metric reports that ended or could not be opened."),
		missed:     counter("untold_entries_total", "Log entries that a service should have told of by itself and did not; its logs are polled for a while then."),
		inLog:      events.WithLabelValues("logged"), alone: events.WithLabelValues("alone"), ignored: events.WithLabelValues("ignored"),
		dropped: events.WithLabelValues("dropped"), old: events.WithLabelValues("old"),
		reportsTaken: reports.WithLabelValues("taken"), reportsUnknown: reports.WithLabelValues("unknown"), reportsDropped: reports.WithLabelValues("dropped"),
	}
}

// close ends the streams.
func (e *ear) close() {
	if e.line.close() {
		e.streams.Dec()
	}
	e.meter.close()
}

// close ends a stream, and reports whether there was one.
func (l *line) close() bool {
	if l.stream == nil {
		return false
	}
	l.stream.Close()
	<-l.done
	l.stream = nil
	return true
}

// ended puts a stream away that has ended; false is that there is none, or that it goes on.
func (l *line) ended(now time.Time) bool {
	if l.stream == nil {
		return false
	}
	select {
	case <-l.done:
		if now.Sub(l.opened) > quietMost {
			l.quiet = quietFirst
		}
		l.close()
		l.failed(now)
		return true
	default:
		return false
	}
}

func (l *line) failed(now time.Time) {
	l.again, l.quiet = now.Add(l.quiet), min(2*l.quiet, quietMost)
}

// lives reports whether the stream of events is open.
func (e *ear) lives(now time.Time) bool {
	if e.ended(now) {
		e.streams.Dec()
		e.broken.Inc()
	}
	if e.meter.ended(now) {
		e.broken.Inc()
	}
	return e.stream != nil
}

// hears reports whether the service tells when there is something new, and can be believed to.
func (e *ear) hears(now time.Time) bool {
	lives := e.lives(now)
	e.mu.Lock()
	defer e.mu.Unlock()
	return (lives || e.posts) && !now.Before(e.doubt)
}

// mostRefused is how often in a row a stream may be refused before we subscribe instead.
const mostRefused = 3

// listen opens the stream where there is one and it is not open, and subscribes where there is none. A service that was just
// found has more to tell first.
func (r *reader) listen(ctx context.Context, now time.Time) error {
	e := r.ear
	if lives := e.lives(now); r.cfg.Reconcile == 0 || r.found.service == "" || r.foundAt.Equal(now) {
		return nil
	} else if lives {
		return r.listenToReports(ctx, now)
	}
	if r.found.serves == nil || now.Sub(e.asked) >= r.cfg.DiscoveryInterval && len(r.sub.paths) == 0 {
		o, err := r.get(ctx, r.found.service)
		if o == nil || err != nil {
			return err // where it cannot be read, it waits as every resource does
		}
		r.found.serves, e.asked = o, now
		if r.found.events = o.String("ServerSentEventUri"); e.refused >= mostRefused {
			r.found.events, e.refused = "", 0 // for as long as this is what it says
		}
	}
	if r.found.serves["ServiceEnabled"] == false {
		return nil
	}
	if r.found.events == "" {
		return r.subscribe(ctx, now)
	}
	if now.Before(e.again) {
		return nil
	}
	s, err := r.c.OpenStream(ctx, r.found.events)
	if err != nil {
		e.failed(now)
		e.broken.Inc()
		if kind := bmc.KindOf(err); kind == bmc.Garbled || kind == bmc.Missing || errors.As(err, new(*redfish.StatusError)) {
			if e.refused++; e.refused >= mostRefused && r.hook != nil {
				r.found.events = ""
			}
		}
		r.s.Log.Debug("cannot open the stream of events; the logs are polled", "error", err)
		return nil
	}
	e.stream, e.done, e.opened, e.refused = s, make(chan struct{}), now, 0
	e.streams.Inc()
	e.look = now.Add(logWithin + r.cfg.Interval) // for what was written before it was open
	go e.hear(s, e.done, r.s.Now)
	return nil
}

// listenToReports opens the stream of metric reports where the service has one: it is that of events with a filter (DSP0266,
// section 13.5.2).
func (r *reader) listenToReports(ctx context.Context, now time.Time) error {
	m, o := &r.ear.meter, r.found.serves
	if m.stream != nil || now.Before(m.again) || !r.found.reports() || !o.Object("SSEFilterPropertiesSupported").Bool("EventFormatType") ||
		!slices.Contains(o.Strings("EventFormatTypes"), redfish.FormatReports) || strings.Contains(r.found.events, "?") {
		return nil
	}
	s, err := r.c.OpenStream(ctx, r.found.events+"?$filter="+url.PathEscape("EventFormatType eq "+redfish.FormatReports))
	if err != nil {
		m.failed(now)
		r.ear.broken.Inc()
		r.s.Log.Debug("cannot open the stream of metric reports; they are polled", "error", err)
		return nil
	}
	m.stream, m.done, m.opened = s, make(chan struct{}), now
	go func(done chan<- struct{}) {
		defer close(done)
		for {
			o, err := s.Next()
			if err != nil {
				return
			}
			if o["MetricValues"] != nil {
				r.ear.report(o)
			}
		}
	}(m.done)
	return nil
}

// hear reads the stream to its end.
func (e *ear) hear(s *redfish.Stream, done chan<- struct{}, now func() time.Time) {
	defer close(done)
	for {
		o, err := s.Next()
		if err != nil {
			e.ring(nil) // the logs are polled again from now on
			return
		}
		if o["MetricValues"] != nil {
			e.report(o)
		}
		if o["Events"] != nil || o["Members"] != nil {
			e.ring(eventsOf(o, now(), false))
		}
	}
}

// posted takes what the service has sent to where we have subscribed.
func (e *ear) posted(o redfish.Object, now time.Time) {
	if o["MetricValues"] != nil {
		e.report(o)
	}
	fresh := eventsOf(o, now, true)
	if len(fresh) == 0 {
		return
	}
	e.mu.Lock()
	if !e.posts {
		e.posts = true
		e.subscribed.Inc()
	}
	e.mu.Unlock()
	e.ring(fresh)
}

// deaf notes that nothing is sent to us any more.
func (e *ear) deaf() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.posts {
		e.posts = false
		e.subscribed.Dec()
	}
}

// eventsOf returns the events of a message.
func eventsOf(o redfish.Object, now time.Time, posted bool) (fresh []heard) {
	for _, ev := range append(o.Objects("Events"), o.Objects("Members")...) {
		raw, err := json.Marshal(ev)
		if err != nil {
			continue
		}
		if entries, err := redfishevent.Parse(raw); err == nil && len(entries) == 1 {
			fresh = append(fresh, heard{now, entries[0], ev, posted})
		}
	}
	return fresh
}

// Bounds of the metric reports that wait for a poll.
const (
	mostReports = 64
	mostValues  = 50_000
)

// report keeps a metric report until the next poll.
func (e *ear) report(o redfish.Object) {
	values, _ := o["MetricValues"].([]any)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.reports) >= mostReports || e.values+len(values) > mostValues {
		e.reportsDropped.Inc()
		return
	}
	e.reports, e.values = append(e.reports, o), e.values+len(values)
}

// takeReports takes the metric reports that were sent since the last poll. They are not asked for while they come.
func (r *reader) takeReports(now time.Time) {
	e := r.ear
	e.mu.Lock()
	reports := e.reports
	e.reports, e.values = nil, 0
	e.mu.Unlock()
	for _, o := range reports {
		src := r.found.reportOf(r.c.Canonical(o.ID()), o)
		if src == nil {
			e.reportsUnknown.Inc()
			continue
		}
		e.reportsTaken.Inc()
		r.report(src, o, make(map[*series]bool), now)
		if !src.pushed.IsZero() && now.After(src.pushed) {
			src.gap = now.Sub(src.pushed)
		}
		src.pushed = now
		if src.told(now, r.cfg.SensorInterval) && src.cost > toldCost {
			src.cost, r.found.dirty = toldCost, true
		}
	}
}

// toldCost is that of a report that comes by itself, in requests.
const toldCost = 0.01

// told reports whether a report comes by itself, about as often as it would be asked for.
func (s *source) told(now time.Time, every time.Duration) bool {
	return s.gap > 0 && s.gap <= 2*every && now.Sub(s.pushed) <= 3*s.gap
}

// reports tells whether the service has metric reports.
func (inv *inventory) reports() bool {
	for _, s := range inv.sources {
		if s.rank == rankReports {
			return true
		}
	}
	return false
}

// reportOf finds the source of a metric report that was sent: by its path, else by its id.
func (inv *inventory) reportOf(path string, o redfish.Object) *source {
	if s := inv.sources[path]; s != nil && s.rank == rankReports {
		return s
	}
	id := o.String("Id")
	for _, s := range inv.sources {
		if s.rank == rankReports && id != "" && lastPart(s.path) == id {
			return s
		}
	}
	return nil
}

// ring has the logs read, and keeps what was heard until then.
func (e *ear) ring(fresh []heard) {
	e.mu.Lock()
	e.rung = true
	room := min(len(fresh), mostHeard-len(e.heard))
	e.heard = append(e.heard, fresh[:room]...)
	e.over += len(fresh) - room
	e.mu.Unlock()
	select {
	case e.bell <- struct{}{}:
	default:
	}
}

// logsDue reports whether the logs are to be read in this poll.
func (r *reader) logsDue(now time.Time) bool {
	e := r.ear
	e.mu.Lock()
	rung := e.rung
	e.rung = false
	e.mu.Unlock()
	if rung {
		e.silent = time.Time{}
		e.look = now.Add(logWithin + r.cfg.Interval) // it may write more slowly than it sends
		for _, l := range r.found.logs {
			if until := l.due.Add(r.cfg.Interval); l.twin == "" && until.After(e.look) {
				e.look = until
			}
		}
	}
	if !e.silent.IsZero() && now.Sub(e.silent) > logWithin {
		e.missed.Inc()
		e.silent, e.doubt = time.Time{}, now.Add(min(doubtFirst<<min(e.doubts, 10), doubtMost))
		if e.doubts++; e.doubts == 1 {
			r.s.Log.Warn("the service does not tell of all that it logs; its logs are polled", "until", e.doubt)
		}
	}
	return !e.hears(now) || !now.After(e.look) || now.Sub(r.logsAt) >= r.cfg.Reconcile
}

// How long a service is polled that did not tell of what it has logged: twice as long each time.
const (
	doubtFirst = time.Hour
	doubtMost  = 24 * time.Hour
)

// written notes an event of a log, which may be one that others show as well.
func (r *reader) written(ev schemas.Event, twin bool) {
	e, now := r.ear, r.s.Now()
	if !e.hears(now) {
		return
	}
	e.logged = append(e.logged, ev)
	if now.After(e.look) && !twin && e.silent.IsZero() && ev.Severity != schemas.SeverityInfo {
		e.silent = now // a bell may be under way
	}
}

// unwritten tells what was heard and is in no log; it is called when these were read.
func (r *reader) unwritten(now time.Time) {
	e := r.ear
	e.mu.Lock()
	waiting, over := e.heard, e.over
	e.heard, e.over = nil, 0
	e.mu.Unlock()
	e.dropped.Add(float64(over))
	e.logged = slices.DeleteFunc(e.logged, func(ev schemas.Event) bool { return now.Sub(ev.Observed) > time.Minute })
	var left []heard
	for _, h := range waiting {
		ev := h.entry.Event()
		switch {
		case slices.ContainsFunc(e.logged, func(of schemas.Event) bool { return same(&ev, &of) }):
			e.inLog.Inc()
		case now.Sub(h.at) < logWithin:
			left = append(left, h)
		case ev.Severity == schemas.SeverityInfo:
			e.ignored.Inc()
		case h.posted && r.cfg.Backlog > 0 && !ev.Time.IsZero() && now.Add(r.skew).Sub(ev.Time).Abs() > r.cfg.Backlog:
			e.old.Inc() // sent again by whomever
		default:
			if told, ok := r.event(&logService{entries: r.found.teller()}, h.raw, false); ok && !r.sent[told.ID] {
				r.batch.Event(told)
				r.sent[told.ID] = true
			}
			e.alone.Inc()
		}
	}
	e.mu.Lock()
	e.heard = append(left, e.heard...)
	e.mu.Unlock()
}

// teller names where an event came from that no log has.
func (inv *inventory) teller() string { return cmp.Or(inv.events, inv.service) }

// same reports whether an event that was sent is one of a log.
func same(sent, logged *schemas.Event) bool {
	if sent.Code != logged.Code {
		return false
	}
	if sent.Message != "" && sent.Message == logged.Message && sent.Time.Sub(logged.Time).Abs() <= time.Minute {
		return true
	}
	return sent.Time.Sub(logged.Time).Abs() <= sameMoment
}
