package tinkerbell

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// metrics count what the driver and its API do.
type metrics struct {
	workflows *prometheus.GaugeVec
	lasted    *prometheus.HistogramVec
	lists     *prometheus.CounterVec
	watches   *prometheus.CounterVec
	conflicts *prometheus.CounterVec
	errors    *prometheus.CounterVec
	jobs      *prometheus.CounterVec
}

// noTemplate is the label of a workflow of which nobody says with what it installs.
const noTemplate = "unknown"

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		workflows: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_control_tinkerbell_workflows", Help: "Workflows in Tinkerbell's API, by state (as Tinkerbell says it) and template with its version (unknown of those that are not ours).",
		}, []string{"state", "template"}),
		lasted: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "auspex_control_tinkerbell_workflow_seconds", Help: "Time from the creation of a workflow of ours to its end, by template and result: success, failed, timeout, or taken_away (out of its time, or cancelled).",
			Buckets: []float64{60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200},
		}, []string{"template", "result"}),
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_tinkerbell_lists_total", Help: "Lists of a resource that a watch was begun with, by resource: one at first, and one each time a watch was lost for too long.",
		}, []string{"resource"}),
		watches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_tinkerbell_watches_total", Help: "Watches that were begun, by resource: an API ends each after some minutes.",
		}, []string{"resource"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_tinkerbell_write_conflicts_total", Help: "Writes that were not done since somebody else had changed or made the object meanwhile, by resource; what had changed is read again.",
		}, []string{"resource"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_tinkerbell_api_errors_total", Help: "Requests to Tinkerbell's API that failed, by verb and reason: forbidden, unauthorized, refused (another answer of 4xx), server (5xx), unreachable.",
		}, []string{"verb", "reason"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_tinkerbell_rufio_jobs_total", Help: "Jobs that Rufio was given, by kind of step, and jobs of ours that were taken away after they had ended, by event: given, taken_away.",
		}, []string{"kind", "event"}),
	}
	if reg != nil {
		m.workflows, m.lasted = registered(reg, m.workflows), registered(reg, m.lasted)
		m.lists, m.watches, m.conflicts, m.errors = registered(reg, m.lists), registered(reg, m.watches), registered(reg, m.conflicts), registered(reg, m.errors)
		m.jobs = registered(reg, m.jobs)
	}
	return m
}

// registered is a collector, or the same one of another part of the driver.
func registered[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if was := (prometheus.AlreadyRegisteredError{}); errors.As(err, &was) {
		if same, ok := was.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// did counts what came of a request. What is not there, and a conflict, are answers.
func (m *metrics) did(verb, resource string, err error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		m.conflicts.WithLabelValues(resource).Inc()
	case err == nil, absent(err), errors.Is(err, context.Canceled):
	default:
		m.errors.WithLabelValues(verb, reasonOf(err)).Inc()
	}
}

func reasonOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	case errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError:
		return "server"
	case errors.As(err, &status):
		return "refused"
	}
	return "unreachable"
}

func templateOf(w *Workflow) string {
	if name := w.Annotations[ofTemplate]; name != "" && w.ours() {
		return name
	}
	return noTemplate
}

// ended notes how long a workflow of ours took.
func (m *metrics) ended(w *Workflow, result string, now time.Time) {
	m.lasted.WithLabelValues(templateOf(w), result).Observe(now.Sub(w.CreationTimestamp.Time).Seconds())
}

// count sets how many workflows there are now.
func (i *installer) count() {
	type of struct{ state, template string }
	n := map[of]float64{}
	for _, o := range i.flows.List() {
		if w, ok := o.(*Workflow); ok {
			n[of{strings.ToLower(w.state()), templateOf(w)}]++
		}
	}
	i.metrics.workflows.Reset()
	for k, v := range n {
		i.metrics.workflows.WithLabelValues(k.state, k.template).Set(v)
	}
}
