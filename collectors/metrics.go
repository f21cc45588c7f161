package collectors

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterOrGet registers a metric, or returns the one that an earlier instance
// of the same collector has registered. A nil registerer registers nothing.
func RegisterOrGet[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	if err := reg.Register(c); err != nil {
		var are prometheus.AlreadyRegisteredError
		if errors.As(err, &are) {
			if old, ok := are.ExistingCollector.(C); ok {
				return old
			}
		}
	}
	return c
}

type metrics struct {
	batches     *prometheus.CounterVec
	samples     *prometheus.CounterVec
	events      *prometheus.CounterVec
	errors      *prometheus.CounterVec
	retries     *prometheus.CounterVec
	skipped     *prometheus.CounterVec
	dropped     *prometheus.CounterVec
	lostEvents  *prometheus.CounterVec
	held        *prometheus.CounterVec
	hung        *prometheus.CounterVec
	busErrors   *prometheus.CounterVec
	busWait     *prometheus.CounterVec
	lastSuccess *prometheus.GaugeVec
	targets     *prometheus.GaugeVec
	lost        *prometheus.GaugeVec
	refused     *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auspex_collectors_" + name, Help: help}, labels))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return RegisterOrGet(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "auspex_collectors_" + name, Help: help}, labels))
	}
	return &metrics{
		batches: counter("batches_total", "Batches that the bus has acknowledged.", "collector", "topic"),
		samples: counter("samples_total", "Samples and GPU values in acknowledged batches.", "collector"),
		events:  counter("events_total", "Events in acknowledged batches.", "collector"),
		errors:  counter("errors_total", "Runs that ended with an error, by kind of error.", "collector", "kind"),
		retries: counter("retries_total", "Runs that began after an error.", "collector"),
		skipped: counter("scrapes_skipped_total", "Readings skipped because the previous one took too long.", "collector"),
		dropped: counter(
			"samples_dropped_total", "Samples dropped because the bus did not take them in time or their device has too many series.",
			"collector",
		),
		lostEvents: counter("events_lost_total", "Events that no bus can carry.", "collector"),
		held: counter(
			"flood_wait_seconds_total", "Time that devices waited because they exceeded their rate.", "collector",
		),
		hung:        counter("hung_total", "Collectors that did not stop in time.", "collector"),
		busErrors:   counter("publish_errors_total", "Attempts to publish that the bus rejected.", "collector", "topic"),
		busWait:     counter("publish_seconds_total", "Time that collectors have waited for the bus.", "collector", "topic"),
		lastSuccess: gauge("last_success_timestamp_seconds", "When a device last answered, Unix time.", "collector"),
		targets:     gauge("targets", "Devices that are read.", "collector"),
		lost:        gauge("targets_lost", "Devices reported as unreachable.", "collector"),
		refused:     gauge("targets_refused", "Devices that answer and refuse our credentials.", "collector"),
	}
}

// of counts the devices of a collector that are lost, or that refuse us.
func (m *metrics) of(refused bool, collector string) prometheus.Gauge {
	if refused {
		return m.refused.WithLabelValues(collector)
	}
	return m.lost.WithLabelValues(collector)
}
