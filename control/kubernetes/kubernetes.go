// Package kubernetes registers the driver that takes servers out of Kubernetes
// and gives them back: cordon, eviction with the disruption budgets respected, and
// uncordon. It undoes only what carries its own mark.
package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"auspex/control"
	"auspex/internal/kube"
	"auspex/schemas"
)

// Name is the driver's key in the configuration.
const Name = "kubernetes"

func init() {
	control.Register(Name, func() control.Driver { return defaults() })
}

func defaults() *Config {
	return &Config{
		Taint: "auspex.io/cordoned", EvictWithin: 9 * time.Minute, StuckAfter: time.Minute,
		Nodes: kube.DefaultNodes(),
	}
}

// Config is how control reaches Kubernetes. Without a kubeconfig and outside of a
// cluster's own it does not.
type Config struct {
	kube.Access `yaml:",inline"`

	Nodes kube.Nodes `yaml:"nodes"` // how the node of a server is found
	// Servers are those that are of this cluster, where others are not; without them all are.
	Servers control.Servers `yaml:"servers"`
	// Taint is the key of the taint (effect NoSchedule) that a cordon of ours sets beside unschedulable.
	Taint string `yaml:"taint"`
	// EvictWithin is how long after its cordon a server's pods may take to leave; then
	// the drain has failed, and says which pods and disruption budgets stand in the way.
	EvictWithin time.Duration `yaml:"evict_within"`
	// GracePeriod is how long an evicted pod may take to end; 0 leaves it to the pod.
	GracePeriod time.Duration `yaml:"grace_period"`
	// StuckAfter is how long after its grace period a pod that still ends is told as stuck.
	StuckAfter time.Duration `yaml:"stuck_after"`
	// LeaveNamespaces are those whose pods are left alone, and do not count.
	LeaveNamespaces []string `yaml:"leave_namespaces"`
	// EvictEmptyDir evicts pods with an emptyDir too, whose contents are lost.
	EvictEmptyDir bool `yaml:"evict_empty_dir"`
	// EvictBare evicts pods without a controller too, which nobody starts again.
	EvictBare bool `yaml:"evict_bare"`
}

func (c *Config) validate() error {
	if err := c.Nodes.Check(); err != nil {
		return err
	}
	if errs := validation.IsQualifiedName(c.Taint); len(errs) > 0 {
		return fmt.Errorf("taint: %q is no key of a taint: %s", c.Taint, strings.Join(errs, "; "))
	}
	if c.EvictWithin <= 0 || c.GracePeriod < 0 || c.StuckAfter < 0 {
		return errors.New("evict_within must be positive, grace_period and stuck_after not negative")
	}
	return c.Access.Check()
}

// Remediators implements [control.Driver].
func (c *Config) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if !c.Configured() {
		return nil, nil
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Resource == nil {
		s.Resource = func(string) (schemas.Resource, bool) { return schemas.Resource{}, false }
	}
	k := &cluster{cfg: *c, now: s.Now, resource: s.Resource, again: map[string]time.Time{}}
	return c.Servers.Keep(s, map[string]control.Remediator{"drain": drain{k}, "quarantine": drain{k}, "cordon": cordon{k}, "uncordon": uncordon{k}})
}
