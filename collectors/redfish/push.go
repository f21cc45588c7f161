package redfish

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
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
	bell   chan struct{}
	stream *redfish.Stream
	done   chan struct{} // closed when the stream has ended
	opened time.Time
	again  time.Time // not opened before
	quiet  time.Duration
	look   time.Time // a bell has rung; logs are read until then

	mu    sync.Mutex
	rung  bool
	heard []heard
	over  int // not kept

	logged []schemas.Event // of the last minutes, from logs

	streams                       prometheus.Gauge
	broken, inLog, alone, ignored prometheus.Counter
	dropped                       prometheus.Counter
}

// heard is an event of the stream.
type heard struct {
	at    time.Time
	entry redfishevent.Entry
	raw   redfish.Object
}

func newEar(reg prometheus.Registerer) *ear {
	events := collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_collectors_redfish_pushed_events_total",
		Help: "Events that services sent by themselves: logged (read from a log), alone (in no log, and told), ignored (in no log, and of no concern), dropped.",
	}, []string{"result"}))
	return &ear{
		bell: make(chan struct{}, 1), quiet: quietFirst,
		streams: collectors.RegisterOrGet(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_collectors_redfish_streams", Help: "Services that send events by themselves now.",
		})),
		broken: collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_collectors_redfish_streams_broken_total", Help: "Streams of events that ended or could not be opened.",
		})),
		inLog: events.WithLabelValues("logged"), alone: events.WithLabelValues("alone"), ignored: events.WithLabelValues("ignored"),
		dropped: events.WithLabelValues("dropped"),
	}
}

// close ends the stream.
func (e *ear) close() {
	if e.stream == nil {
		return
	}
	e.stream.Close()
	<-e.done
	e.stream = nil
	e.streams.Dec()
}

// lives reports whether the stream is open; one that has ended is put away.
func (e *ear) lives(now time.Time) bool {
	if e.stream == nil {
		return false
	}
	select {
	case <-e.done:
		if now.Sub(e.opened) > quietMost {
			e.quiet = quietFirst
		}
		e.close()
		e.failed(now)
		return false
	default:
		return true
	}
}

// listen opens the stream where there is one and it is not open. A service that was just found has more to tell first.
func (r *reader) listen(ctx context.Context, now time.Time) error {
	e := r.ear
	if e.lives(now) || r.cfg.Reconcile == 0 || r.found.service == "" || now.Before(e.again) || r.foundAt.Equal(now) {
		return nil
	}
	if r.found.events == "" {
		o, err := r.get(ctx, r.found.service)
		if o == nil || err != nil {
			return err // where it cannot be read, it waits as every resource does
		}
		if r.found.events = o.String("ServerSentEventUri"); r.found.events == "" || o["ServiceEnabled"] == false {
			r.found.events, e.again = "", now.Add(r.cfg.DiscoveryInterval)
			return nil
		}
	}
	s, err := r.c.OpenStream(ctx, r.found.events)
	if err != nil {
		e.failed(now)
		r.s.Log.Debug("cannot open the stream of events; the logs are polled", "error", err)
		return nil
	}
	e.stream, e.done, e.opened = s, make(chan struct{}), now
	e.streams.Inc()
	e.look = now.Add(logWithin + r.cfg.Interval) // for what was written before it was open
	go e.hear(s, e.done, r.s.Now)
	return nil
}

func (e *ear) failed(now time.Time) {
	e.broken.Inc()
	e.again, e.quiet = now.Add(e.quiet), min(2*e.quiet, quietMost)
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
		if o == nil || o["Events"] == nil && o["Members"] == nil {
			continue // a metric report, or nothing that can be read
		}
		var fresh []heard
		for _, ev := range append(o.Objects("Events"), o.Objects("Members")...) {
			raw, err := json.Marshal(ev)
			if err != nil {
				continue
			}
			if entries, err := redfishevent.Parse(raw); err == nil && len(entries) == 1 {
				fresh = append(fresh, heard{now(), entries[0], ev})
			}
		}
		e.ring(fresh)
	}
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
		e.look = now.Add(logWithin + r.cfg.Interval) // it may write more slowly than it sends
		for _, l := range r.found.logs {
			if until := l.due.Add(r.cfg.Interval); l.twin == "" && until.After(e.look) {
				e.look = until
			}
		}
	}
	return !e.lives(now) || !now.After(e.look) || now.Sub(r.logsAt) >= r.cfg.Reconcile
}

// written notes an event of a log.
func (e *ear) written(ev schemas.Event) {
	if e.stream != nil {
		e.logged = append(e.logged, ev)
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
		default:
			if told, ok := r.event(&logService{entries: r.found.events}, h.raw, false); ok && !r.sent[told.ID] {
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
