// Package kubernetes follows the pods that hold GPUs, and the nodes, of a Kubernetes cluster, and tells what has
// changed: a workload that starts, ends or fails, a node that is not ready or cordoned. It lists once and then watches.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"auspex/collectors"
	"auspex/internal/kube"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "kubernetes"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewNone, Sources: []string{schemas.SourceScheduler}},
		func() collectors.Config { return Default() },
	)
}

// Config is the collector's configuration. Without a kubeconfig and outside of a cluster's own it reads nothing.
type Config struct {
	kube.Access `yaml:",inline"`

	Nodes kube.Nodes `yaml:"nodes"` // how the server of a node is found
	// Resources are what pods with GPUs ask for; a * at the end stands for anything.
	Resources []string `yaml:"resources"`
	// WorkloadKeys are labels or annotations of pods whose value names their workload; without them it is what owns them.
	WorkloadKeys []string `yaml:"workload_keys"`
	// OwnerKeys are labels or annotations of pods that say whose they are; without them it is their namespace.
	OwnerKeys []string `yaml:"owner_keys"`
	// Interval is how long changes are gathered before they are told.
	Interval time.Duration `yaml:"interval"`
	// Settle is how long a workload may be without a pod before it has ended: a retry begins a new one meanwhile.
	Settle  time.Duration `yaml:"settle"`
	Timeout time.Duration `yaml:"timeout"` // of one request, but for a watch
	// Stall is how long a watch may say nothing, not even that there is nothing new, before it is begun anew.
	Stall time.Duration `yaml:"stall"`

	servers *atomic.Pointer[map[string]string] // ids of servers, by the attribute that their node has
	parts   *atomic.Pointer[map[string]string] // ids of GPUs and of parts of them, by UUID
}

// Default returns the defaults.
func Default() *Config {
	return &Config{
		Nodes: kube.DefaultNodes(), Resources: []string{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "amd.com/gpu"},
		WorkloadKeys: []string{"kueue.x-k8s.io/pod-group-name"}, Interval: 2 * time.Second, Settle: 30 * time.Second,
		Timeout: 30 * time.Second, Stall: 3 * time.Minute, servers: &atomic.Pointer[map[string]string]{}, parts: &atomic.Pointer[map[string]string]{},
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	if err := c.Access.Check(); err != nil {
		return err
	}
	if err := c.Nodes.Check(); err != nil {
		return err
	}
	if len(c.Resources) == 0 {
		return errors.New("resources: name what pods with GPUs ask for, such as nvidia.com/gpu")
	}
	for _, r := range c.Resources {
		if errs := validation.IsQualifiedName(strings.TrimSuffix(r, "*") + "x"); len(errs) > 0 {
			return fmt.Errorf("resources: %q is no name of a resource: %s", r, strings.Join(errs, "; "))
		}
	}
	for _, k := range slices.Concat(c.WorkloadKeys, c.OwnerKeys) {
		if errs := validation.IsQualifiedName(k); len(errs) > 0 {
			return fmt.Errorf("workload_keys, owner_keys: %q is no key of a label: %s", k, strings.Join(errs, "; "))
		}
	}
	switch {
	case c.Interval < 100*time.Millisecond:
		return errors.New("interval must be at least 100ms")
	case c.Settle < 0:
		return errors.New("settle must not be negative")
	case c.Timeout <= 0:
		return errors.New("timeout must be positive")
	case c.Stall < 2*time.Minute: // an API server says once a minute that there is nothing new
		return errors.New("stall must be at least 2m")
	}
	return nil
}

// Targets implements [collectors.Config]: the first site stands for the cluster.
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	if !c.Configured() {
		return nil
	}
	parts := map[string]string{}
	for _, r := range resources {
		if uuid := r.Attrs.Get(schemas.AttrUUID); r.Kind == schemas.KindGPU && uuid != "" {
			parts[uuid] = r.ID
		}
	}
	c.parts.Store(&parts)
	if attr := c.Nodes.Attr; attr != "" {
		by := map[string]string{}
		for _, r := range resources {
			if v := r.Attrs.Get(attr); r.Kind == schemas.KindServer && v != "" {
				by[v] = r.ID
			}
		}
		c.servers.Store(&by)
	}
	if i := slices.IndexFunc(resources, func(r schemas.Resource) bool { return r.Kind == schemas.KindSite }); i >= 0 {
		return resources[i : i+1 : i+1]
	}
	return []schemas.Resource{{ID: Name, Kind: "scheduler"}}
}

// gpu is the GPU of the inventory with a UUID; "" is none.
func (c *Config) gpu(uuid string) string {
	if parts := c.parts.Load(); parts != nil {
		return (*parts)[uuid]
	}
	return ""
}

// server is the server of the inventory that a node is; where that cannot be said, the node's name.
func (c *Config) server(n *node) string {
	value, ok := c.Nodes.Identity(n.Meta.Name, n.Spec.ProviderID, n.Meta.Labels, n.Meta.Annotations)
	if by := c.servers.Load(); ok && c.Nodes.Attr != "" && by != nil {
		value = (*by)[value]
	}
	if !ok || value == "" {
		return n.Meta.Name
	}
	return value
}

// LossType implements [collectors.LossTyper]: a scheduler that does not answer is no device that is lost.
func (*Config) LossType() string { return "" }

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignJobs}}
}

// New implements [collectors.Config].
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if !c.Configured() {
		return nil, errors.New("kubeconfig or in_cluster is required")
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return newFollower(c, target.ID, s), nil
}

// scheme knows what an API server says of a request that failed; objects are decoded here.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

func (c *Config) rest() (*rest.Config, error) {
	cfg, err := c.Rest()
	if err != nil {
		return nil, err
	}
	cfg.APIPath, cfg.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg, nil
}

type metrics struct {
	malformed *prometheus.CounterVec
	lists     *prometheus.CounterVec
	watches   *prometheus.CounterVec
	unread    *prometheus.CounterVec
	joined    prometheus.Counter
	old       prometheus.Counter
	pods      prometheus.Gauge
	workloads prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auspex_collectors_kubernetes_" + name, Help: help}, labels))
	}
	counter := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_kubernetes_" + name, Help: help}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return collectors.RegisterOrGet(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_collectors_kubernetes_" + name, Help: help}))
	}
	return &metrics{
		malformed: counters("malformed_total", "Malformed objects.", "resource"),
		lists:     counters("lists_total", "Full lists that were begun, by why: at the start, or since a watch could not be resumed.", "resource", "reason"),
		watches:   counters("watches_ended_total", "Watches that ended, by why; each is begun anew where it was.", "resource", "reason"),
		unread:    counters("owners_unread_total", "Owners of pods that could not be read, by why; their child stands for the workload.", "reason"),
		joined:    counter("failures_joined_total", "Failures of pods that were told with an earlier one of the same workload."),
		old:       counter("failures_old_total", "Failures of pods that were over for more than an hour when they were first seen, and are not told."),
		pods:      gauge("pods", "Pods with GPUs that the cluster lists."),
		workloads: gauge("workloads", "Workloads of pods with GPUs."),
	}
}

// failed sorts what an API server answered under the kinds that collectors count.
func failed(what string, err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case refused(err):
		return fmt.Errorf("%w: %s: %w", collectors.ErrAuth, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
