package bus

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what passes through a bus. A nil registerer counts into
// nothing that is exported.
type Metrics struct {
	published *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	failed    *prometheus.CounterVec
	seconds   prometheus.Histogram
	consumed  *prometheus.CounterVec
	skipped   *prometheus.CounterVec
	resets    *prometheus.CounterVec
	lag       *prometheus.GaugeVec
}

// NewMetrics makes the counters of a bus and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		published: counter("auspex_bus_published_messages_total", "Messages that the bus has made durable.", "topic"),
		bytes:     counter("auspex_bus_published_bytes_total", "Bytes of values that the bus has made durable.", "topic"),
		failed:    counter("auspex_bus_publish_failures_total", "Messages that the bus did not confirm as durable.", "topic"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "auspex_bus_publish_seconds", Help: "Time until a published set of messages was durable.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5},
		}),
		consumed: counter("auspex_bus_consumed_messages_total", "Messages that a reader has handled.", "topic", "group"),
		skipped:  counter("auspex_bus_skipped_messages_total", "Messages that retention removed before they were read.", "topic", "group"),
		resets: counter(
			"auspex_bus_position_resets_total", "Positions beyond the end of the log, after the log was recreated.", "topic", "group",
		),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_bus_lag_messages", Help: "Messages that a reader has not handled yet, as of its last fetch.",
		}, []string{"topic", "group", "partition"}),
	}
	if reg != nil {
		reg.MustRegister(m.published, m.bytes, m.failed, m.seconds, m.consumed, m.skipped, m.resets, m.lag)
	}
	return m
}

// Published notes the outcome of one Publish call that began at start.
func (m *Metrics) Published(msgs []Message, start time.Time, err error) {
	if err == nil {
		m.seconds.Observe(time.Since(start).Seconds())
	}
	for i := range msgs {
		if err != nil {
			m.failed.WithLabelValues(msgs[i].Topic).Inc()
			continue
		}
		m.published.WithLabelValues(msgs[i].Topic).Inc()
		m.bytes.WithLabelValues(msgs[i].Topic).Add(float64(len(msgs[i].Value)))
	}
}

func (m *Metrics) reset(topic, group string) { m.resets.WithLabelValues(topic, group).Inc() }

type readerCounters struct {
	messages, skipped prometheus.Counter
	lag               prometheus.Gauge
}

func (m *Metrics) reader(topic, group string, partition int) readerCounters {
	return readerCounters{
		messages: m.consumed.WithLabelValues(topic, group),
		skipped:  m.skipped.WithLabelValues(topic, group),
		lag:      m.lag.WithLabelValues(topic, group, strconv.Itoa(partition)),
	}
}
